"""Theorem 1 and informed truthfulness: exactly by enumeration, then with simulated workers."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from peerloss.noise import NoiseModel
from peerloss.peer_prediction import (
    Reports,
    constant,
    correlated_agreement,
    expected_ca_score,
    expected_score,
    logarithmic_matrix,
    majority_guess,
    permuted,
    plain_agreement,
    quadratic_matrix,
    random_guess,
    simulate_reports,
    truthful,
)
from peerloss.theory import delta_matrix, is_categorical, is_stochastically_relevant, sign_matrix

FEW = settings(deadline=None, max_examples=40)
MECHANISMS = {
    "ca": lambda truth, reported: expected_ca_score(sign_matrix(delta_matrix(truth)), reported),
    "quadratic": lambda truth, reported: expected_score(quadratic_matrix(truth), reported),
    "logarithmic": lambda truth, reported: expected_score(logarithmic_matrix(truth), reported),
}
GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
#: Report 1 with probability b if f* = 0 and a if f* = 1: the paper's F_report, including its corners.
BINARY_REPORTS = [np.array([[1 - b, b], [1 - a, a]]) for a in GRID for b in GRID]


@st.composite
def bayes_problems(draw):
    """Draw P(x, y) on at most five points and binary noise with Σe < 1; return the joint of f*(X) and Ỹ."""
    n = draw(st.integers(2, 5))
    weights = draw(st.lists(st.integers(0, 20), min_size=2 * n, max_size=2 * n))
    assume(sum(weights) > 0)
    p_xy = np.reshape(weights, (n, 2)) / sum(weights)
    e_neg = draw(st.integers(0, 18))
    e_pos = draw(st.integers(0, 18 - e_neg))
    noise = NoiseModel.binary(e_neg / 20, e_pos / 20)
    bayes = (np.reshape(weights, (n, 2)) @ [-1, 1] > 0).astype(int)
    return np.eye(2)[bayes].T @ p_xy @ noise.transition


def deterministic_maps(k):
    """Return all k^k maps from signal to report, as matrices, the identity first."""
    maps = [np.eye(k)[list(image)] for image in itertools.product(range(k), repeat=k)]
    return sorted(maps, key=lambda m: not np.array_equal(m, np.eye(k)))


@pytest.mark.parametrize("name", MECHANISMS)
@FEW
@given(joint=bayes_problems())
def test_theorem_1(name, joint):
    """The Bayes classifier's truthful report scores highest on average, strictly unless it is constant."""
    score = MECHANISMS[name]
    truth = score(joint, joint)
    constant_bayes = (joint.sum(axis=1) == 0).any()
    assert is_stochastically_relevant(joint) != constant_bayes
    for report in BINARY_REPORTS:
        other = score(joint, report.T @ joint)
        assert truth >= other - 1e-12
        if not constant_bayes and not np.array_equal(report, np.eye(2)):
            assert truth > other + 1e-13


@FEW
@given(joint=bayes_problems())
def test_noisy_labels_are_categorical(joint):
    """With Σe < 1 and f* not constant, Sgn(Δ) = I (Lemma: Ỹ and f* are categorical), so CA is peer loss."""
    assume((joint.sum(axis=1) > 0).all())
    assert is_categorical(joint)
    np.testing.assert_array_equal(sign_matrix(delta_matrix(joint)), np.eye(2))


joints = st.lists(st.integers(1, 9), min_size=9, max_size=9).map(lambda w: np.reshape(w, (3, 3)))


@pytest.mark.parametrize("name", ["quadratic", "logarithmic"])
@FEW
@given(counts=joints)
def test_three_signals_proper_rules(name, counts):
    """Truth beats all 26 other maps, strictly if they report a signal with another conditional."""
    joint = counts / counts.sum()
    truth = MECHANISMS[name](joint, joint)
    for report in deterministic_maps(3)[1:]:
        other = MECHANISMS[name](joint, report.T @ joint)
        claimed = counts[report.argmax(axis=1)]  # the row of the reported signal
        changes = (
            counts * claimed.sum(axis=1, keepdims=True) != claimed * counts.sum(axis=1, keepdims=True)
        ).any()
        assert changes or not is_stochastically_relevant(joint)
        if changes:
            assert truth > other + 1e-13
        else:
            assert truth == pytest.approx(other, abs=1e-12)


@FEW
@given(counts=joints, mixed=joints)
def test_three_signals_ca_is_informed_truthful(counts, mixed):
    """For any joint, no map and no mixed report scores more than truth under CA."""
    joint = counts / counts.sum()
    truth = MECHANISMS["ca"](joint, joint)
    for report in [*deterministic_maps(3), mixed / mixed.sum(axis=1, keepdims=True)]:
        assert truth >= MECHANISMS["ca"](joint, report.T @ joint) - 1e-12


@FEW
@given(weights=st.lists(st.integers(1, 9), min_size=3, max_size=3), strength=st.integers(1, 10))
def test_three_categorical_signals_ca_is_strict(weights, strength):
    """If every other label is less probable than by chance (categorical), truth strictly beats every map."""
    prior = np.array(weights) / sum(weights)
    mix = strength / 10
    joint = mix * np.diag(prior) + (1 - mix) * np.outer(prior, prior)
    assert is_categorical(joint)
    truth = MECHANISMS["ca"](joint, joint)
    for report in deterministic_maps(3)[1:]:
        assert truth > MECHANISMS["ca"](joint, report.T @ joint) + 1e-13


@pytest.mark.parametrize("name", MECHANISMS)
def test_without_stochastic_relevance_all_reports_tie(name):
    """If the peer's label is independent of the own signal, every report scores the same."""
    joint = np.outer([0.5, 0.25, 0.25], [0.25, 0.5, 0.25])
    assert not is_stochastically_relevant(joint)
    truth = MECHANISMS[name](joint, joint)
    for report in deterministic_maps(3):
        assert MECHANISMS[name](joint, report.T @ joint) == pytest.approx(truth, abs=1e-14)


CASES = {
    "binary": (NoiseModel.binary(0.1, 0.3), [0.8, 0.2], [1, 0]),
    "three": (NoiseModel.uniform(3, 0.3), [0.5, 0.3, 0.2], [1, 2, 0]),
}


@pytest.fixture(params=CASES)
def crowd(request):
    """Return the reports of eight honest workers and one of each other strategy, and Δ."""
    noise, prior, permutation = CASES[request.param]
    honest = {f"honest {i}": truthful(noise) for i in range(8)}
    others = {
        "constant": constant(1),
        "majority": majority_guess(noise, prior),
        "random": random_guess(noise.noisy_prior(prior)),
        "permuted": permuted(noise, permutation),
    }
    table = simulate_reports(2000, honest | others, clean_prior=prior, random_state=1)
    joint = noise.transition.T @ np.diag(prior) @ noise.transition
    return table, delta_matrix(joint)


@pytest.mark.parametrize("estimated", [False, True])
def test_truth_beats_every_other_strategy(crowd, estimated):
    """Among honest workers each honest one scores above constant, random, majority and permuted reports."""
    table, delta = crowd
    scores = correlated_agreement(table, delta=None if estimated else delta)["score"]
    honest = scores[scores.index.str.startswith("honest")]
    assert honest.min() > scores.drop(honest.index).max()
    assert scores["constant"] == 0.0
    assert scores["majority"] == 0.0
    # A mean of 2000 terms in [−1, 1]: five standard errors at most.
    assert abs(scores["random"]) < 5 / np.sqrt(2000)


#: Labels 0 and 1 are confused more often than by chance: Sgn(Δ) ≠ I, and swapping 1 and 2 changes it.
CONFUSED = NoiseModel([[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.05, 0.05, 0.9]])


@pytest.mark.parametrize(
    ("noise", "permutation", "strict"),
    [
        (NoiseModel.binary(0.1, 0.3), [1, 0], False),
        (NoiseModel.uniform(3, 0.3), [1, 2, 0], False),
        (CONFUSED, [0, 2, 1], True),
        (CONFUSED, [1, 0, 2], False),
    ],
)
def test_common_permutation(noise, permutation, strict):
    """A common permutation equals truth if Δ is estimated, and is worse if Δ is given and Sgn(Δ) changes."""
    prior = np.full(noise.n_classes, 1 / noise.n_classes)
    delta = delta_matrix(noise.transition.T @ np.diag(prior) @ noise.transition)
    truth = simulate_reports(
        2000, {f"w{i}": truthful(noise) for i in range(8)}, clean_prior=prior, random_state=2
    )
    lie = simulate_reports(
        2000, {f"w{i}": permuted(noise, permutation) for i in range(8)}, clean_prior=prior, random_state=2
    )
    assert lie["label"].tolist() == [permutation[y] for y in truth["label"]]
    honest, given = correlated_agreement(truth, delta=delta), correlated_agreement(lie, delta=delta)
    if strict:
        assert (honest["score"] > given["score"]).all()
    else:
        np.testing.assert_allclose(honest["score"], given["score"], rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        correlated_agreement(truth)["score"], correlated_agreement(lie)["score"], rtol=0, atol=1e-12
    )


def test_plain_agreement_is_not_truthful():
    """If one label is common, plain agreement pays more for the majority guess than for honest work."""
    noise = NoiseModel.binary(0.1, 0.3)
    workers = {f"honest {i}": truthful(noise) for i in range(8)} | {"lazy": majority_guess(noise, 0.05)}
    reports = Reports.from_table(simulate_reports(3000, workers, clean_prior=0.05, random_state=0))
    plain, ca = plain_agreement(reports)["score"], correlated_agreement(reports)["score"]
    assert plain["lazy"] > plain.drop("lazy").max()
    assert ca["lazy"] < ca.drop("lazy").min()


#: Numbers of labels and tasks for which all tables of three workers can be enumerated.
SMALL_CASES = [(2, 3), (3, 2)]


@pytest.fixture(scope="module", params=SMALL_CASES, ids=["two labels", "three labels"])
def every_table(request):
    """Return all tables of two others and a worker, (tables, workers, tasks), and this worker's CA score."""
    k, n_tasks = request.param
    answers = np.array(list(itertools.product(range(k), repeat=3 * n_tasks))).reshape(-1, 3, n_tasks)
    known = {}
    for table in answers.tolist():
        tasks = as_multiset(table)
        if tasks not in known:
            rows = [(task, who, label) for task, row in enumerate(tasks) for who, label in enumerate(row)]
            same = len({label for *_, label in rows}) == 1  # refused as a table; constant reports score 0
            known[tasks] = 0.0 if same else correlated_agreement(rows)["score"].to_numpy()[2]
    return answers, np.array([known[as_multiset(table)] for table in answers.tolist()])


def as_multiset(table):
    """Ignore the order of the tasks, and the order of the two others on a task."""
    return tuple(sorted((min(a, b), max(a, b), own) for a, b, own in zip(*table, strict=True)))


def expected_scores(every_table, prior, others, own):
    """Return E[score] by summing over all tables, where ``own[z, l]`` is P(worker reports l | clean = z)."""
    answers, scores = every_table
    p_table = np.zeros(len(answers))
    for z in map(np.array, itertools.product(range(len(prior)), repeat=answers.shape[2])):
        by_worker = [others.transition, others.transition, np.asarray(own)]
        factors = [matrix[z, answers[:, w]] for w, matrix in enumerate(by_worker)]
        p_table += np.prod(prior[z]) * np.prod(factors, axis=(0, 2))
    assert p_table.sum() == pytest.approx(1.0)
    return float(p_table @ scores)


@pytest.mark.parametrize("seed", range(20))
def test_with_delta_estimated_guessing_scores_exactly_zero_in_expectation(every_table, seed):
    """By enumeration of all reports, guessing has an expected score of 0, and honest work more.

    Sgn(Δ) is estimated from the others' reports. If the worker's own were included, guessing would pay.
    """
    rng = np.random.default_rng(seed)
    k = int(every_table[0].max()) + 1
    prior = rng.dirichlet(np.full(k, 2.0))
    noise = rng.dirichlet(np.ones(k), size=k)
    others = NoiseModel(0.6 * np.eye(k) + 0.4 * noise)
    honest = expected_scores(every_table, prior, others, others.transition)
    assert honest > 1e-6
    for guess in (*np.eye(k), np.full(k, 1 / k), rng.dirichlet(np.ones(k)), others.noisy_prior(prior)):
        assert expected_scores(every_table, prior, others, [guess] * k) == pytest.approx(0.0, abs=1e-14)
    if k == 2:
        # The expectation is linear in P(report 1 | see 1) − P(report 1 | see 0), so truth is the best report.
        swapped = expected_scores(every_table, prior, others, others.transition[:, ::-1])
        assert swapped == pytest.approx(-honest, abs=1e-14)
