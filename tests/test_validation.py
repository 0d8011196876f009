import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peerloss import _validation as v
from peerloss.exceptions import InvalidInputError, PeerLossError

FEW = settings(deadline=None, max_examples=40)


def test_errors_are_also_the_builtin_ones():
    """A refused argument is a ValueError and an error of this package."""
    with pytest.raises(ValueError, match="`x`") as caught:
        v.check_finite(math.nan, "x")
    assert isinstance(caught.value, PeerLossError)


@FEW
@given(st.floats(allow_nan=False, allow_infinity=False))
def test_finite_numbers_pass(number):
    """Finite numbers pass as floats, NumPy scalars and strings of digits too."""
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
def test_whole_numbers_are_labels(labels):
    """Integers, booleans and whole floats are class codes, as a new int64 array."""
    codes = v.as_labels(labels, "y")
    assert codes.dtype == np.int64
    assert codes.tolist() == [int(y) for y in labels]


def test_labels_are_copied():
    """The codes are the caller's values in an array of our own."""
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
    """Each refusal names the argument, what is expected and what was received."""
    with pytest.raises(InvalidInputError, match=message):
        call()
