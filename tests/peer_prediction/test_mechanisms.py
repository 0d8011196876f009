"""The mechanisms against plain loops."""

import math
import tracemalloc
from collections import Counter
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import (
    Reports,
    correlated_agreement,
    estimate_joint,
    logarithmic_score,
    plain_agreement,
    quadratic_score,
    shared_reports,
)

FEW = settings(deadline=None, max_examples=40)
SCORERS = [correlated_agreement, quadratic_score, logarithmic_score, plain_agreement]


@st.composite
def tables(draw):
    """Draw up to 6 tasks, 5 workers and 3 labels with missing answers and at least one shared task."""
    pairs = [(task, f"w{worker}") for task in range(6) for worker in range(5)]
    order = draw(st.permutations(pairs))
    labels = draw(st.lists(st.sampled_from([None, 0, 1, 2]), min_size=30, max_size=30))
    rows = [(*pair, label) for pair, label in zip(order, labels, strict=True)]
    answers = [row for row in rows if row[2] is not None]
    assume(len({label for *_, label in answers}) > 1)
    assume(max(Counter(task for task, *_ in answers).values()) > 1)
    return rows


def joint_by_loops(rows):
    """Pool ordered pairs of different workers on one task, in fractions."""
    answers = [row for row in rows if row[2] is not None]
    labels = sorted({label for *_, label in answers})
    pairs = Counter(
        (labels.index(own), labels.index(theirs))
        for task, worker, own in answers
        for other_task, other, theirs in answers
        if task == other_task and worker != other
    )
    total = sum(pairs.values())
    return [[Fraction(pairs[k, m], total) for m in range(len(labels))] for k in range(len(labels))]


def signs_by_loops(rows, *, without):
    """Return Sgn(Σ_{a≠b} Σ_t x_at x_btᵀ) over the pairs of other workers, in fractions.

    x_at is the one-hot report of a worker minus its own label frequencies over its shared tasks. Without two
    others on one task who both vary, this is the identity.
    """
    answers = [row for row in rows if row[2] is not None]
    labels = sorted({label for *_, label in answers})
    per_task = Counter(task for task, *_ in answers)
    own = {worker: Counter() for _, worker, _ in answers}
    for task, worker, label in answers:
        own[worker][label] += per_task[task] > 1
    k = range(len(labels))
    total, n_informative = [[Fraction(0) for _ in k] for _ in k], 0
    for task, worker, label in answers:
        for other_task, other, theirs in answers:
            if task != other_task or worker == other or without in (worker, other):
                continue
            centred = [
                [(y == name) - Fraction(own[who][name], own[who].total()) for name in labels]
                for who, y in ((worker, label), (other, theirs))
            ]
            n_informative += all(any(x) for x in centred)
            total = [[total[i][j] + centred[0][i] * centred[1][j] for j in k] for i in k]
    if not n_informative:
        return [[int(i == j) for j in k] for i in k]
    return [[int(total[i][j] > 0) for j in k] for i in k]


def scores_by_loops(rows, score, *, ca):
    """Average the score matrix by loops over workers, tasks, peers and, for CA, pairs of distinct tasks."""
    answers = [row for row in rows if row[2] is not None]
    labels = sorted({label for *_, label in answers})
    result = {}
    for worker in dict.fromkeys(row[1] for row in rows):
        own, peers = [], []
        for task in range(6):
            mine = [labels.index(y) for t, w, y in answers if t == task and w == worker]
            theirs = [labels.index(y) for t, w, y in answers if t == task and w != worker]
            if mine and theirs:
                own += mine
                peers.append(theirs)
        n = len(own)
        pays = [[sum(score[o][t] for t in theirs) / len(theirs) for theirs in peers] for o in own]
        if n <= ca:
            result[worker] = (math.nan, n)
            continue
        value = sum(pays[i][i] for i in range(n)) / n
        if ca:
            value -= sum(pays[i][j] for i in range(n) for j in range(n) if i != j) / (n * (n - 1))
        result[worker] = (value, n)
    return result


def assert_same(frame, reference):
    """Compare a scorer's frame with the reference to 1e-12, order of workers included."""
    assert list(frame.index) == list(reference)
    assert frame.index.name == "worker"
    assert list(frame.columns) == ["score", "n_tasks"]
    np.testing.assert_allclose(frame["score"], [v for v, _ in reference.values()], rtol=0, atol=1e-12)
    assert frame["n_tasks"].tolist() == [n for _, n in reference.values()]


@FEW
@given(tables())
def test_joint_is_that_of_all_pairs(rows):
    """The joint pools all ordered pairs of different workers on one task with equal weight."""
    np.testing.assert_allclose(estimate_joint(rows), np.array(joint_by_loops(rows), dtype=float), atol=1e-15)


@FEW
@given(tables())
def test_ca_is_the_mean_over_distinct_tasks(rows):
    """CA is the mean of bonus minus penalty over peers and all n₁ ≠ n₂, with Sgn(Δ) of the others' reports.

    Δ is the sum over the pairs of other workers, each with its own marginals.
    """
    reference = {}
    for worker in dict.fromkeys(row[1] for row in rows):
        signs = signs_by_loops(rows, without=worker)
        reference[worker] = scores_by_loops(rows, signs, ca=True)[worker]
    assert_same(correlated_agreement(rows), reference)


@FEW
@given(tables(), st.lists(st.integers(-2, 2), min_size=9, max_size=9))
def test_ca_with_delta_given(rows, entries):
    """Any Δ, symmetric or not, is used by its sign; rows are own reports, columns the peer's."""
    delta = np.array(entries, dtype=float).reshape(3, 3)
    reports = Reports.from_table(rows)
    delta = delta[: len(reports.labels), : len(reports.labels)]
    assert_same(
        correlated_agreement(reports, delta=delta), scores_by_loops(rows, (delta > 0).tolist(), ca=True)
    )


@FEW
@given(tables(), st.booleans(), st.lists(st.integers(1, 5), min_size=9, max_size=9))
def test_quadratic_and_logarithmic_are_means_over_peers(rows, estimated, weights):
    """Both rules average their matrix over the peers on each task, for an estimated and a given joint."""
    reports = Reports.from_table(rows)
    k = len(reports.labels)
    if estimated:
        joint = np.array(joint_by_loops(rows), dtype=float)
    else:
        joint = np.array(weights, dtype=float).reshape(3, 3)[:k, :k]
        joint /= joint.sum()
    quadratic, logarithmic = np.zeros((k, k)), np.zeros((k, k))
    for i in range(k):
        for j in range(k):
            if joint[i].sum() > 0:
                given_i = joint[i] / joint[i].sum()
                quadratic[i, j] = 2 * given_i[j] - sum(p * p for p in given_i)
                logarithmic[i, j] = math.log(given_i[j]) if given_i[j] > 0 else 0.0
    argument = None if estimated else joint
    assert_same(quadratic_score(reports, joint=argument), scores_by_loops(rows, quadratic, ca=False))
    assert_same(logarithmic_score(reports, joint=argument), scores_by_loops(rows, logarithmic, ca=False))


@FEW
@given(tables())
def test_plain_agreement_counts_equal_labels(rows):
    """Plain agreement is the share of peers with the same label."""
    k = len(Reports.from_table(rows).labels)
    assert_same(plain_agreement(rows), scores_by_loops(rows, np.eye(k), ca=False))


@FEW
@given(tables(), st.integers(1, 7))
def test_chunks_do_not_change_scores(rows, chunk):
    """Scores do not depend on the number of pairs and workers in memory at once."""
    one_chunk = correlated_agreement(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shared_reports, "CHUNK", chunk)
        pd.testing.assert_frame_equal(correlated_agreement(rows), one_chunk, rtol=0, atol=1e-12)


@FEW
@given(tables(), st.sampled_from([0, 1, 2]), st.randoms(use_true_random=False))
def test_constant_reporters_score_exactly_zero(rows, label, random):
    """A worker who always gives the same label scores 0.0 under CA, whatever the others do."""
    spammer = [(task, "spam", label) for task in range(6)]
    table = rows + spammer
    random.shuffle(table)
    row = correlated_agreement(table).loc["spam"]
    assert row["score"] == 0.0 if row["n_tasks"] > 1 else math.isnan(row["score"])


@FEW
@given(tables(), st.permutations(range(3)))
def test_ca_follows_a_common_permutation(rows, permutation):
    """If all workers permute labels in the same way, Sgn(Δ̂) is permuted too and scores do not change."""
    swapped = [(task, worker, None if y is None else permutation[y]) for task, worker, y in rows]
    before, after = correlated_agreement(rows), correlated_agreement(swapped)
    pd.testing.assert_frame_equal(before, after, rtol=0, atol=1e-12)


@FEW
@given(tables(), st.randoms(use_true_random=False))
def test_row_order_changes_only_the_order(rows, random):
    """Shuffling the table does not change any worker's score."""
    shuffled = list(rows)
    random.shuffle(shuffled)
    before = correlated_agreement(rows)
    pd.testing.assert_frame_equal(
        correlated_agreement(shuffled).loc[before.index], before, rtol=0, atol=1e-12
    )


def test_string_labels_and_item_column():
    """String labels in a frame with an item column give the same scores as codes."""
    rows = [(task, worker, (task * worker) % 3) for task in range(6) for worker in range(1, 4)]
    frame = pd.DataFrame(rows, columns=["item", "worker", "label"])
    named = frame.assign(label=frame["label"].map({0: "ant", 1: "bee", 2: "cat"}))
    for scorer in SCORERS:
        pd.testing.assert_frame_equal(scorer(named), scorer(rows))


def test_lone_workers_are_nan():
    """CA is nan with fewer than two shared tasks, every score without any; other workers are scored."""
    rows = [(t, w, (t + w) % 2) for t in range(4) for w in (0, 1)]
    rows += [(0, "once", 1), (99, "alone", 0), (98, "silent", None)]
    ca, plain = correlated_agreement(rows), plain_agreement(rows)
    assert ca["score"].isna().tolist() == [False, False, True, True, True]
    assert plain["score"].isna().tolist() == [False, False, False, True, True]
    assert ca["n_tasks"].tolist() == [4, 4, 1, 0, 0]


@pytest.mark.parametrize("scorer", [*SCORERS, estimate_joint])
def test_no_shared_task_is_refused(scorer):
    """Without a task answered by two workers there is nothing to compare; the message explains it."""
    with pytest.raises(InvalidInputError, match="`reports` must have a task with labels of two workers"):
        scorer([(0, "a", 0), (1, "b", 1)])


def test_too_many_labels_are_refused(monkeypatch):
    """A table whose labels are ids is refused before a huge matrix is allocated."""
    monkeypatch.setattr(shared_reports, "MAX_LABELS", 2)
    with pytest.raises(InvalidInputError, match="`reports` must have at most 2 different labels; got 3"):
        plain_agreement([(0, "a", 0), (0, "b", 1), (0, "c", 2)])


TABLE = [(0, "a", 0), (0, "b", 1), (1, "a", 0), (1, "b", 0)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: correlated_agreement(TABLE, delta=np.eye(3)),
            r"`delta` must be 2×2.*0, 1; got shape \(3, 3\)",
        ),
        (lambda: correlated_agreement(TABLE, delta=[[0, np.nan], [0, 0]]), "`delta` must be finite"),
        (lambda: correlated_agreement(TABLE, delta=[1.0]), "`delta` must have 2 dimension"),
        (lambda: quadratic_score(TABLE, joint=np.full((3, 3), 1 / 9)), "`joint` must be 2×2"),
        (lambda: quadratic_score(TABLE, joint=np.eye(2)), "`joint`.*sum to 1"),
        (lambda: quadratic_score(TABLE, joint=[[0.5, 0.5], [0, 0]]), "`joint`.*label 1 has none"),
        (lambda: logarithmic_score(TABLE, joint=np.full((3, 3), 1 / 9)), "`joint` must be 2×2"),
        (lambda: logarithmic_score(TABLE, joint=[[0.5, 0], [0, 0.5]]), "`joint`.*own 0 with peer 1 has none"),
    ],
)
def test_bad_matrices_are_refused(call, message):
    """The message names the matrix with wrong shape, values or support."""
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_memory_stays_linear_with_many_labels():
    """With many labels and tasks, peak memory stays well below that of a table of tasks by labels."""
    rng = np.random.default_rng(0)
    n_tasks, k = 20_000, 300
    frame = pd.DataFrame(
        {
            "task": np.repeat(np.arange(n_tasks), 3),
            "worker": np.tile(np.arange(3), n_tasks),
            "label": rng.integers(k, size=3 * n_tasks),
        }
    )
    tracemalloc.start()
    correlated_agreement(frame)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < n_tasks * k * 8 / 1.5
