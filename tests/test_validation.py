"""Validation of arguments and its messages."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss import _validation as v
from peerloss.exceptions import InvalidInputError, PeerLossError

FEW = settings(deadline=None, max_examples=40)


def test_errors_are_also_the_builtin_ones():
    """An invalid argument raises a ValueError that is also a PeerLossError."""
    with pytest.raises(ValueError, match="`x`") as caught:
        v.check_finite(math.nan, "x")
    assert isinstance(caught.value, PeerLossError)


@FEW
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_finite_numbers_pass(number):
    """Finite numbers, including NumPy scalars, are returned as floats."""
    assert v.check_finite(number, "x") == number
    assert v.check_finite(np.float64(number), "x") == number


@FEW
@given(st.floats(0, 1))
def test_range_ends(number):
    """A closed range includes its ends, an open one does not."""
    assert v.check_in_range(number, "x", 0, 1) == number
    if 0 < number < 1:
        assert v.check_in_range(number, "x", 0, 1, low_open=True, high_open=True) == number


@FEW
@given(st.integers(1, 2**40))
def test_counts_pass(number):
    """Python and NumPy integers are counts."""
    assert v.check_count(number, "n") == number
    assert type(v.check_count(np.int64(number), "n")) is int


@FEW
@given(st.lists(st.floats(0, 1), min_size=2, max_size=6).filter(lambda p: sum(p) > 1e-3))
def test_priors_sum_to_one(weights):
    """Probabilities pass, rescaled to a sum of one; a number is P(Y = 1)."""
    p = np.array(weights) / sum(weights)
    assert v.as_prior(p, "p").sum() == pytest.approx(1.0, abs=1e-15)
    np.testing.assert_allclose(v.as_prior(p[0], "p"), [1 - p[0], p[0]])
    np.testing.assert_allclose(v.as_joint(p[None], "j"), p[None], atol=1e-12)


@pytest.mark.parametrize("labels", [[0, 1], [True, False], [0.0, 2.0], np.array([1, 0], dtype=np.uint8)])
def test_integral_numbers_are_labels(labels):
    """Integers, booleans and integral floats become a new int64 array."""
    codes = v.as_labels(labels, "y")
    assert codes.dtype == np.int64
    assert codes.tolist() == [int(y) for y in labels]


def test_labels_are_copied():
    """The array of the caller is not changed."""
    given_labels = np.array([0, 1])
    codes = v.as_labels(given_labels, "y")
    codes[0] = 1
    assert given_labels[0] == 0


def test_choice_and_lengths_pass():
    """A listed choice and equal lengths pass."""
    assert v.check_choice("a", "x", ("a", "b")) == "a"
    v.check_same_length(a=np.zeros(2), b=np.ones((2, 5)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: v.check_choice("c", "x", ("a", "b")), "`x` must be one of 'a', 'b'; got 'c'"),
        (lambda: v.check_choice(["a"], "x", ("a",)), "`x` must be one of 'a'"),
        (lambda: v.check_finite(math.inf, "x"), "`x` must be a finite number; got inf"),
        (lambda: v.check_finite("much", "x"), "`x`.*'much'"),
        (lambda: v.check_finite(None, "x"), "`x`.*None"),
        (lambda: v.check_in_range(2, "x", 0, 1), r"`x` must lie in \[0, 1\]; got 2"),
        (lambda: v.check_in_range(0, "x", 0, 1, low_open=True), r"`x` must lie in \(0, 1\]"),
        (lambda: v.check_in_range(1, "x", 0, 1, high_open=True), r"`x` must lie in \[0, 1\)"),
        (lambda: v.check_in_range(math.nan, "x", 0, 1), "`x`.*nan"),
        (lambda: v.check_count(0, "n"), "`n` must be an integer of at least 1; got 0"),
        (lambda: v.check_count(1.0, "n"), "`n`.*1.0"),
        (lambda: v.check_count(True, "n"), "`n`.*True"),
        (lambda: v.check_count(2, "n", minimum=3), "`n`.*at least 3"),
        (lambda: v.as_float_array([["a"]], "X", ndim=2), "`X` must be an array of numbers"),
        (lambda: v.as_float_array([[1], [2, 3]], "X", ndim=2), "`X` must be an array of numbers"),
        (
            lambda: v.as_float_array([1.0], "X", ndim=2),
            r"`X` must have 2 dimension\(s\).*one row per example",
        ),
        (lambda: v.as_float_array([[1.0]], "x", ndim=1), r"`x` must have 1 dimension\(s\).*ravel"),
        (lambda: v.as_float_array(np.empty((0, 3)), "X", ndim=2), "`X` is empty"),
        (
            lambda: v.as_float_array([[1, np.nan]], "X", ndim=2),
            r"`X` must be finite; found nan at index \(0, 1\)",
        ),
        (lambda: v.as_labels([[0]], "y"), "`y` must be one-dimensional"),
        (lambda: v.as_labels([], "y"), "`y` is empty"),
        (lambda: v.as_labels(["a"], "y"), "`y` must hold integer class codes"),
        (lambda: v.as_labels([0.5], "y"), "`y` must hold integer class codes"),
        (lambda: v.as_labels([np.nan], "y"), "`y` must hold integer class codes"),
        (lambda: v.as_labels([-1, 1], "y"), r"`y` must hold labels in 0..K-1; found -1"),
        (lambda: v.as_labels([0, 3], "y", n_classes=3), "`y` must hold labels in 0..2; found 3"),
        (lambda: v.as_prior(1.5, "p"), "`p` must lie in"),
        (lambda: v.as_prior([1.0], "p"), "`p` must have at least 2 entries"),
        (lambda: v.as_prior([0.5, 0.5], "p", n_classes=3), "`p` must have 3 entries"),
        (lambda: v.as_prior([0.5, 0.6], "p"), "`p` must be probabilities that sum to 1.*1.1"),
        (lambda: v.as_prior([1.5, -0.5], "p"), "`p` must be probabilities"),
        (lambda: v.as_joint([[1, 2], [3, 4]], "joint"), "`joint`.*sum 10"),
        (lambda: v.as_joint([[1.5, -0.5]], "joint"), "`joint`.*minimum -0.5"),
        (lambda: v.check_same_length(a=np.zeros(2), b=np.zeros(3)), "`a` has 2, `b` has 3"),
    ],
)
def test_messages_name_the_argument(call, message):
    """Each message names the argument, what was expected and what was received."""
    with pytest.raises(InvalidInputError, match=message):
        call()


@pytest.mark.parametrize("value", [10**400, -(10**400), 10**5000], ids=["400", "-400", "5000"])
def test_integers_too_large_for_a_float_are_refused(value):
    """``10**400`` is a Python integer but not a float64; no OverflowError is raised."""
    with pytest.raises(InvalidInputError, match="`alpha` must be a finite number; got an integer of about"):
        v.check_finite(value, "alpha")
    with pytest.raises(InvalidInputError, match="`rate` must be a finite number; got an integer of about"):
        v.check_in_range(value, "rate", 0.0, 1.0)
    with pytest.raises(InvalidInputError, match="`cv` must be an integer of at least 2"):
        v.check_count(value, "cv", minimum=2)
    with pytest.raises(InvalidInputError, match="`prior` must be an array of numbers"):
        v.as_float_array([value, 1], "prior", ndim=1)


@pytest.mark.parametrize("value", [[10**5000], (1, 10**5000), {"a": 10**5000}], ids=["list", "tuple", "dict"])
def test_containers_of_very_long_integers_are_described(value):
    """The message is about the argument, not about the number of digits that Python prints."""
    message = f"`base` must be one of 'a', 'b'; got a {type(value).__name__} that holds a very long integer"
    with pytest.raises(InvalidInputError, match=message):
        v.check_choice(value, "base", ("a", "b"))


@pytest.mark.parametrize("label", [1e300, -1e300, 2.0**53, np.inf])
def test_float_labels_that_are_not_exact_are_refused(label):
    """As integers they would overflow, or become equal to a neighbouring number."""
    for check in (v.sorted_labels, lambda y: v.as_labels(y, "y")):
        with pytest.raises(InvalidInputError, match="`y` must hold"):
            check(np.array([0.0, 1.0, label]))


def test_large_integer_labels_are_kept():
    """Integers are exact, including unsigned ones above 2**63."""
    for labels in ([2**53, 2**53 + 1], np.array([3, 2**63 + 5], dtype=np.uint64)):
        classes, codes = v.sorted_labels(labels)
        assert classes.tolist() == [int(label) for label in labels]
        assert codes.tolist() == [0, 1]
    with pytest.raises(InvalidInputError, match=r"0\.\.1; found 9223372036854775813"):
        v.as_labels(np.array([3, 2**63 + 5], dtype=np.uint64), "y", n_classes=2)
    with pytest.raises(InvalidInputError, match=r"under 2\*\*63; found 9223372036854775813"):
        v.as_labels(np.array([3, 2**63 + 5], dtype=np.uint64), "y")


def test_large_magnitudes_are_refused_with_column_and_row():
    """Numbers above the largest float32 are refused; NaN is allowed."""
    X = np.array([[1.0, np.nan], [3.0e38, 2.0]])
    v.check_magnitude(X)
    X[1, 0] = -1e40
    with pytest.raises(InvalidInputError, match=r"found -1e\+40 in column 'a', row 1\. Measure"):
        v.check_magnitude(X, names=["a", "b"])
    with pytest.raises(InvalidInputError, match=r"found -1e\+40 in column 0, row 1"):
        v.check_magnitude(X)
    with pytest.raises(InvalidInputError, match=r"`w` must hold.*found -1e\+40, row 1"):
        v.check_magnitude(X[:, 0], name="w")


def test_one_column_that_varies_is_enough():
    """Other columns may be constant; a missing value makes a constant column vary."""
    v.check_varies(np.array([[1.0, 1.0], [1.0, 2.0]]))
    v.check_varies(np.array([[1.0], [np.nan]]))
    for X in (np.ones((3, 2)), np.full((3, 1), np.nan)):
        with pytest.raises(InvalidInputError, match="`X` must have a column that varies"):
            v.check_varies(X)


def test_soft_labels_may_be_in_half_precision():
    """Sums that are off by their precision are accepted, and rows are divided by them."""
    shares = np.random.default_rng(0).dirichlet(np.ones(10), size=64).astype(np.float16)
    assert np.abs(shares.astype(float).sum(axis=1) - 1.0).max() > v.SOFT_LABEL_TOLERANCE
    found = v.read_labels(shares, "y").shares
    np.testing.assert_allclose(found, shares / shares.astype(float).sum(axis=1, keepdims=True), rtol=1e-12)
    with pytest.raises(InvalidInputError, match="sum to 1 in each row"):
        v.read_labels(shares * np.float16(1.01), "y")
