import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel
from peerloss.theory import (
    binary_delta,
    delta_matrix,
    is_categorical,
    is_stochastically_relevant,
    joint_of_conditionally_independent,
    joint_table,
    sign_matrix,
)
from tests.theory.finite_distributions import (
    binary_noises,
    column_noise,
    column_noises,
    exact,
    random_joint,
)

CLASSIFIER = NoiseModel.binary(e_neg=0.2, e_pos=0.3)
LABELS = NoiseModel.binary(e_neg=0.3, e_pos=0.4)


def test_example_1_of_the_paper():
    """Example 1 gives Δ = ±0.036, an identity sign matrix, and the joint the margins demand."""
    joint = joint_of_conditionally_independent(0.6, CLASSIFIER, LABELS)
    np.testing.assert_allclose(joint, [[0.296, 0.204], [0.224, 0.276]], atol=1e-12)
    np.testing.assert_allclose(delta_matrix(joint), [[0.036, -0.036], [-0.036, 0.036]], atol=1e-12)
    assert sign_matrix(delta_matrix(joint)).tolist() == [[1, 0], [0, 1]]


@exact
@given(st.floats(0.0, 1.0), binary_noises(1.0), binary_noises(1.0))
def test_lemma_1_closed_form_equals_enumeration(p, first, second):
    """The closed form of Δ is Δ of the enumerated joint."""
    joint = joint_of_conditionally_independent(p, first, second)
    np.testing.assert_allclose(binary_delta(p, first, second), delta_matrix(joint), atol=1e-12)


@exact
@given(st.floats(0.05, 0.95), binary_noises(0.95), binary_noises(0.95))
def test_lemma_1_and_appendix_lemma_2(p, first, second):
    """Informative sources have Sgn(Δ) = I, are categorical and stochastically relevant."""
    joint = joint_of_conditionally_independent(p, first, second)
    assert sign_matrix(delta_matrix(joint)).tolist() == [[1, 0], [0, 1]]
    assert is_categorical(joint)
    assert is_stochastically_relevant(joint)


@exact
@given(st.integers(3, 4).flatmap(lambda k: st.tuples(column_noises(k), column_noises(k))))
def test_sign_matrix_is_the_identity_for_column_noise_and_balanced_classes(noises):
    """The appendix's multi-class claim: Δ is negative off the diagonal for sources with e_j, Σe < 1."""
    first, second = noises
    k = first.n_classes
    joint = joint_of_conditionally_independent(np.full(k, 1 / k), first, second)
    assert sign_matrix(delta_matrix(joint)).tolist() == np.eye(k, dtype=int).tolist()
    assert is_categorical(joint)


@pytest.mark.parametrize("k", [3, 4])
def test_the_appendix_remark_on_a_diagonal_sign_matrix(k):
    """Σe < 1 makes Sgn(Δ) diagonal for Δ(Y, Ỹ), not for the paper's Δ(f*, Ỹ).

    Noise with e_j multiplies Δ by 1 − Σe, Δ(f, Ỹ) = (1 − Σe)·Δ(f, Y), so it never changes a sign: whether
    Sgn(Δ(f*, Ỹ)) is the identity depends on what the Bayes classifier f* confuses. In 200 worlds of ten
    points in which f* predicts every class it is not in at least 40.
    """
    rng = np.random.default_rng(k)
    identity = np.eye(k, dtype=int).tolist()
    other = worlds = 0
    while worlds < 200:
        clean, noise = random_joint(rng, 10, k), column_noise(rng, k)
        bayes = clean.argmax(axis=1)
        if len(set(bayes)) < k:
            continue
        worlds += 1
        prediction = np.eye(k)[bayes].T  # (K, points): sums the points of each prediction
        with_clean = delta_matrix(prediction @ clean)
        with_noisy = delta_matrix(prediction @ clean @ noise.transition)
        np.testing.assert_allclose(with_noisy, (1 - noise.sum_of_rates) * with_clean, atol=1e-12)
        labels = np.diag(clean.sum(axis=0)) @ noise.transition
        assert sign_matrix(delta_matrix(labels)).tolist() == identity
        other += sign_matrix(with_noisy).tolist() != identity
    assert other >= 40


def test_sign_matrix_of_reversed_labels_is_the_other_diagonal():
    """With Σe > 1 labels are reversed, which Sgn(Δ) shows."""
    assert sign_matrix(binary_delta(0.5, CLASSIFIER, NoiseModel.binary(0.8, 0.7))).tolist() == [
        [0, 1],
        [1, 0],
    ]


def test_sign_matrix_counts_rounding_as_zero():
    """An entry within 1e-12 of 0 is not agreement."""
    assert sign_matrix([[1e-13, -1e-13], [1e-11, 0.0]]).tolist() == [[0, 0], [1, 0]]


def test_joint_table_counts_pairs_and_pads_to_n_classes():
    """Each row adds 1/N at its pair of labels; classes never seen get zeros."""
    table = joint_table([0, 1, 1, 2], [0, 1, 2, 2], n_classes=4)
    reference = np.zeros((4, 4))
    for pair in [(0, 0), (1, 1), (1, 2), (2, 2)]:
        reference[pair] += 0.25
    assert table.tolist() == reference.tolist()
    assert joint_table([0, 0], [0, 0]).shape == (2, 2)


def test_independent_sources_have_no_delta_and_satisfy_neither_condition():
    """A product joint has Δ = 0, is not categorical and not stochastically relevant."""
    joint = np.outer([0.3, 0.7], [0.4, 0.6])
    np.testing.assert_allclose(delta_matrix(joint), 0.0, atol=1e-12)
    assert not is_categorical(joint)
    assert not is_stochastically_relevant(joint)


def test_relevance_asks_every_pair_of_signals():
    """Two signals with equal conditionals are not relevant even if a third differs."""
    assert not is_stochastically_relevant([[0.2, 0.1], [0.2, 0.1], [0.1, 0.3]])
    assert is_stochastically_relevant([[0.3, 0.1], [0.2, 0.1], [0.1, 0.2]])


def test_a_signal_that_never_occurs():
    """It makes the joint not categorical, and is excluded from the comparison for relevance."""
    joint = [[0.4, 0.1, 0.0], [0.1, 0.4, 0.0], [0.0, 0.0, 0.0]]
    assert not is_categorical(joint)
    assert is_stochastically_relevant(joint)
    assert not is_stochastically_relevant([[0.5, 0.5], [0.0, 0.0]])


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: joint_table([0, 1], [0]), "`first` and `second` must be equally long"),
        (lambda: joint_table([0, 3], [0, 1], n_classes=2), "`first` must hold labels in 0..1"),
        (lambda: joint_table([0, 1], [0, 2], n_classes=2), "`second` must hold labels in 0..1"),
        (lambda: joint_table([0], [0], n_classes=1), "`n_classes` must be an integer of at least 2"),
        (lambda: delta_matrix([[0.5, 0.4]]), "`joint` must be joint probabilities"),
        (lambda: sign_matrix([0.1]), "`delta` must have 2 dimension"),
        (lambda: is_categorical([[0.5, 0.3, 0.2]]), "`joint` must be square"),
        (lambda: is_stochastically_relevant([[2.0]]), "`joint` must be joint"),
        (lambda: binary_delta(0.5, NoiseModel.uniform(3, 0.1), LABELS), "`noise` must have two classes"),
        (lambda: binary_delta(1.5, CLASSIFIER, LABELS), "`clean_prior` must lie in"),
        (
            lambda: joint_of_conditionally_independent(0.5, NoiseModel.uniform(3, 0.1), LABELS),
            "`first_noise` and `second_noise` must have the same classes",
        ),
        (
            lambda: joint_of_conditionally_independent(0.5, [[2.0]], LABELS),
            "`first_noise` must be a NoiseModel",
        ),
    ],
)
def test_wrong_arguments_are_named(call, match):
    """Every refusal names the argument and what it expects."""
    with pytest.raises(InvalidInputError, match=match):
        call()
