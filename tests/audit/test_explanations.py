"""Why a row is suspect: probabilities, similar rows, unusual values."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from peerloss import find_label_issues
from peerloss.audit import _explanations
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import made_audit


def shapes(n=300, seed=0):
    """Return features of two groups, their clean names, labels with errors, and probabilities."""
    rng = np.random.default_rng(seed)
    clean = np.arange(n) % 2
    wrong = np.arange(n) % 15 == 0
    given = np.where(wrong, 1 - clean, clean)
    X = pd.DataFrame(
        {
            "size": 5.0 * clean + rng.normal(size=n),
            "colour": np.where(rng.random(n) < 0.95, np.where(clean == 1, "red", "blue"), "green"),
            "other": rng.normal(size=n),
        },
        index=[f"r{i}" for i in range(n)],
    )
    one = np.clip(np.where(clean == 1, 0.93, 0.07) + rng.normal(scale=0.02, size=n), 0.01, 0.99)
    names = np.array(["small", "large"])
    y = pd.Series(pd.Categorical(names[given], categories=names), index=X.index)
    return X, y, np.column_stack([1 - one, one]), wrong


@pytest.fixture(scope="module")
def audit():
    X, y, proba, _ = shapes()
    return find_label_issues(X, y, pred_proba=proba)


def test_a_suspect_is_explained(audit):
    """Probabilities sum to 1, similar rows have the other label, and the size and colour are unusual."""
    _, _, _, wrong = shapes()
    first = audit.suspects.index[0]
    assert wrong[audit.table.index.get_loc(first)]
    why = audit.explain(first)
    assert why.probabilities.sum() == pytest.approx(1.0)
    assert why.probabilities[why.given] == pytest.approx(1.0 - why.p_error)
    assert why.probabilities.index[0] == why.suggested
    assert (why.nearest["label"] == why.suggested).sum() >= 2
    assert first not in why.nearest.index
    assert why.nearest["distance"].is_monotonic_increasing
    assert why.given_examples["label"].tolist() == [why.given] * 2
    assert why.suggested_examples["label"].tolist() == [why.suggested] * 2
    assert not why.given_examples["flagged"].any()
    assert {value.column for value in why.unusual} == {"size", "colour"}
    for part in (str(first), why.nearest.index[0], "colour = "):
        assert part in str(why)


def test_nearest_rows_are_those_of_a_direct_computation(audit, monkeypatch):
    """Blocks of one suspect, and all at once, give the rows with the smallest distances."""
    features = _explanations.comparable_features(audit.X)
    whole = audit.explanations
    monkeypatch.setattr(_explanations, "BLOCK", 1)
    parts = _explanations.explain_suspects(audit)
    assert parts.nearest.tolist() == whole.nearest.tolist()
    for number, row in enumerate(whole.suspects):
        distance = np.linalg.norm(features - features[row], axis=1)
        distance[row] = np.inf
        assert whole.distances[number] == pytest.approx(np.sort(distance)[:3], abs=1e-3)
        assert parts.given_examples[number].tolist() == whole.given_examples[number].tolist()


def test_similar_text_is_found_by_its_words():
    """Free text is compared by TF-IDF and cosine; a table of text alone is enough."""
    rng = np.random.default_rng(0)
    words = [[f"{kind}{i}" for i in range(30)] for kind in ("alpha", "beta")]
    clean = np.arange(200) % 2
    text = [" ".join(rng.choice(words[c], size=12)) for c in clean]
    given = np.where(np.arange(200) % 20 == 0, 1 - clean, clean)
    proba = np.where(clean[:, None] == [0, 1], 0.9, 0.1) + rng.uniform(-0.05, 0.05, size=(200, 1)) * [1, -1]
    audit = find_label_issues(pd.DataFrame({"text": text}), given, pred_proba=proba)
    found = audit.explanations
    assert len(found.suspects)
    assert (clean[found.nearest] == clean[found.suspects][:, None]).all()


@pytest.mark.parametrize("kind", ["array", "sparse", "no features"])
def test_other_features(kind):
    """Arrays and sparse matrices have similar rows; without features there are probabilities only."""
    X, y, proba, _ = shapes()
    values = X[["size", "other"]].to_numpy()
    given = {"array": values, "sparse": sparse.csr_array(np.abs(values)), "no features": None}[kind]
    audit = find_label_issues(given, y.reset_index(drop=True), pred_proba=proba)
    why = audit.explain(audit.suspects.index[0])
    assert len(why.nearest) == len(why.given_examples) + 1 if given is not None else not len(why.nearest)
    assert why.probabilities.sum() == pytest.approx(1.0)


def test_hostile_columns_do_not_matter():
    """Constant, empty and infinite columns, and a column of equal texts, give no error."""
    X, y, proba, _ = shapes()
    X = X.assign(
        constant=1.0, empty=None, infinite=np.inf, mixed=[1, "a", None] * 100, flag=[True, False] * 150
    )
    X.loc["r1", "size"] = np.nan
    audit = find_label_issues(X, y, pred_proba=proba)
    assert len(audit.explanations.suspects) == len(audit.explanations.unusual) > 0
    nothing = find_label_issues(X[["constant", "empty"]], y, pred_proba=proba)
    assert (nothing.explanations.nearest == -1).all()


@pytest.mark.parametrize(
    "column",
    [
        [[1, 2], [3]] * 150,
        [{"a": 1}, None] * 150,
        [1e308, -1e308] * 150,
        pd.to_datetime(["2020-01-01", "2021-02-03"] * 150),
        [b"\0", "x"] * 150,
    ],
    ids=["lists", "dictionaries", "huge", "dates", "bytes"],
)
def test_features_that_no_model_reads_can_be_audited(column):
    """With probabilities, explanations of any table are possible; similar rows may be missing."""
    _, y, proba, _ = shapes()
    y = y.reset_index(drop=True)
    for X in (pd.DataFrame({"odd": column}), pd.DataFrame({"odd": column}).to_numpy()):
        audit = find_label_issues(X, y, pred_proba=proba)
        assert len(audit.explanations.suspects) == audit.table["flagged"].sum() > 0
        assert "labelled" in str(audit.explain(audit.suspects.index[0]))


def test_rows_that_are_not_suspect_are_refused(audit):
    """The message lists where suspects are; unknown rows are named."""
    with pytest.raises(InvalidInputError, match="one of the first 5,000 suspects; got 'r1', which is not"):
        audit.explain("r1")
    with pytest.raises(InvalidInputError, match="must be an entry of the index of the table; got 'none'"):
        audit.explain("none")


def test_many_pairs_use_a_sample_with_every_class(audit, monkeypatch):
    """If there are too many pairs, rows are sampled; each class keeps examples."""
    monkeypatch.setattr(_explanations, "MAX_PAIRS", 20 * len(audit.suspects))
    monkeypatch.setattr(_explanations, "MIN_PER_CLASS", 5)
    found = _explanations.explain_suspects(audit)
    assert (found.given_examples >= 0).all()
    assert (found.suggested_examples >= 0).all()
    assert len(np.unique(found.nearest)) <= 30


def test_three_classes_have_all_probabilities():
    """The probability of the suggestion is that of the table."""
    audit, _, _ = made_audit()
    found = audit.explanations
    places = pd.Index(audit.classes).get_indexer(audit.suspects["suggested"])
    assert found.probabilities[np.arange(len(places)), places] == pytest.approx(
        audit.suspects["p_suggested"].to_numpy()
    )


def test_a_changed_table_has_its_own_probabilities():
    """If flags or probabilities of the table change, explanations follow the table."""
    audit, _, _ = made_audit()
    table = audit.table.assign(flagged=True)
    changed = replace(audit, table=table)
    found = changed.explanations
    assert len(found.suspects) == 60
    assert found.probabilities.sum(axis=1) == pytest.approx(1.0)
    for row in (3, 40):
        why = changed.explain(row)
        assert why.probabilities[why.given] == pytest.approx(1.0 - why.p_error)
        assert why.probabilities[why.suggested] == pytest.approx(table["p_suggested"][row])


def test_words_of_free_text_that_are_unusual_for_the_label_are_named():
    """They are frequent with the suggested label and rare with the given one; shares exclude the row."""
    _, y, proba, wrong = shapes()
    rng = np.random.default_rng(0)
    words = np.array([["mouse", "ant", "bee"], ["whale", "bear", "elk"]])
    texts = [
        f"we {rng.choice(['saw', 'met'])} one {rng.choice(words[i % 2])} today and {i} more of them"
        for i in range(len(y))
    ]
    audit = find_label_issues(pd.DataFrame({"story": texts}, index=y.index), y, pred_proba=proba)
    found = [audit.explain(name) for name in audit.suspects.index if wrong[audit.table.index.get_loc(name)]]
    assert found
    for why in found:
        (value,) = why.unusual
        assert value.column == "word of story"
        assert value.value in words[["small", "large"].index(why.suggested)]
        assert value.comparison.endswith(f"with {why.suggested!r}")


def test_texts_without_common_words_have_no_unusual_ones():
    """Nothing is compared if no word occurs twice."""
    _, y, proba, _ = shapes()
    texts = [f"a{i} b{i} c{i} d{i}" for i in range(len(y))]
    audit = find_label_issues(pd.DataFrame({"story": texts}, index=y.index), y, pred_proba=proba)
    assert audit.explain(audit.suspects.index[0]).unusual == []
