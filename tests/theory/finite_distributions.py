"""Small finite distributions, drawn by hypothesis and enumerated exactly."""

import itertools

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from peerloss.noise import NoiseModel

#: What every property test here uses. Some draws are refused (δ_p̃ near 0), which costs microseconds.
exact = settings(deadline=None, max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])

weights = st.floats(0.01, 1.0)


@st.composite
def joints(draw, n_classes=2, balanced=False):
    """Draw P(x, label) on 3 to 5 points; ``balanced`` makes all classes equally probable."""
    n_points = draw(st.integers(3, 5))
    cells = draw(st.lists(weights, min_size=n_points * n_classes, max_size=n_points * n_classes))
    table = np.array(cells).reshape(n_points, n_classes)
    if balanced:
        table /= table.sum(axis=0)
    return table / table.sum()


@st.composite
def binary_noises(draw, most=0.95):
    """Draw binary noise with Σe ≤ ``most``, asymmetric in either direction."""
    total = draw(st.floats(0.0, most))
    share = draw(st.floats(0.0, 1.0))
    return NoiseModel.binary(total * share, total * (1.0 - share))


@st.composite
def column_noises(draw, n_classes):
    """Draw K-class noise with T[i, j] = e_j for i ≠ j and Σe ≤ 0.9."""
    shares = np.array(draw(st.lists(weights, min_size=n_classes, max_size=n_classes)))
    rates = draw(st.floats(0.05, 0.9)) * shares / shares.sum()
    return NoiseModel((1.0 - rates.sum()) * np.eye(n_classes) + rates)


@st.composite
def scores_of(draw, joint, most=5.0):
    """Draw one score per point, none of them 0, at which the 0-1 loss has a tie."""
    sizes = st.lists(st.floats(1e-3, most), min_size=len(joint), max_size=len(joint))
    signs = st.lists(st.sampled_from([-1.0, 1.0]), min_size=len(joint), max_size=len(joint))
    return np.array(draw(sizes)) * np.array(draw(signs))


@st.composite
def small_alpha_cases(draw):
    """Draw P(x, y) and noise with α* ≤ Σe, α* ≠ 0: condition 2 of Theorem 6 with a bounded risk."""
    total = draw(st.floats(0.1, 0.9))
    alpha = draw(st.floats(-2.0, -0.05) | st.floats(0.05, total))
    # α* = d/δ_p̃ with d = e_neg − e_pos, so δ_p = d(1 − α)/(α(1 − Σe)), which must stay inside (−1, 1).
    limit = min(total, 0.95 * abs(alpha) * (1 - total) / (1 - alpha))
    difference = draw(st.floats(0.1, 1.0)) * limit * draw(st.sampled_from([-1.0, 1.0]))
    noise = NoiseModel.binary((total + difference) / 2, (total - difference) / 2)
    positive = (1 + difference * (1 - alpha) / (alpha * (1 - total))) / 2
    joint = draw(joints(balanced=True)) * 2 * np.array([1 - positive, positive])
    return joint, noise, alpha


@st.composite
def loss_matrices(draw, shape):
    """Draw any loss matrix of a shape."""
    size = shape[0] * shape[1]
    cells = draw(st.lists(st.floats(-3.0, 3.0), min_size=size, max_size=size))
    return np.array(cells).reshape(shape)


def classifiers(n_points, n_classes):
    """Every classifier on ``n_points`` points."""
    return [np.array(labels) for labels in itertools.product(range(n_classes), repeat=n_points)]


def all_rules(n_points, n_classes):
    """Every classifier on ``n_points`` points, one row each."""
    return np.array(list(itertools.product(range(n_classes), repeat=n_points)))


def accuracies(rules, joint):
    """P(f(X) = Y) of each row of ``rules``."""
    return joint[np.arange(len(joint)), rules].sum(axis=1)


def balanced_accuracies(rules, joint):
    """Mean over classes of P(f(X) = k | Y = k), for each row of ``rules``."""
    return accuracies(rules, joint / joint.sum(axis=0)) / joint.shape[1]


def random_joint(rng, n_points, n_classes, *, balanced=False):
    """Draw P(x, label) uniformly from all tables; ``balanced`` makes all classes equally probable."""
    joint = rng.dirichlet(np.ones(n_points * n_classes)).reshape(n_points, n_classes)
    return joint / joint.sum(axis=0) / n_classes if balanced else joint


def column_noise(rng, n_classes):
    """K-class noise with T[i, j] = e_j for i ≠ j and Σe between 0.05 and 0.9."""
    rates = rng.dirichlet(np.ones(n_classes)) * rng.uniform(0.05, 0.9)
    return NoiseModel((1.0 - rates.sum()) * np.eye(n_classes) + rates)


def random_noise(rng, n_classes):
    """K-class noise of any form: row i is replaced by a random distribution with probability .1 to .9."""
    replaced = rng.uniform(0.1, 0.9, size=(n_classes, 1))
    while True:
        rows = replaced * rng.dirichlet(np.ones(n_classes), size=n_classes)
        noise = NoiseModel(rows + np.diag(1.0 - replaced[:, 0]))
        if np.linalg.cond(noise.transition) < 100.0:
            return noise


def zero_one(labels, n_classes):
    """Loss matrix of the 0-1 loss."""
    return (np.arange(n_classes)[None, :] != labels[:, None]).astype(float)


def clean_risk(labels, joint):
    """P(f(X) ≠ Y)."""
    return float((joint * zero_one(labels, joint.shape[1])).sum())


def minimisers(risks, tolerance=1e-12):
    """Positions of the smallest risks."""
    risks = np.asarray(risks)
    return set(np.flatnonzero(risks <= risks.min() + tolerance).tolist())


def binary_posteriors(joint):
    """P(x) and P(label = 1 | x)."""
    points = joint.sum(axis=1)
    return points, joint[:, 1] / points


def score_losses(phi, scores):
    """Two-class loss matrix of a margin loss: columns φ(−s), φ(s)."""
    return np.stack([phi(-scores), phi(scores)], axis=1)


#: Margin losses φ(m) of the library's base losses in their two-class form, written independently.
MARGIN_LOSSES = {
    "zero_one": lambda m: (m <= 0).astype(float),
    "hinge": lambda m: np.maximum(0.0, 1.0 - m),
    "logistic": lambda m: np.logaddexp(0.0, -m),
    "cross_entropy": lambda m: -np.log(_sigmoid(m)),
    "sigmoid": lambda m: _sigmoid(-m),
    "mae": lambda m: np.abs(_sigmoid(m) - 1.0) + np.abs(_sigmoid(-m)),
    "ramp": lambda m: np.clip((1.0 - m) / 2.0, 0.0, 1.0),
    "squared": lambda m: (_sigmoid(m) - 1.0) ** 2 + _sigmoid(-m) ** 2,
    "margin_square": lambda m: (1.0 - m) ** 2,
    "gce": lambda m: (1.0 - _sigmoid(m) ** 0.7) / 0.7,
}


def _sigmoid(m):
    return 1.0 / (1.0 + np.exp(-np.asarray(m, dtype=float)))
