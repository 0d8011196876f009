"""The settings of RobustMLPClassifier: check the given ones, and choose folds, held-out rows and α."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peerloss._deprecation import warn_renamed
from peerloss._probabilities import label_frequencies
from peerloss._validation import check_choice, check_count, check_in_range
from peerloss.estimators.folds import DEFAULT_FOLDS, check_cv_kind, held_out_folds, is_fold_count
from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.functional.base import as_base, check_trainable_base, trainable_bases
from peerloss.functional.peer import PEERS
from peerloss.metrics import peer_score
from peerloss.noise import as_noise_model
from peerloss.posterior.decision import AutomaticAlpha, automatic_alpha, check_alpha_or_auto

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray, IntArray
    from peerloss.estimators._robust_mlp import RobustMLPClassifier
    from peerloss.estimators.folds import Folds
    from peerloss.training import TrainedNets

#: The grid of the paper without 4 and with 0. 0 is first, because the rates are estimated from it.
ALPHA_GRID = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 2.0, 3.0, 5.0, -5.0)
#: Losses that use ``noise``.
CORRECTIONS = ("backward", "forward")
LOSSES = ("peer", *CORRECTIONS, "dmi")
#: Deprecated losses, with the parameters to use instead; ``{base}`` is the base loss that they train with.
DEPRECATED_LOSSES = {
    "surrogate": 'loss="backward"',
    "plain": 'loss="peer", alpha=0',
    "gce": 'loss="peer", alpha=0, base="{base}"',
    "symmetric": 'loss="peer", alpha=0, base="{base}"',
}


class LossChoice(NamedTuple):
    """The loss to train with, without deprecated names."""

    loss: str
    base: str
    alpha: float | str
    peers: str

    @property
    def searches_alpha(self) -> bool:
        """Whether α is chosen by cross-validation."""
        return self.loss == "peer" and isinstance(self.alpha, str)

    @property
    def uses_noise(self) -> bool:
        """Whether the loss needs a noise model."""
        return self.loss in CORRECTIONS


def check_parameters(model: RobustMLPClassifier, n_classes: int) -> tuple[tuple[int, ...], LossChoice]:
    """Check every parameter; return the widths of the hidden layers and the loss."""
    loss = _resolve_loss(model)
    check_choice(loss.loss, "loss", LOSSES)
    check_trainable_base(loss.base, "base")
    check_choice(model.peers, "peers", PEERS)
    check_alpha_or_auto(model.alpha, "alpha")
    check_alpha_or_auto(model.scoring_alpha, "scoring_alpha")
    for name in ("batch_size", "max_steps", "n_members"):
        check_count(getattr(model, name), name)
    check_cv_kind(model.cv)
    check_in_range(model.learning_rate, "learning_rate", 0.0, float("inf"), low_open=True)
    check_in_range(model.weight_decay, "weight_decay", 0.0, float("inf"))
    check_in_range(model.eps, "eps", 0.0, 1.0)
    check_in_range(model.validation_fraction, "validation_fraction", 0.0, 1.0, low_open=True, high_open=True)
    check_in_range(model.warm_up_fraction, "warm_up_fraction", 0.0, 1.0, low_open=True)
    if loss.uses_noise:
        _check_noise(model.noise, loss.loss, n_classes)
    return _check_hidden(model.hidden_layer_sizes), loss


def _resolve_loss(model: RobustMLPClassifier) -> LossChoice:
    given = LossChoice(model.loss, model.base, model.alpha, model.peers)
    if not (isinstance(model.loss, str) and model.loss in DEPRECATED_LOSSES):
        return given
    base = "gce" if model.loss == "gce" else model.base
    if model.loss == "symmetric":
        symmetric = tuple(name for name in trainable_bases() if as_base(name).symmetric)
        base = "sigmoid" if base == "cross_entropy" else check_choice(base, "base", symmetric)
    warn_renamed(f'loss="{model.loss}"', DEPRECATED_LOSSES[model.loss].format(base=base), stacklevel=6)
    if model.loss == "surrogate":
        return given._replace(loss="backward")
    return LossChoice("peer", base, 0.0, "expected")


def _check_hidden(value: Any) -> tuple[int, ...]:
    widths = (value,) if isinstance(value, int | np.integer) else value
    try:
        return tuple(check_count(width, "hidden_layer_sizes") for width in widths)
    except TypeError as error:
        raise InvalidInputError(
            f"`hidden_layer_sizes` must be integers such as (32, 32); got {value!r}."
        ) from error


def _check_noise(noise: Any, loss: str, n_classes: int) -> None:
    if noise is None:
        raise InvalidInputError(
            f"`noise` must be given for loss={loss!r}: a NoiseModel, a transition matrix, or 'estimate'; got "
            "None. The loss 'peer' does not need it."
        )
    if isinstance(noise, str):
        check_choice(noise, "noise", ("estimate",))
        return
    model = as_noise_model(noise)
    if model.n_classes != n_classes:
        raise InvalidInputError(
            f"`noise` must be for the {n_classes} classes of `y`; got a model of {model.n_classes} classes."
        )


def search_alpha(
    probabilities: FloatArray,
    scoring_alpha: float,
    *,
    y: IntArray,
    weight: FloatArray | None,
    folds: Folds,
    grid: Sequence[float] = ALPHA_GRID,
) -> tuple[float, tuple[float, ...]]:
    """Choose α on held-out noisy labels: the candidate with the best peer score at ``scoring_alpha``.

    ``probabilities`` are those of every candidate, out of ``folds``, (candidates, n, K). Also returns the
    mean score of every candidate over the folds; −inf if it diverged, so that its probabilities are NaN. Of
    equal scores, the α nearest to ``scoring_alpha`` is chosen.
    """
    scores = tuple(_mean_score(table, y, weight, folds, scoring_alpha) for table in probabilities)
    if max(scores) == -np.inf:
        raise DivergenceError(
            "every candidate of alpha='auto' became NaN or infinite. Lower `learning_rate` or use a bounded "
            "`base` such as 'sigmoid'."
        )
    best = max(range(len(grid)), key=lambda i: (scores[i], -abs(grid[i] - scoring_alpha)))
    return float(grid[best]), scores


def rule_for_alpha(plain: FloatArray, y: IntArray, weight: FloatArray | None) -> AutomaticAlpha | None:
    """Apply :func:`automatic_alpha` to out-of-fold probabilities of plain nets; ``None`` if they diverged."""
    if np.isnan(plain).any():
        return None
    weights = np.ones(len(y)) if weight is None else weight
    return automatic_alpha(plain, y, weights, label_frequencies(y, plain.shape[1], weights))


def _mean_score(
    proba: FloatArray, y: IntArray, weight: FloatArray | None, folds: Folds, alpha: float
) -> float:
    if np.isnan(proba).any():
        return -np.inf
    predicted = proba.argmax(axis=1)
    parts = [test for _, test in folds if len(test)]  # a fold may hold out only rows of weight zero
    scores = [
        peer_score(y[i], predicted[i], alpha=alpha, sample_weight=None if weight is None else weight[i])
        for i in parts
    ]
    return float(np.average(scores, weights=[len(part) for part in parts]))


def search_folds(cv: Any, data: FitInput, groups: ArrayLike | None, seed: int) -> Folds:
    """Return the folds of ``cv`` as indices into the rows with a label and a positive weight.

    These are the only rows in training.

    Unlike in :func:`held_out_folds`, a class may have fewer rows than there are folds if ``cv`` is a number
    and there are no groups: the networks know the number of classes and can train without a class.
    """
    used = data.is_used
    if is_fold_count(cv) and groups is None:
        n_folds = DEFAULT_FOLDS if cv is None else int(cv)
        numbers = assign_folds(data.codes[used], n_folds, seed)
        return [(np.flatnonzero(numbers != f), np.flatnonzero(numbers == f)) for f in range(n_folds)]
    place = np.cumsum(used) - 1
    folds = held_out_folds(cv, data, seed=seed, groups=groups)
    return [(place[train], place[test[used[test]]]) for train, test in folds]


def assign_folds(codes: IntArray, n_folds: int, seed: int) -> IntArray:
    """Return fold numbers (n,) with each class spread evenly; a rare class may be absent from some folds."""
    if len(codes) < n_folds:
        raise InvalidInputError(
            f"`cv` must be at most the number of rows; got {n_folds} folds for {len(codes)} rows."
        )
    folds = np.empty(len(codes), dtype=np.int64)
    folds[_shuffled_by_class(codes, (seed, 100))] = np.arange(len(codes)) % n_folds
    return folds


def hold_out(codes: IntArray, fraction: float, seed: int) -> tuple[IntArray, IntArray]:
    """Return training rows and held-out rows, with the classes in proportion."""
    n = len(codes)
    wanted = round(n * fraction)
    if not 1 <= wanted < n:
        raise InvalidInputError(
            f"`validation_fraction` {fraction:g} of {n} rows leaves {n - wanted} for training and {wanted} "
            "for scoring; use more rows, another fraction or early_stopping=False."
        )
    places = np.floor((np.arange(wanted) + 0.5) * n / wanted).astype(np.int64)
    held_out = np.sort(_shuffled_by_class(codes, (seed, 101))[places])
    return np.setdiff1d(np.arange(n), held_out), held_out


def _shuffled_by_class(codes: IntArray, seed: tuple[int, int]) -> IntArray:
    """Return the rows sorted by class, in random order within each class."""
    order = np.random.default_rng(seed).permutation(len(codes))
    return order[np.argsort(codes[order], kind="stable")]


def out_of_fold_probabilities(trained: TrainedNets, X: FloatArray, folds: Folds) -> FloatArray:
    """Return the probabilities of each row from the net that was not trained on it, (settings, n, K).

    The nets are ordered by setting, one per fold. If a net diverged, the table of its setting is NaN.
    """
    n_folds = len(folds)
    tables = np.full((len(trained) // n_folds, len(X), trained.n_classes), np.nan)
    for i, table in enumerate(tables):
        nets = range(i * n_folds, (i + 1) * n_folds)
        if not trained.diverged[list(nets)].any():
            for (_, test), net in zip(folds, nets, strict=True):
                table[test] = trained.mean_probabilities(X[test], nets=[net])
    return tables
