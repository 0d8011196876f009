"""The aggregator: its model against plain loops, gold labels, copies, and labelled tables."""

import numpy as np
import pandas as pd
import pytest
from scipy.special import gammaln
from sklearn.exceptions import NotFittedError

from peerloss.crowd import LabelAggregator, aggregate_labels, dawid_skene
from peerloss.crowd._copies import copy_weights
from peerloss.crowd._report_matrix import ReportMatrix
from peerloss.crowd._shrunken_confusion import (
    ACCURACY_REPORTS,
    ROUNDS,
    STRENGTHS,
    VOTE_SMOOTHING,
    VOTE_WEIGHT,
    fit_shrunken,
)
from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError
from tests.crowd.crowds import coded, random_crowd


def shrink_to_one_coin(mass, k):
    """Shrink each worker's matrix of counts to one accuracy; the marginal likelihood chooses how much."""
    crowd = sum(np.trace(m) for m in mass.values()) / sum(m.sum() for m in mass.values())
    base = {}
    for w, m in mass.items():
        right = (np.trace(m) + ACCURACY_REPORTS * crowd) / (m.sum() + ACCURACY_REPORTS)
        base[w] = np.where(np.eye(k), right, (1 - right) / (k - 1))
    evidence = [
        sum(
            (gammaln(m + s * base[w]) - gammaln(s * base[w])).sum()
            - (gammaln(m.sum(axis=1) + s) - gammaln(s)).sum()
            for w, m in mass.items()
        )
        for s in STRENGTHS
    ]
    s = STRENGTHS[np.argmax(evidence)]
    return {w: (m + s * base[w]) / (m.sum(axis=1, keepdims=True) + s) for w, m in mass.items()}


def shrink_to_crowd(mass, _):
    """Add one report per true label, distributed like those of the crowd, to each worker's counts."""
    pooled = sum(mass.values())
    pooled = pooled / pooled.sum(axis=1, keepdims=True)
    return {w: (m + pooled) / (m.sum(axis=1, keepdims=True) + 1) for w, m in mass.items()}


def reference(frame, k=3):
    """Fit both models in plain loops over workers, labels and tasks."""
    tasks, workers = list(frame["task"].unique()), list(frame["worker"].unique())
    rows = list(frame.itertuples(index=False))
    votes = {t: np.zeros(k) for t in tasks}
    for r in rows:
        votes[r.task][r.label] += 1
    shares = sum(votes.values()) / len(rows)
    total = {
        t: VOTE_WEIGHT * (v + VOTE_SMOOTHING * shares) / (v.sum() + VOTE_SMOOTHING) for t, v in votes.items()
    }
    confusions = []
    for shrink in (shrink_to_one_coin, shrink_to_crowd):
        posterior = {t: v / v.sum() for t, v in votes.items()}
        for _ in range(ROUNDS):
            prior = sum(posterior.values()) / len(tasks)
            mass = {w: np.zeros((k, k)) for w in workers}  # true label × label
            for r in rows:
                mass[r.worker][:, r.label] += posterior[r.task]
            confusion = shrink(mass, k)
            posterior = {t: prior.copy() for t in tasks}
            for r in rows:
                posterior[r.task] *= confusion[r.worker][:, r.label]
            posterior = {t: p / p.sum() for t, p in posterior.items()}
        total = {t: total[t] + (1 - VOTE_WEIGHT) / 2 * posterior[t] for t in tasks}
        confusions.append(confusion)
    mean = {w: (confusions[0][w] + confusions[1][w]) / 2 for w in workers}
    return np.array([total[t] for t in tasks]), mean


@pytest.mark.parametrize("seed", range(4))
def test_the_model_equals_plain_loops(seed):
    """Probabilities and complete confusion matrices equal those of loops over reports."""
    frame = random_crowd(seed, n_tasks=25)
    probabilities, confusion = reference(frame)
    found = LabelAggregator(discount_copies=False).fit(frame)
    np.testing.assert_allclose(found.probas_, probabilities, rtol=1e-9, atol=1e-12)
    for worker, expected in confusion.items():
        np.testing.assert_allclose(found.confusion_matrix(worker), expected, rtol=1e-9)


@pytest.mark.parametrize("method", ["shrunken", "dawid_skene", "one_coin"])
def test_tables_have_names_and_sum_to_one(method):
    """Soft labels, priors and confusion matrices carry the names of tasks, labels and workers."""
    frame = random_crowd(1, n_tasks=30)
    frame = frame.assign(
        label=np.array(["cat", "dog", "owl"])[frame["label"]], worker="w" + frame["worker"].astype(str)
    )
    found = LabelAggregator(method=method).fit(frame)
    assert found.probas_.index.tolist() == frame["task"].unique().tolist()
    assert found.probas_.columns.tolist() == ["cat", "dog", "owl"]
    np.testing.assert_allclose(found.probas_.sum(axis=1), 1)
    assert (found.labels_ == found.probas_.idxmax(axis=1)).all()
    assert found.priors_.sum() == pytest.approx(1)
    errors = found.errors_
    assert errors.index.names == ["worker", "label"]
    for worker in frame["worker"].unique():
        table = found.confusion_matrix(worker)
        assert table.index.tolist() == table.columns.tolist() == ["cat", "dog", "owl"]
        np.testing.assert_allclose(table.sum(axis=1), 1)
        for label in errors.loc[worker].index:
            np.testing.assert_allclose(table[label], errors.loc[(worker, label)])


def test_labels_that_a_worker_never_gave_have_a_probability():
    """The confusion matrix of a worker with one label is complete: unseen labels share the rest."""
    frame = pd.concat([random_crowd(2), pd.DataFrame({"task": range(6), "worker": 99, "label": 1})])
    for method in ("shrunken", "dawid_skene", "one_coin"):
        table = LabelAggregator(method=method).fit(frame).confusion_matrix(99)
        np.testing.assert_allclose(table.sum(axis=1), 1)
        assert (table > 0).all(axis=None)


def test_one_coin_errors_are_equally_probable():
    """In the one-coin model the diagonal of a worker is constant, and so are the other entries."""
    table = LabelAggregator(method="one_coin").fit(random_crowd(0, n_tasks=30)).confusion_matrix(0).to_numpy()
    np.testing.assert_allclose(np.diag(table), table[0, 0])
    np.testing.assert_allclose(table[~np.eye(3, dtype=bool)], table[0, 1])


def test_methods_of_crowdkit_users_return_the_fitted_attributes():
    """`fit_predict` and `fit_predict_proba` return labels and probabilities by task."""
    frame = random_crowd(3)
    found = LabelAggregator().fit(frame)
    pd.testing.assert_series_equal(LabelAggregator().fit_predict(frame), found.labels_)
    pd.testing.assert_frame_equal(LabelAggregator().fit_predict_proba(frame), found.probas_)
    assert found.labels_.name == "agg_label"
    table = aggregate_labels(found)
    pd.testing.assert_frame_equal(table, aggregate_labels(frame))
    np.testing.assert_array_equal(table["probability"], found.probas_.max(axis=1))


@pytest.mark.parametrize("seed", range(3))
def test_names_and_order_do_not_matter(seed):
    """Renamed labels and shuffled rows give the same probabilities."""
    frame = random_crowd(seed, n_tasks=30)
    names = np.random.default_rng(seed).permutation(3)
    other = frame.assign(label=names[frame["label"]]).sample(frac=1, random_state=seed)
    left = LabelAggregator().fit_predict_proba(frame).set_axis(names, axis=1)
    right = LabelAggregator().fit_predict_proba(other)
    np.testing.assert_allclose(left.loc[right.index, right.columns], right, atol=1e-9)


@pytest.mark.parametrize("method", ["shrunken", "dawid_skene", "one_coin"])
def test_gold_labels_are_certain_and_inform_the_confusion_matrices(method):
    """Gold tasks have probability 1, and a worker who agrees with them is estimated to be better."""
    frame = random_crowd(4, n_tasks=40)
    mine = frame[frame["worker"] == 2].set_index("task")["label"]
    found = LabelAggregator(method=method).fit(frame, gold=mine)
    assert (found.labels_[mine.index] == mine).all()
    assert (found.probas_.loc[mine.index].max(axis=1) == 1).all()
    before = np.diag(LabelAggregator(method=method).fit(frame).confusion_matrix(2)).mean()
    assert np.diag(found.confusion_matrix(2)).mean() > before


def test_gold_labels_of_large_tables_are_fixed_in_every_block(monkeypatch):
    """The result with gold labels does not depend on the size of the blocks in memory."""
    frame = random_crowd(1, n_tasks=40)
    gold = dict.fromkeys(frame["task"].unique()[::5], 0)
    one_block = dawid_skene(frame, gold=gold).probabilities
    monkeypatch.setattr("peerloss.crowd._report_matrix.BLOCK", 7)
    np.testing.assert_array_equal(dawid_skene(frame, gold=gold).probabilities, one_block)


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ([1, 2], "`gold` must be a Series whose index holds the tasks, or a dictionary .*; got list"),
        ({0: 7}, r"`gold` must hold labels that a worker gave, \[0, 1, 2\]; 7 is not one"),
        ({"0": 1}, "`gold` must name tasks of the reports, such as .*; '0' is not one"),
        (pd.Series([0, 1], index=[3, 3]), "`gold` must have one label per task; task 3 has several"),
    ],
)
def test_refuses_gold_labels_that_do_not_match(gold, message):
    """The message names what is wrong with the gold labels."""
    with pytest.raises(InvalidInputError, match=message):
        LabelAggregator().fit(random_crowd(0), gold=gold)


def test_missing_gold_labels_are_ignored():
    """A missing gold label is as if the task were not listed, and no gold label changes nothing."""
    frame = random_crowd(0)
    plain = LabelAggregator().fit_predict_proba(frame)
    pd.testing.assert_frame_equal(
        LabelAggregator().fit_predict_proba(frame, gold={0: None, 1: np.nan}), plain
    )
    pd.testing.assert_frame_equal(LabelAggregator().fit_predict_proba(frame, gold={}), plain)


def with_copies(rng, n_copies=5):
    """Nine workers of accuracy .7, and copies of one opinion that is a guess."""
    truth, opinion = rng.integers(3, size=300), rng.integers(3, size=300)
    rows = [
        pd.DataFrame(
            {
                "task": np.arange(300),
                "worker": f"w{w}",
                "label": np.where(rng.random(300) < 0.7, truth, rng.integers(3, size=300)),
            }
        )
        for w in range(9)
    ]
    rows += [
        pd.DataFrame({"task": np.arange(300), "worker": f"c{i}", "label": opinion}) for i in range(n_copies)
    ]
    return pd.concat(rows, ignore_index=True), truth


def test_copies_of_one_opinion_count_once():
    """The copies of an answer share the weight of one report, and the votes count them once."""
    frame, _ = with_copies(np.random.default_rng(0))
    reports = coded(frame)
    weights = copy_weights(reports)
    copies = frame["worker"].str.startswith("c").to_numpy()
    np.testing.assert_allclose(weights[copies], 1 / 5)
    np.testing.assert_array_equal(weights[~copies], 1)
    np.testing.assert_allclose(ReportMatrix(reports, weights=weights).votes.sum(axis=1), 10)


def test_copies_do_not_outvote_independent_workers():
    """Against nine copies of a guess, discounting them makes more labels right."""
    frame, truth = with_copies(np.random.default_rng(1), n_copies=9)
    right = {
        discount: (LabelAggregator(discount_copies=discount).fit_predict(frame) == truth).mean()
        for discount in (True, False)
    }
    assert right[True] > 0.95
    assert right[True] >= right[False]


def test_without_copiers_every_report_counts():
    """Independent workers have no weights."""
    assert copy_weights(coded(random_crowd(0, n_tasks=60))) is None


def test_a_rare_label_keeps_a_small_prior():
    """A label with .4 % of the votes is not estimated to be frequent."""
    rng = np.random.default_rng(4)
    truth = rng.integers(3, size=400)
    task = np.repeat(np.arange(400), 3)
    worker = rng.integers(300, size=1200)
    label = np.where(rng.random(1200) < 0.7, truth[task], rng.integers(3, size=1200))
    label[rng.choice(1200, 5, replace=False)] = 3
    frame = pd.DataFrame({"task": task, "worker": worker, "label": label}).drop_duplicates(["task", "worker"])
    assert LabelAggregator().fit(frame).priors_[3] < 0.02


def test_warns_of_a_class_that_is_far_more_frequent_than_its_votes():
    """The warning names the label, its share of the votes and its estimated frequency."""
    matrix = ReportMatrix(coded(pd.DataFrame({"task": range(100), "worker": 0, "label": [1] + [0] * 99})))
    with pytest.warns(IdentifiabilityWarning, match=r"Label 1 has 1.0% of the votes, .* 14.0% of"):
        matrix.warn_of_inflated_classes(np.array([0.86, 0.14]))
    matrix.warn_of_inflated_classes(np.array([0.96, 0.04]))  # no warning


def test_probabilities_are_less_extreme_than_those_of_dawid_skene():
    """If workers err together, the log loss is smaller than that of Dawid–Skene on the same crowd."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=200)
    seen = np.where(rng.random(200) < 0.15, rng.integers(3, size=200), truth)  # what all workers see
    labels = np.where(rng.random((8, 200)) < 0.8, seen, rng.integers(3, size=(8, 200)))
    worker, task = np.indices(labels.shape)
    frame = pd.DataFrame({"task": task.ravel(), "worker": worker.ravel(), "label": labels.ravel()})
    loss = {}
    for method in ("shrunken", "dawid_skene"):
        table = LabelAggregator(method=method).fit_predict_proba(frame).to_numpy()
        loss[method] = -np.log(np.maximum(table[np.arange(200), truth], 1e-12)).mean()
    assert loss["shrunken"] < 0.7 * loss["dawid_skene"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "vote"}, "`method` must be one of 'shrunken', 'dawid_skene', 'one_coin'"),
        ({"discount_copies": "yes"}, "`discount_copies` must be"),
        ({"duplicates": "all"}, "`duplicates` must be one of"),
    ],
)
def test_refuses_unknown_options(options, message):
    """Each message names the argument."""
    with pytest.raises(InvalidInputError, match=message):
        LabelAggregator(**options).fit(random_crowd(0))


def test_refuses_use_before_fit_and_unknown_workers():
    """Tables need a fit, and a confusion matrix needs a worker with a report."""
    with pytest.raises(NotFittedError, match="Call `fit`"):
        LabelAggregator().confusion_matrix("ann")
    found = LabelAggregator().fit(random_crowd(0))
    with pytest.raises(InvalidInputError, match="`worker` must have given a label; got 'zoe'"):
        found.confusion_matrix("zoe")
    with pytest.raises(InvalidInputError, match="`gold` must be passed when the model is fitted"):
        aggregate_labels(found, gold={0: 1})


def test_the_strength_is_chosen_with_some_of_many_workers(monkeypatch):
    """With a limit on the number of workers the model is still fitted, and its probabilities sum to one."""
    monkeypatch.setattr("peerloss.crowd._shrunken_confusion.MAX_WORKERS", 2)
    found = fit_shrunken(ReportMatrix(coded(random_crowd(0, n_tasks=40))))
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
