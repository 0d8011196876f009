import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss.exceptions import IdentifiabilityWarning, InvalidInputError
from peerloss.noise import NoiseModel, estimate_noise
from peerloss.noise.estimate import confident_joint

FEW = settings(deadline=None, max_examples=40)
NOISES = [
    NoiseModel.binary(0.1, 0.3),
    NoiseModel.binary(0.4, 0.2),
    NoiseModel.uniform(4, 0.4),
    NoiseModel.pair_flip(3, 0.3),
]


def separable(noise, n=8000, seed=0):
    """Return noisy labels, the true P(noisy | x) and clean labels, which the features determine."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(noise.n_classes, size=n)
    return noise.apply(clean, random_state=rng), noise.transition[clean], clean


@pytest.mark.parametrize("noise", NOISES, ids=repr)
@pytest.mark.parametrize("method", ["confident", "anchor"])
def test_recovers_the_transition_on_separable_data(noise, method):
    """With the true η̃, T is exact with anchors, and within sampling error with counting."""
    y_noisy, proba, _ = separable(noise)
    found = estimate_noise(y_noisy, proba, method=method, quantile=0.9).transition
    # Counting: five standard errors of a frequency among 8000 / K rows.
    tolerance = 1e-12 if method == "anchor" else 5 * 0.5 / np.sqrt(8000 / noise.n_classes)
    np.testing.assert_allclose(found, noise.transition, atol=tolerance)


@FEW
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=60))
def test_pairs_are_counted(pairs):
    """With clean labels T is the table of frequencies."""
    pairs = [*pairs, (0, 2), (1, 2), (2, 2)]
    clean, noisy = (np.array(column) for column in zip(*pairs, strict=True))
    found = estimate_noise(noisy, y_clean=clean).transition
    for i in range(3):
        for j in range(3):
            assert found[i, j] == pytest.approx((noisy[clean == i] == j).mean(), abs=1e-15)


def test_callers_arrays_are_unchanged():
    """Labels and probabilities are not modified, even if rows are rescaled."""
    y_noisy, proba, _ = separable(NOISES[0], n=200)
    proba = proba * (1 + 5e-5)
    labels_before, proba_before = y_noisy.copy(), proba.copy()
    estimate_noise(y_noisy, proba)
    np.testing.assert_array_equal(y_noisy, labels_before)
    np.testing.assert_array_equal(proba, proba_before)


def test_rows_that_do_not_sum_to_one_are_refused():
    """Sums may be off by 1e-4, which rescaling corrects, and not by more."""
    y_noisy, proba, _ = separable(NOISES[0], n=200)
    expected = estimate_noise(y_noisy, proba).transition
    np.testing.assert_allclose(estimate_noise(y_noisy, proba * (1 + 9e-5)).transition, expected)
    with pytest.raises(InvalidInputError, match=r"sum to 1 in each row; found a sum of 1\.0002 in row 0"):
        estimate_noise(y_noisy, proba * (1 + 2e-4))


def test_unbalanced_but_informative_probabilities_do_not_warn():
    """Informative probabilities do not warn only because one class is the most probable on every row."""
    rng = np.random.default_rng(0)
    p = rng.choice([0.05, 0.45], size=4000)
    y_noisy = (rng.random(4000) < p).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimate_noise(y_noisy, np.column_stack([1 - p, p]))


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_warns_if_probabilities_are_uninformative():
    """T cannot be identified from predictions that are unrelated to the labels."""
    rng = np.random.default_rng(0)
    p = rng.random(500)
    y_noisy = rng.integers(2, size=500)
    with pytest.warns(IdentifiabilityWarning, match="by chance"):
        estimate_noise(y_noisy, np.column_stack([1 - p, p]))


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_warns_if_probabilities_are_constant():
    """T cannot be identified from constant predictions."""
    y_noisy = np.tile([0, 0, 1], 100)
    with pytest.warns(IdentifiabilityWarning, match="by chance"):
        estimate_noise(y_noisy, np.full((300, 2), 0.5))


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_warns_if_a_class_has_no_confident_row():
    """A class without labels causes a warning, and its row of T is noise-free."""
    y_noisy, proba, _ = separable(NOISES[0], n=400)
    three = np.column_stack([proba, np.zeros(400)])
    with pytest.warns(IdentifiabilityWarning, match=r"no row is confidently of class \[2\]") as caught:
        found = estimate_noise(y_noisy, three)
    assert {w.filename for w in caught} == {__file__}
    np.testing.assert_array_equal(found.transition[2], [0, 0, 1])


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_warns_if_no_anchor_exists():
    """A class has no anchor if another class is more probable on its most confident rows."""
    rng = np.random.default_rng(0)
    p = rng.uniform(0.0, 0.3, size=1000)
    y_noisy = (rng.random(1000) < p).astype(int)
    with pytest.warns(
        IdentifiabilityWarning, match="no row is certainly of class 1.*class 0 is more probable"
    ):
        estimate_noise(y_noisy, np.column_stack([1 - p, p]), method="anchor")


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_warns_if_the_estimate_is_not_informative():
    """An estimate with Σe ≥ 1 causes a warning."""
    y_noisy, proba, _ = separable(NOISES[0], n=2000)
    with pytest.warns(IdentifiabilityWarning, match="not informative"):
        estimate_noise(y_noisy, proba[:, ::-1])


def test_warns_if_pairs_lack_a_class():
    """A row of T cannot be counted without pairs of its clean class."""
    with pytest.warns(IdentifiabilityWarning, match=r"`y_clean` is of class \[1\]"):
        found = estimate_noise([0, 1, 0], y_clean=[0, 0, 0])
    np.testing.assert_allclose(found.transition, [[2 / 3, 1 / 3], [0, 1]])


PROBA = [[0.9, 0.1], [0.2, 0.8]]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate_noise([0, 1]), "`pred_proba`.*or `y_clean`; got neither"),
        (lambda: estimate_noise([0, -1], PROBA), "`y_noisy`.*-1"),
        (lambda: estimate_noise([0, 2], PROBA), "`y_noisy`.*found 2"),
        (lambda: estimate_noise([0, 0], PROBA), "`y_noisy` must hold at least two classes; every label is 0"),
        (
            lambda: estimate_noise([0, 1, 1], PROBA),
            "`pred_proba` and `y_noisy` must be equally long; got 2 and 3",
        ),
        (lambda: estimate_noise([0, 1], [0.1, 0.9]), "`pred_proba` must have one row per example"),
        (lambda: estimate_noise([0, 1], [[0.1], [0.9]]), "one column per class; got shape"),
        (
            lambda: estimate_noise([0, 1], [[0.5, 0.5], [0.5, 0.6]]),
            "`pred_proba`.*found a sum of 1.1 in row 1",
        ),
        (lambda: estimate_noise([0, 1], [[0.5, 0.5], [-0.5, 1.5]]), "`pred_proba`.*found -0.5 in row 1"),
        (
            lambda: estimate_noise([0, 1], [[0.5, 0.5], [np.nan, 0.5]]),
            "`pred_proba`.*missing or infinite value in row 1",
        ),
        (
            lambda: estimate_noise([0, 1], PROBA, method="magic"),
            "`method`.*'confident', 'anchor'; got 'magic'",
        ),
        (lambda: estimate_noise([0, 1], PROBA, quantile=0.3), "`quantile`.*0.3"),
        (lambda: estimate_noise([0, 1], y_clean=[0]), "`y_noisy` has 2, `y_clean` has 1"),
        (lambda: estimate_noise([0, 1], y_clean=[0, -1]), "`y_clean`.*-1"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    """Each argument is refused by name."""
    with pytest.raises(InvalidInputError, match=message):
        call()


def test_counts_use_the_most_probable_qualified_class_of_each_row():
    """The confident joint of five rows, by hand; one row qualifies for neither class."""
    proba = np.array([[0.9, 0.1], [0.2, 0.8], [0.5, 0.5], [0.1, 0.9], [0.7, 0.3]])
    codes = np.array([0, 1, 1, 0, 0])
    # thresholds: class 0 mean(.9, .1, .7) = .567; class 1 mean(.8, .5) = .65
    joint, _ = confident_joint(proba, codes)
    assert joint.sum(axis=1).tolist() == [2.0, 2.0]


def test_equal_probabilities_pass_their_own_mean():
    """Rows with equal probabilities all count, whichever way their mean is rounded."""
    proba = np.full((31, 3), 0.1)
    codes = np.arange(31) % 3
    proba[np.arange(31), codes] = 0.8
    assert confident_joint(proba, codes)[0].sum() == 31
