"""The test of class-conditional noise from several labels per row."""

from itertools import product

import numpy as np
import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.noise import InstanceNoise, NoiseModel, flip_labels
from peerloss.posterior import check_row_noise, report_agreement, row_rates_from_annotators
from peerloss.posterior.report_agreement import cauchy_combination, count_votes, pair_shares


def distribution(k, seed, points=30):
    """Return P(clean | x) at some points, and a transition matrix."""
    rng = np.random.default_rng(seed)
    return rng.dirichlet(np.ones(k), size=points), 0.6 * np.eye(k) + 0.4 * rng.dirichlet(np.ones(k), size=k)


def nonlinearity(single, pairs):
    """Return the largest residual of the linear regression of pair probabilities on single ones."""
    return np.abs(pairs - single @ np.linalg.lstsq(single, pairs, rcond=None)[0]).max()


def matrices(k, seed=0, n=600):
    """Return features, clean labels of overlapping classes, and their log-probabilities."""
    rng = np.random.default_rng(seed)
    means = 1.5 * np.eye(k, 4)
    y = rng.integers(k, size=n)
    X = rng.normal(size=(n, 4)) + means[y]
    return X, y, -((X[:, None] - means) ** 2).sum(axis=2) / 2


def drawn(y, noise, seed, labels=2):
    return np.stack([flip_labels(y, noise, random_state=1000 * seed + i) for i in range(labels)], axis=1)


@pytest.mark.parametrize("k", [2, 3, 5])
@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_linear_in_single_labels_only_under_class_conditional_noise(k, seed):
    """By enumeration: exactly linear for every P(clean | x) if T is constant, and not if T depends on x."""
    eta, transition = distribution(k, seed)
    single, pairs = eta @ transition, np.einsum("nk,ka,kb->nab", eta, transition, transition)
    assert nonlinearity(single, pairs.reshape(len(eta), -1)) < 1e-12
    share = np.linspace(0, 0.5, len(eta))[:, None, None]
    by_row = (1 - share) * transition + share / k
    single, pairs = np.einsum("nk,nka->na", eta, by_row), np.einsum("nk,nka,nkb->nab", eta, by_row, by_row)
    assert nonlinearity(single, pairs.reshape(len(eta), -1)) > 1e-3


def test_one_label_per_row_has_the_same_distribution_in_two_worlds():
    """Noise near the boundary of separate classes, and overlapping classes without noise: P(x, label) agree.

    With two labels per row, the two worlds differ: two correct labels of a row are always equal.
    """
    clean = np.eye(2)[[0, 0, 1, 1]]
    rates = np.array([0.05, 0.45, 0.45, 0.05])
    by_row = np.eye(2) + rates[:, None, None] * (1 - 2 * np.eye(2))
    first_world = np.einsum("nk,nka->na", clean, by_row)
    eta, transition = first_world, np.eye(2)
    assert np.array_equal(eta @ transition, first_world)
    disagree = [2 * rates * (1 - rates), np.zeros(4)]
    pairs = np.einsum("nk,nka,nkb->nab", clean, by_row, by_row)
    overlap = np.einsum("nk,ka,kb->nab", eta, transition, transition)
    for table, expected in zip((pairs, overlap), disagree, strict=True):
        np.testing.assert_allclose(table[:, 0, 1] + table[:, 1, 0], expected)


@pytest.mark.parametrize("m", [2, 3])
def test_shares_of_pairs_are_unbiased(m):
    """Averaged over all outcomes of m reports, the shares of pairs are the probabilities of pairs."""
    p = np.array([0.5, 0.3, 0.2])
    outcomes = np.array(list(product(range(3), repeat=m)))
    chance = p[outcomes].prod(axis=1)
    first, second = np.triu_indices(3)
    expected = p[first] * p[second] * np.where(first == second, 1.0, np.sqrt(2.0))
    np.testing.assert_allclose(chance @ pair_shares(count_votes(outcomes)), expected)


def test_class_conditional_noise_is_rarely_refused(monkeypatch):
    """Overlapping classes; uniform, pair and asymmetric noise: few of 24 p-values are below .05."""
    monkeypatch.setattr(report_agreement, "N_TREES", 15)  # the size does not depend on the forest
    found = []
    for seed, k in product(range(4), (2, 3)):
        X, y, _ = matrices(k, seed, n=300)
        rates = np.linspace(0.05, 0.4, k)
        asymmetric = (1 - rates)[:, None] * np.eye(k) + rates[:, None] / (k - 1) * (1 - np.eye(k))
        kinds = (NoiseModel.uniform(k, 0.3), NoiseModel.pair_flip(k, 0.3), NoiseModel(asymmetric))
        found += [check_row_noise(X, drawn(y, noise, seed), random_state=seed).p_value for noise in kinds]
    assert (np.array(found) < 0.05).sum() <= 4
    assert (np.array(found) < 0.01).sum() <= 1


def test_annotators_of_different_quality_are_not_taken_for_row_noise():
    """Ten annotators with rates from 0 to .4, three of them per row, drawn at random; the others are −1."""
    rng = np.random.default_rng(0)
    X, y, _ = matrices(2)
    columns = [NoiseModel.uniform(2, r).apply(y, random_state=rng) for r in np.linspace(0, 0.4, 10)]
    reports = np.stack(columns, axis=1)
    chosen = rng.permuted(np.tile(np.arange(10), (len(y), 1)), axis=1) < 3
    found = check_row_noise(X, np.where(chosen, reports, -1), random_state=0)
    assert not found.refused
    assert "not refused" in str(found)
    assert found.n_rows == len(y)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("kind", ["boundary", "region"])
def test_noise_that_depends_on_the_row_is_refused(kind, k, seed):
    """Noise near the boundary, and in one half of the feature space, with two labels of 600 rows."""
    X, y, scores = matrices(k, seed)
    noise = InstanceNoise.from_margins(y, scores, rate=0.2)
    if kind == "region":
        rates = np.where(X[:, 3:] > 0, 0.45, 0.05)
        noise = InstanceNoise(np.where(np.eye(k, dtype=bool)[y], 1 - rates, rates / (k - 1)), y)
    found = check_row_noise(X, drawn(y, noise, seed), random_state=0)
    assert found.refused
    assert "The noise depends on the row (p = " in str(found)


def test_labels_that_never_differ_show_nothing():
    """Without disagreement there is no evidence against class-conditional noise."""
    X, y, _ = matrices(2)
    found = check_row_noise(X, np.stack([y, y], axis=1), random_state=0)
    assert found.disagreement == 0.0
    assert found.p_value == pytest.approx(0.5)


def test_rows_with_one_label_are_left_out_and_many_rows_are_sampled(monkeypatch):
    """The number of rows used, and the share of pairs that differ among them."""
    X, y, _ = matrices(2)
    reports = np.stack([y, 1 - y], axis=1)
    reports[:100, 1] = -1
    found = check_row_noise(X, reports, random_state=0)
    assert (found.n_rows, found.disagreement) == (500, pytest.approx(1.0))
    monkeypatch.setattr(report_agreement, "MAX_ROWS", 200)
    assert check_row_noise(X, reports, random_state=0).n_rows == 200


def test_classes_without_a_label_cost_nothing(monkeypatch):
    """The forests predict only labels that occur, so a large code does not mean hours of work."""
    outputs = []
    fit = report_agreement._forest

    def recorded(X, outcome, *others):
        outputs.append(outcome.shape[1])
        assert outcome.shape[1] < 100
        return fit(X, outcome, *others)

    monkeypatch.setattr(report_agreement, "_forest", recorded)
    X, y, _ = matrices(3, n=200)
    reports = drawn(y, NoiseModel.uniform(3, 0.2), 0)
    few, many = (
        check_row_noise(X, table, random_state=0) for table in (reports, np.where(reports == 2, 900, reports))
    )
    assert set(outputs) == {4, 6}  # three shares and the disagreement; six pairs
    assert many == few


def test_a_seed_gives_the_same_result():
    """The seed decides the halves and the forests."""
    X, y, scores = matrices(2, n=200)
    reports = drawn(y, InstanceNoise.from_margins(y, scores, rate=0.2), 0)
    first, second = (check_row_noise(X, reports, random_state=4) for _ in range(2))
    assert first == second


def test_instruments_add_nothing_to_the_function_that_is_tested():
    """The statistic does not change if a combination of the instruments is added to the extra function."""
    rng = np.random.default_rng(0)
    shares, h = rng.dirichlet([1, 1, 1], size=80), rng.dirichlet([1, 1, 1], size=80)
    weight, outcome, extra = rng.uniform(1, 3, size=80), rng.random((80, 2)), rng.random((80, 2))
    plain = report_agreement._z_value(shares, weight, h, outcome, extra)
    moved = report_agreement._z_value(shares, weight, h, outcome, extra + h @ rng.normal(size=(3, 2)))
    assert moved == pytest.approx(plain, abs=1e-9)
    shifted = report_agreement._z_value(shares, weight, h, outcome + shares @ rng.normal(size=(3, 2)), extra)
    assert shifted == pytest.approx(plain, abs=1e-9)


def test_the_combination_of_equal_p_values_is_that_p_value():
    """Also of one, and of values at the ends."""
    for p in (0.003, 0.5, 0.97):
        assert cauchy_combination(np.full(4, p)) == pytest.approx(p)
    assert 0.0 <= cauchy_combination(np.array([0.0, 0.5])) < 1e-12
    assert cauchy_combination(np.array([1.0, 0.5])) > 0.99


@pytest.mark.parametrize(
    ("reports", "message"),
    [
        (np.full((200, 1), 1), "at least 100 rows with two or more labels; got 0. Have some rows labelled"),
        (np.full((200, 2), 0.5), r"`reports` must hold class codes 0..K-1, or -1 .*; found 0.5"),
        (np.full((200, 2), np.nan), r"found nan at index \(0, 0\). Use -1 where an annotator gave no label"),
        (np.zeros((199, 2)), "equally long|same length|`X`"),
    ],
)
def test_bad_reports_are_refused(reports, message):
    """The message says what is wrong and what to do."""
    with pytest.raises(InvalidInputError, match=message):
        check_row_noise(np.zeros((200, 2)), reports)


@pytest.mark.parametrize("function", [check_row_noise, row_rates_from_annotators])
def test_features_that_a_forest_cannot_hold_are_refused(function):
    """Trees compute in float32; the message names the column and a remedy."""
    X, y, _ = matrices(2, n=200)
    X[3, 1] = 1e300
    with pytest.raises(InvalidInputError, match=r"1e\+300.*column 1.*larger unit"):
        function(X, np.stack([y, y], axis=1))
