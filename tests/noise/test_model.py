import copy
import pickle
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binomtest

from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel, as_noise_model
from peerloss.noise._model import draw_labels

FEW = settings(deadline=None, max_examples=40)
rates = st.floats(0, 1)


@st.composite
def transitions(draw, k=None):
    """Draw stochastic matrices of two to five classes, zeros included."""
    k = draw(st.integers(2, 5)) if k is None else k
    rows = st.lists(st.integers(0, 50), min_size=k, max_size=k).filter(any)
    weights = np.array(draw(st.lists(rows, min_size=k, max_size=k)), dtype=float)
    return weights / weights.sum(axis=1, keepdims=True)


def dominated(matrix):
    """Mix a transition matrix with the identity so that it can be inverted."""
    return 0.3 * matrix + 0.7 * np.eye(len(matrix))


@FEW
@given(rates, rates)
def test_binary_places_the_rates(e_neg, e_pos):
    """e_neg is T[0, 1] and e_pos is T[1, 0]; their sum is the sum of rates."""
    noise = NoiseModel.binary(e_neg, e_pos)
    assert (noise.e_neg, noise.e_pos) == (e_neg, e_pos)
    assert (noise.transition[0, 1], noise.transition[1, 0]) == (e_neg, e_pos)
    assert noise.sum_of_rates == pytest.approx(e_neg + e_pos, abs=1e-14)
    assert noise.is_informative == (noise.sum_of_rates < 1)


@FEW
@given(st.integers(2, 8), rates)
def test_uniform_and_pair_flip_have_the_total_rate(k, rate):
    """Rows are stochastic and every class flips with the total probability, to the expected classes."""
    for noise in (NoiseModel.uniform(k, rate), NoiseModel.pair_flip(k, rate)):
        assert noise.n_classes == k
        np.testing.assert_allclose(noise.transition.sum(axis=1), 1.0, atol=1e-12)
        np.testing.assert_allclose(noise.flip_rates, rate, atol=1e-12)
    uniform = NoiseModel.uniform(k, rate).transition
    np.testing.assert_allclose(uniform[~np.eye(k, dtype=bool)], rate / (k - 1), atol=1e-15)
    pair = NoiseModel.pair_flip(k, rate).transition
    np.testing.assert_allclose(pair[np.arange(k), (np.arange(k) + 1) % k], rate, atol=1e-15)


@FEW
@given(st.lists(st.floats(0.0, 0.15), min_size=2, max_size=6))
def test_column_rates_are_found(columns):
    """T = (1 − Σe) I + 1 eᵀ gives back e; it is informative since Σe < 1."""
    e = np.array(columns)
    noise = NoiseModel((1 - e.sum()) * np.eye(len(e)) + e)
    np.testing.assert_allclose(noise.column_rates, e, atol=1e-12)
    assert noise.sum_of_rates == pytest.approx(e.sum(), abs=1e-12)
    assert noise.is_informative


def test_pair_flip_has_no_column_rates():
    """With three classes pair flip has no e_j: the sum is refused, informativeness is still reported."""
    noise = NoiseModel.pair_flip(3, 0.2)
    assert noise.column_rates is None
    assert noise.is_informative
    assert not NoiseModel.pair_flip(3, 0.6).is_informative
    with pytest.raises(NotIdentifiableError, match=r"sum of rates.*T\[i, j\] = e_j"):
        _ = noise.sum_of_rates


@FEW
@given(transitions().map(dominated))
def test_inverse_and_priors_go_back(matrix):
    """T⁻¹ T = I, and the clean prior is found again from the noisy one."""
    noise = NoiseModel(matrix)
    k = noise.n_classes
    np.testing.assert_allclose(noise.inverse() @ noise.transition, np.eye(k), atol=1e-10)
    clean = np.arange(1.0, k + 1) / np.arange(1, k + 1).sum()
    noisy = noise.noisy_prior(clean)
    assert noisy.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(
        noisy, [sum(clean[i] * matrix[i, j] for i in range(k)) for j in range(k)], atol=1e-12
    )
    np.testing.assert_allclose(noise.clean_prior(noisy), clean, atol=1e-10)


def test_clean_prior_is_clipped():
    """A noisy prior that no clean prior explains gives the nearest valid prior."""
    np.testing.assert_allclose(NoiseModel.binary(0.2, 0.2).clean_prior(0.1), [1.0, 0.0])


@pytest.mark.parametrize("noise", [NoiseModel.binary(0.4, 0.6), NoiseModel.uniform(3, 2 / 3)])
def test_singular_noise_is_not_inverted(noise):
    """If clean classes give the same noisy labels there is no inverse and no clean prior."""
    with pytest.raises(NotIdentifiableError, match="`transition` cannot be inverted"):
        noise.inverse()
    with pytest.raises(NotIdentifiableError, match="`transition` cannot be inverted"):
        noise.clean_prior(np.full(noise.n_classes, 1 / noise.n_classes))


@FEW
@given(transitions(3), transitions(3))
def test_composition_is_the_matrix_product(first, second):
    """Noise after noise is the product, as a method and as an operator."""
    one, two = NoiseModel(first), NoiseModel(second)
    np.testing.assert_allclose((one @ two).transition, first @ second, atol=1e-12)
    assert one.compose(two) == one @ two


@FEW
@given(transitions())
def test_models_are_values(matrix):
    """Copies and pickles are equal with equal hashes, and the model cannot be changed."""
    noise = NoiseModel(matrix)
    unpickled = pickle.loads(pickle.dumps(noise))  # noqa: S301 - our own bytes
    for twin in (unpickled, copy.copy(noise), copy.deepcopy(noise), NoiseModel(matrix.copy())):
        assert twin == noise
        assert hash(twin) == hash(noise)
        assert not twin.transition.flags.writeable
    with pytest.raises(AttributeError, match="immutable"):
        noise.transition = np.eye(2)
    with pytest.raises(ValueError, match="read-only"):
        noise.transition[0, 0] = 1.0


def test_equality_and_hash():
    """Models with different rates are unequal, and unequal to other types; −0 and 0 are the same rate."""
    assert NoiseModel.binary(0.1, 0.2) != NoiseModel.binary(0.2, 0.1)
    assert NoiseModel.uniform(3, 0.2) != NoiseModel.uniform(2, 0.2)
    assert NoiseModel.binary(0.1, 0.2) != "noise"
    minus = NoiseModel([[1.0, -0.0], [0.0, 1.0]])
    assert minus == NoiseModel.binary(0, 0)
    assert hash(minus) == hash(NoiseModel.binary(0, 0))


def test_callers_matrix_is_copied():
    """The model does not modify the caller's array, and later changes to it have no effect."""
    matrix = np.array([[0.9, 0.1], [0.3, 0.7]])
    noise = NoiseModel(matrix)
    assert matrix.flags.writeable
    matrix[0] = [0.0, 1.0]
    assert noise.e_neg == 0.1


def test_rounded_rows_are_brought_to_one():
    """Rows off by rounding (float32 input) sum to one, so exact flips never exceed the number of rows."""
    noise = NoiseModel([[0.0, 1.0 + 9e-7], [0.0, 1.0]])
    np.testing.assert_allclose(noise.transition.sum(axis=1), 1.0, atol=1e-15)
    assert noise.apply(np.zeros(2_000_000, dtype=int), exact=True, random_state=0).all()


def test_a_symmetric_matrix_rounded_to_six_digits_is_accepted():
    """Rows sum to 1 up to the rounding of their K entries; no valid matrix is reported as transposed."""
    rng = np.random.default_rng(0)
    for k in (2, 3, 10, 26):
        matrix = rng.random((k, k)) + k * np.eye(k)
        matrix += matrix.T
        for _ in range(300):  # rows and columns sum to 1 at the end
            matrix /= np.sqrt(np.outer(matrix.sum(axis=1), matrix.sum(axis=1)))
        rounded = matrix.round(6)
        noise = NoiseModel(rounded)
        np.testing.assert_allclose(noise.transition, rounded, atol=k * 1e-6)
        np.testing.assert_allclose(noise.transition.sum(axis=1), 1.0, atol=1e-12)


def test_a_symmetric_matrix_is_never_called_transposed():
    """Rounded too coarsely it is refused for its sums, without a misleading hint."""
    matrix = np.full((3, 3), 0.33333)
    with pytest.raises(InvalidInputError, match=r"row 0 sums to 0\.99999\. Row i holds"):
        NoiseModel(matrix)


def test_repr():
    """The repr of two classes shows the rates, that of more the flip rate of each class."""
    assert repr(NoiseModel.binary(0.1, 0.3)) == "NoiseModel.binary(e_neg=0.1, e_pos=0.3)"
    assert repr(NoiseModel.uniform(3, 0.2)) == "NoiseModel(3 classes, flip rates [0.2, 0.2, 0.2])"


@FEW
@given(transitions(), st.lists(st.integers(0, 400), min_size=5, max_size=5), st.integers(0, 99))
def test_exact_flips_are_floors(matrix, sizes, seed):
    """With exact=True, floor(n_i T_ij) rows of class i become j, for each i ≠ j."""
    noise = NoiseModel(matrix)
    k = noise.n_classes
    clean = np.repeat(np.arange(k), sizes[:k])
    assume(len(clean))
    noisy = noise.apply(clean, exact=True, random_state=seed)
    for i in range(k):
        for j in range(k):
            expected = np.floor(sizes[i] * noise.transition[i, j] + 1e-9)
            if i != j:
                assert ((clean == i) & (noisy == j)).sum() == expected


def test_exact_flips_see_through_rounding():
    """100 · 0.29 is 29 flips although it is 28.999… in floating point."""
    assert NoiseModel.binary(0.29, 0).apply(np.zeros(100, dtype=int), exact=True).sum() == 29


def test_frequencies_are_those_of_the_transition():
    """Each cell's count passes an exact binomial test at tiny significance."""
    matrix = np.array([[0.7, 0.2, 0.1], [0.0, 0.9, 0.1], [0.25, 0.25, 0.5]])
    clean = np.repeat([0, 1, 2], 4000)
    noisy = NoiseModel(matrix).apply(clean, random_state=3)
    for i in range(3):
        for j in range(3):
            count = int(((clean == i) & (noisy == j)).sum())
            assert binomtest(count, 4000, matrix[i, j]).pvalue > 1e-9


def test_label_probabilities_are_rows_of_the_transition():
    """Each row's distribution is the row of T of its clean label."""
    noise = NoiseModel.binary(0.1, 0.3)
    np.testing.assert_allclose(noise.label_probabilities([1, 0]), [[0.3, 0.7], [0.9, 0.1]])


@FEW
@given(transitions(3), st.integers(0, 1000))
def test_impossible_labels_are_never_drawn(matrix, seed):
    """A label of probability zero is never drawn, at either end of the row."""
    clean = np.repeat([0, 1, 2], 30)
    noisy = draw_labels(matrix[clean], np.random.default_rng(seed))
    assert (matrix[clean, noisy] > 0).all()


def test_as_noise_model():
    """A model is returned, a matrix is converted, anything else is refused with the argument's name."""
    noise = NoiseModel.binary(0.1, 0.2)
    assert as_noise_model(noise) is noise
    assert as_noise_model([[0.9, 0.1], [0.2, 0.8]]) == noise
    with pytest.raises(InvalidInputError, match="`my_noise` must be a NoiseModel"):
        as_noise_model("much", name="my_noise")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: NoiseModel([[1.0]]), r"`transition` must be square.*\(1, 1\)"),
        (lambda: NoiseModel(np.ones((2, 3)) / 3), r"`transition` must be square.*\(2, 3\)"),
        (lambda: NoiseModel([1.0, 0.0]), "`transition` must have 2 dimension"),
        (lambda: NoiseModel([[np.nan, 1], [0, 1]]), "`transition` must be finite"),
        (lambda: NoiseModel([[1.1, -0.1], [0, 1]]), "`transition`.*-0.1 at row 0, column 1"),
        (lambda: NoiseModel([[0.9, 0.2], [0, 1]]), "`transition`.*row 0 sums to 1.1"),
        (lambda: NoiseModel([[0.9, 0.4], [0.1, 0.6]]), "`transition`.*transposed"),
        (lambda: NoiseModel([["a", "b"], ["c", "d"]]), "`transition` must be an array of numbers"),
        (lambda: NoiseModel.binary(1.2, 0), "`e_neg`.*1.2"),
        (lambda: NoiseModel.binary(0, -0.1), "`e_pos`.*-0.1"),
        (lambda: NoiseModel.uniform(1, 0.1), "`n_classes`.*1"),
        (lambda: NoiseModel.uniform(3, 2), "`rate`.*2"),
        (lambda: NoiseModel.pair_flip(2.5, 0.1), "`n_classes`.*2.5"),
        (lambda: NoiseModel.pair_flip(3, np.nan), "`rate`.*nan"),
        (lambda: NoiseModel.uniform(3, 0.1).e_neg, "e_neg and e_pos exist for two classes only"),
        (lambda: NoiseModel.uniform(3, 0.1).e_pos, "e_neg and e_pos exist for two classes only"),
        (lambda: NoiseModel.uniform(3, 0.1) @ NoiseModel.binary(0, 0), "`then` must have 3 classes"),
        (lambda: NoiseModel.uniform(3, 0.1).noisy_prior(0.5), "`clean_prior` must have 3 entries"),
        (lambda: NoiseModel.uniform(3, 0.1).clean_prior(0.5), "`noisy_prior` must have 3 entries"),
        (lambda: NoiseModel.binary(0, 0).apply([0, 2]), "`y` must hold labels in 0..1; found 2"),
        (lambda: NoiseModel.binary(0, 0).apply([0], random_state="x"), "`random_state`"),
        (lambda: NoiseModel.binary(0, 0).label_probabilities([-1]), "`y`.*-1"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    """Each argument is refused by name with what was received."""
    with pytest.raises(InvalidInputError, match=message):
        call()


@FEW
@given(st.integers(2, 12), st.floats(1e-3, 32.0))
def test_randomized_response_has_its_epsilon(k, epsilon):
    """e^ε/(e^ε + K − 1) on the diagonal, 1/(e^ε + K − 1) elsewhere; ε is found again from T."""
    noise = NoiseModel.randomized_response(k, epsilon)
    share = np.exp(epsilon) + k - 1
    expected = np.where(np.eye(k, dtype=bool), np.exp(epsilon), 1.0) / share
    np.testing.assert_allclose(noise.transition, expected, rtol=1e-12)
    assert noise.epsilon == pytest.approx(epsilon, rel=1e-10)
    assert noise.is_informative


@FEW
@given(transitions())
def test_epsilon_is_the_largest_log_ratio(matrix):
    """Against all pairs of true labels and all released labels, one by one; 0/0 does not count."""
    k = len(matrix)
    ratios = [
        np.inf if matrix[other, j] == 0 else np.log(matrix[i, j] / matrix[other, j])
        for i in range(k)
        for other in range(k)
        for j in range(k)
        if matrix[i, j] > 0
    ]
    assert NoiseModel(matrix).epsilon == pytest.approx(max(ratios), rel=1e-9, abs=1e-12)


def test_epsilon_of_extreme_noise():
    """No noise has none, pure chance has perfect privacy, and a second noise never reduces privacy."""
    assert NoiseModel(np.eye(3)).epsilon == np.inf
    assert NoiseModel.uniform(4, 0.75).epsilon == pytest.approx(0.0, abs=1e-12)
    assert NoiseModel([[1.0, 0.0], [1.0, 0.0]]).epsilon == 0.0  # label 1 is never released
    first = NoiseModel.randomized_response(3, 2.0)
    assert (first @ NoiseModel.pair_flip(3, 0.2)).epsilon < first.epsilon


@pytest.mark.parametrize("k", [2, 3, 4])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_randomized_response_keeps_the_most_labels(k, epsilon):
    """A linear programme over all T with this ε finds no larger mean of T[i, i]."""
    bounds = []
    for i, other, j in product(range(k), repeat=3):
        if i != other:
            row = np.zeros((k, k))
            row[i, j], row[other, j] = 1.0, -np.exp(epsilon)
            bounds.append(row.ravel())
    sums = np.kron(np.eye(k), np.ones(k))
    found = linprog(
        -np.eye(k).ravel() / k, A_ub=bounds, b_ub=np.zeros(len(bounds)), A_eq=sums, b_eq=np.ones(k)
    )
    kept = np.diag(NoiseModel.randomized_response(k, epsilon).transition).mean()
    assert -found.fun == pytest.approx(kept, rel=1e-7)


@pytest.mark.parametrize(
    ("epsilon", "message"),
    [
        (0.0, "`epsilon` must be above 0 and at most 32; got 0.*no information"),
        (-1.0, "`epsilon` must be above 0.*got -1"),
        (40, "`epsilon`.*at most 32; got 40"),
        (np.nan, "`epsilon` must be a finite number; got nan"),
        (np.inf, "`epsilon` must be a finite number; got inf.*use the labels as they are"),
    ],
)
def test_an_impossible_epsilon_is_refused(epsilon, message):
    """The message says what to pass."""
    with pytest.raises(InvalidInputError, match=message):
        NoiseModel.randomized_response(2, epsilon)
