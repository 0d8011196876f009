"""From data or probabilities to an audit: the table, refused input, warnings."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from peerloss import NoiseModel, find_label_issues, flip_labels
from peerloss.audit._label_audit import is_replaceable
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError


@pytest.fixture(scope="module")
def noisy_table():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 3)), columns=list("abc"), index=[f"id{i}" for i in range(400)])
    clean = pd.Series(np.where(X["a"] + X["b"] > 0, "yes", "no"), index=X.index, name="answer")
    codes = flip_labels((clean == "yes").astype(int), NoiseModel.binary(0.1, 0.3), random_state=0)
    return X, clean, pd.Series(np.where(codes == 1, "yes", "no"), index=X.index, name="answer")


@pytest.fixture(scope="module")
def audit(noisy_table):
    X, _, noisy = noisy_table
    return find_label_issues(X, noisy, estimator=LogisticRegression())


def test_table_keeps_index_and_has_the_promised_columns(noisy_table, audit):
    """One row per label, with the caller's index; ranks are 1..n in the order of p_error."""
    X, _, noisy = noisy_table
    assert audit.table.index.equals(X.index)
    columns = ["given", "suggested", "p_error", "p_suggested", "rank", "flagged", "gain"]
    assert list(audit.table) == columns
    assert (audit.table["given"] == noisy).all()
    ordered = audit.table.sort_values("rank")
    assert ordered["rank"].tolist() == list(range(1, 401))
    assert ordered["p_error"].is_monotonic_decreasing
    assert ordered["flagged"].is_monotonic_decreasing


def test_flags_are_mostly_wrong_labels(noisy_table, audit):
    """On separable data, precision and recall of the flags are above two thirds."""
    _, clean, noisy = noisy_table
    wrong = noisy != clean
    assert wrong[audit.table["flagged"]].mean() > 0.66
    assert audit.table["flagged"][wrong].mean() > 0.66
    assert audit.expected_errors == pytest.approx(wrong.sum(), rel=0.4)


def test_relabel_and_drop_return_data(noisy_table, audit):
    """Relabelled labels are closer to the clean ones; the dropped rows are the flagged ones."""
    X, clean, noisy = noisy_table
    features, labels = audit.relabel()
    assert features is X
    assert labels.name == "answer"
    assert (labels == clean).mean() > (noisy == clean).mean() + 0.1
    kept, remaining = audit.drop()
    assert kept.index.equals(remaining.index)
    assert set(remaining.index) == set(audit.table.index[~audit.table["flagged"]])
    assert (audit.table["given"] == noisy).all()


def test_the_suggestion_is_the_likeliest_other_class():
    """It is never the given label, has its probability, and is right for most wrong labels."""
    rng = np.random.default_rng(0)
    clean = rng.integers(3, size=600)
    logits = rng.normal(size=(600, 3))
    logits[np.arange(600), clean] += 4.0
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    noisy = np.where(rng.random(600) < 0.15, (clean + 1) % 3, clean)
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    table = audit.table
    assert (table["suggested"] != table["given"]).all()
    assert (table["p_suggested"] <= table["p_error"] + 1e-9).all()
    wrong = (table["flagged"] & (noisy != clean)).to_numpy()
    assert (table["suggested"][wrong] == clean[wrong]).mean() > 0.85


def test_a_less_probable_suggestion_replaces_no_label():
    """A label that is probably wrong stays if every other class is even less probable."""
    columns = {"given": ["a", "a", "a"], "suggested": ["b", "b", "b"], "p_error": [0.6, 0.6, 0.4]}
    table = pd.DataFrame(columns | {"p_suggested": [0.3, 0.5, 0.4]})
    assert is_replaceable(table).tolist() == [False, True, False]
    assert is_replaceable(table.drop(columns="p_suggested")).tolist() == [True, True, False]


def test_probabilities_alone_give_the_same_as_the_estimator(noisy_table, audit):
    """`pred_proba` of the same folds gives the same table."""
    X, _, noisy = noisy_table
    codes = (noisy == "yes").astype(int)
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    proba = cross_val_predict(LogisticRegression(), X, codes, cv=folds, method="predict_proba")
    again = find_label_issues(labels=noisy, pred_proba=proba)
    pd.testing.assert_frame_equal(again.table, audit.table)
    assert again.drop()[0] is None


def test_summary_has_the_outlook(audit):
    """Peer loss applies; the summary has gain, bound and rates."""
    summary = audit.summary()
    assert summary["peer_loss_applies"] is True
    assert summary["sum_of_rates"] == pytest.approx(0.4, abs=0.15)
    assert summary["accuracy_corrected"] >= summary["accuracy_as_labelled"]
    assert 0 < summary["excess_error_bound"] <= 1
    assert "Peer loss applies" in str(audit)


def test_the_portfolio_is_the_default(noisy_table):
    """Without an estimator PeerClassifier's portfolio is cross-fitted; text columns are encoded."""
    X, clean, noisy = noisy_table
    table = X.iloc[:80].assign(colour=np.where(clean[:80] == "yes", "red", "blue"))
    audit = find_label_issues(table, noisy[:80], cv=2)
    wrong = (noisy != clean)[:80]
    assert audit.table["p_error"][wrong].mean() > audit.table["p_error"][~wrong].mean() + 0.2


def test_one_column_per_annotator():
    """Wide labels with gaps: the majority label is given, and better annotators count more."""
    rng = np.random.default_rng(0)
    clean = rng.integers(2, size=300)
    said = np.array(
        [flip_labels(clean, NoiseModel.binary(r, r), random_state=i) for i, r in enumerate([0.05, 0.3, 0.3])]
    )
    wide = pd.DataFrame(said.T, columns=["ann", "bob", "cy"]).astype(float)
    wide.iloc[:50, 2] = np.nan
    audit = find_label_issues(labels=wide)
    wrong = audit.table["given"] != clean
    assert audit.table["p_error"][wrong].mean() > audit.table["p_error"][~wrong].mean() + 0.2
    with_features = find_label_issues(
        pd.DataFrame({"x": clean + rng.normal(size=300)}), wide, estimator=LogisticRegression()
    )
    assert ((with_features.relabel()[1] == clean).mean()) >= (audit.table["given"] == clean).mean()


def test_a_long_table_of_reports():
    """Tasks are matched to the index of X, in any order."""
    X = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0] * 10}, index=[f"t{i}" for i in range(40)])
    reports = pd.DataFrame(
        [
            (f"t{i}", worker, "b" if i % 4 > 1 else "a")
            for i in reversed(range(40))
            for worker in ("ann", "bob")
        ],
        columns=["task", "worker", "label"],
    )
    audit = find_label_issues(X, reports, estimator=LogisticRegression())
    assert audit.table.index.equals(X.index)
    assert audit.table["given"].tolist() == ["a", "a", "b", "b"] * 10


def crowd(n_classes, seed, n=400):
    """Return clean labels, a long table of reports, and a generator."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(n_classes, size=n)
    rates = {"ann": 0.1, "bob": 0.25, "cy": 0.3, "dee": 0.4}
    said = [
        pd.DataFrame(
            {
                "task": np.arange(n),
                "worker": name,
                "label": NoiseModel.uniform(n_classes, rate).apply(clean, random_state=rng),
            }
        )
        for name, rate in rates.items()
    ]
    reports = pd.concat(said, ignore_index=True)
    return clean, reports[(reports["worker"] == "dee") | (rng.random(len(reports)) < 0.7)], rng


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("strength", [0.0, 0.15])
def test_an_uninformative_model_is_ignored(n_classes, strength):
    """With random or nearly random probabilities, suggestions and flags are those of the reports alone."""
    for seed in range(3):
        clean, reports, rng = crowd(n_classes, seed)
        alone = find_label_issues(labels=reports)
        rows = alone.table.index.to_numpy()
        logits = rng.normal(size=(len(clean), n_classes))
        logits[np.arange(len(clean)), clean] += strength
        proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        with pytest.warns(IdentifiabilityWarning, match="based on the annotators' reports alone"):
            audit = find_label_issues(labels=reports, pred_proba=proba)
        pd.testing.assert_frame_equal(
            audit.table.loc[rows].drop(columns="rank"), alone.table.drop(columns="rank")
        )
        assert (audit.relabel()[1] == clean).mean() > 0.75


@pytest.mark.parametrize("n_classes", [2, 4])
def test_an_informative_model_improves_on_the_reports(n_classes):
    """Informative probabilities and reports together suggest better labels than reports alone."""
    clean, reports, rng = crowd(n_classes, 0)
    alone = find_label_issues(labels=reports).relabel()[1].sort_index()
    logits = rng.normal(size=(len(clean), n_classes))
    logits[np.arange(len(clean)), clean] += 3.0
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        audit = find_label_issues(labels=reports, pred_proba=proba)
    assert (audit.relabel()[1] == clean).mean() > (alone == clean).mean() + 0.05


@pytest.mark.parametrize("form", ["pred_proba", "array X", "named pred_proba", "named X"])
def test_the_order_of_reports_does_not_matter(form):
    """Tasks are matched to rows by position or by name, never by order of appearance."""
    clean, reports, rng = crowd(3, 1)
    logits = rng.normal(size=(len(clean), 3))
    logits[np.arange(len(clean)), clean] += 2.0
    proba = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    if form.startswith("named"):
        names = np.array([f"t{i}" for i in rng.permutation(len(clean))])
        reports = reports.assign(task=names[reports["task"]])
        logits, proba = pd.DataFrame(logits, index=names), pd.DataFrame(proba, index=names)
        logits.columns = ["a", "b", "c"]
    given = {"estimator": LogisticRegression()} if "X" in form else {"pred_proba": proba}
    X = logits if "X" in form else None
    one, two = (
        find_label_issues(X, table, **given) for table in (reports, reports.sample(frac=1, random_state=0))
    )
    pd.testing.assert_frame_equal(one.table, two.table, rtol=0, atol=1e-6)
    assert (two.relabel()[1] == clean).mean() > 0.85


@pytest.mark.parametrize("duplicates", ["first", "last"])
def test_duplicates_keeps_one_label_per_annotator(duplicates):
    """`duplicates` keeps the first or the last label of an annotator for a row."""
    _, reports, _ = crowd(2, 2)
    wrong = reports.assign(label=1 - reports["label"])
    both = pd.concat([reports, wrong] if duplicates == "first" else [wrong, reports])
    with pytest.raises(InvalidInputError, match=r"has more.*duplicates='first'"):
        find_label_issues(labels=both)
    found = find_label_issues(labels=both, duplicates=duplicates).table.sort_index()
    expected = find_label_issues(labels=reports).table.sort_index()
    pd.testing.assert_frame_equal(found.drop(columns="rank"), expected.drop(columns="rank"))


def test_unidentifiable_noise_is_reported(noisy_table):
    """Labels that are unrelated to the features: a warning, a reason, no noise, and still a ranking."""
    X, _, _ = noisy_table
    labels = np.random.default_rng(3).integers(2, size=len(X))
    with pytest.warns(IdentifiabilityWarning, match="ranked by the model's confidence") as caught:
        audit = find_label_issues(X, labels, estimator=LogisticRegression())
    assert caught[0].filename == __file__
    assert audit.noise is None
    assert audit.summary()["ranked_by"] == "confidence"
    assert audit.outlook.applies is False
    assert "The noise rates cannot be estimated" in str(audit)


def test_classes_without_rows_keep_their_column():
    """Codes 0..K-1 and categories may include classes without rows."""
    proba = np.full((60, 3), 0.05)
    codes = np.array([0, 2] * 30)
    proba[np.arange(60), codes] = 0.9
    by_codes = find_label_issues(labels=codes, pred_proba=proba)
    names = pd.Series(pd.Categorical.from_codes(codes, categories=["x", "y", "z"]))
    by_names = find_label_issues(labels=names, pred_proba=proba)
    assert by_codes.classes.tolist() == [0, 1, 2]
    assert by_names.classes.tolist() == ["x", "y", "z"]
    assert by_names.table["p_error"].tolist() == by_codes.table["p_error"].tolist()


GOOD = np.array([[0.9, 0.1], [0.2, 0.8]])


@pytest.mark.parametrize(
    ("X", "y", "proba", "message"),
    [
        (None, [0, 1], [["a", "b"], ["c", "d"]], "`pred_proba` must hold numbers"),
        (None, [0, 1], GOOD * 2, "sum of 2 in row 0"),
        (None, [0, 1], GOOD - [[0, 0], [0.4, -0.4]], "found -0.2 in row 1"),
        (None, [0, 1], np.where(GOOD == 0.8, np.nan, GOOD), "missing or infinite value in row 1"),
        (None, [0, 1], GOOD[:, 0], "one column per class; got shape"),
        (None, [0, 1, 1], GOOD, "equally long; got 2 and 3"),
        (None, ["a", "b"], np.full((2, 3), 1 / 3), "one column for each class of `labels`, 2; got 3"),
        (None, ["a", None], GOOD, "1 have none, the first is row 1"),
        (None, [1.0, np.nan], GOOD, "must hold a label for each row"),
        (None, [], GOOD, "`labels` is empty"),
        (None, ["a", "a"], None, "at least two classes"),
        (None, [0, 1], None, "pass `X`, `pred_proba`, or labels"),
        (np.zeros(2), [0, 1], None, "`X` must have one row per example"),
        (np.zeros((3, 1)), [0, 1], None, "`X` and `labels` must be equally long; got 3 and 2"),
        (None, [[[0]]], None, "one label per row; got shape"),
        (None, pd.Series(["a", 1], dtype=object), GOOD, "mixes types"),
        (pd.DataFrame({"x": [1, 2]}), pd.Series([0, 1], index=[5, 6]), None, "same index"),
        (pd.DataFrame({"x": [1, 2]}), pd.DataFrame({"a": [1, None], "b": [0, None]}), None, "1 have none"),
        (pd.DataFrame({"x": [1, 2]}), pd.DataFrame({"a": [1]}), None, "equally long; got 2 and 1"),
        (
            pd.DataFrame({"x": [1, 2]}, index=["p", "p"]),
            pd.DataFrame({"task": ["p", "p"], "worker": ["v", "w"], "label": [1, 0]}),
            None,
            "must not repeat an entry",
        ),
        (
            pd.DataFrame({"x": [1, 2]}, index=["p", "q"]),
            pd.DataFrame({"task": ["p", "r"], "worker": ["w", "w"], "label": [1, 0]}),
            None,
            "task 'r', which is not a row of `X`",
        ),
        (
            pd.DataFrame({"x": [1, 2, 3]}, index=["p", "q", "s"]),
            pd.DataFrame({"task": ["p", "q"], "worker": ["w", "w"], "label": [1, 0]}),
            None,
            "the first is row 's'",
        ),
        (
            None,
            pd.DataFrame({"task": ["p", "q"], "worker": ["w", "w"], "label": [1, 0]}),
            GOOD,
            "names its tasks, such as 'p', but the rows of the array `pred_proba` have no names",
        ),
        (
            np.zeros((2, 1)),
            pd.DataFrame({"item": ["p", "q"], "worker": ["w", "w"], "label": [1, 0]}),
            None,
            "Pass `X` as a DataFrame whose index holds the tasks",
        ),
        (
            None,
            pd.DataFrame({"task": [1, 2], "worker": ["w", "w"], "label": [1, 0]}),
            GOOD,
            "task 2, which is not a row of `pred_proba`. Tasks must be positions of rows, 0 to 1",
        ),
        (
            None,
            pd.DataFrame({"item": [0, 0, 1], "worker": ["w", "w", "w"], "label": [1, 1, 0]}),
            GOOD,
            "item 0, worker w has more",
        ),
    ],
)
def test_bad_input_is_refused_with_advice(X, y, proba, message):
    """Each message names the argument, what was received and what to do."""
    with pytest.raises(InvalidInputError, match=message):
        find_label_issues(X, y, pred_proba=proba)


def test_single_precision_and_memory_maps_are_accepted(tmp_path):
    """float32 probabilities on disk give nearly the same as float64 in memory."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1, 1, 1], size=200)
    codes = proba.argmax(axis=1)
    codes[:20] = (codes[:20] + 1) % 3
    stored = np.lib.format.open_memmap(tmp_path / "p.npy", mode="w+", dtype=np.float32, shape=proba.shape)
    stored[:] = proba
    stored.flush()
    on_disk = np.load(tmp_path / "p.npy", mmap_mode="r")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        a, b = (find_label_issues(labels=codes, pred_proba=p).table["p_error"] for p in (proba, on_disk))
    assert a.to_numpy() == pytest.approx(b.to_numpy(), abs=1e-3)


def test_probabilities_that_name_rows_in_another_order_are_refused():
    """They are used by position: with an index of the same names in another order that would mix up rows."""
    X = pd.DataFrame({"x": np.arange(20.0)}, index=[f"r{i}" for i in range(20)])
    y = np.arange(20) % 2
    proba = pd.DataFrame(np.full((20, 2), 0.5), index=X.index)
    with pytest.raises(InvalidInputError, match="`pred_proba` must have its rows in the order of `X`"):
        find_label_issues(X, y, pred_proba=proba.iloc[::-1])
