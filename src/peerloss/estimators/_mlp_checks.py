"""Check the parameters of RobustMLPClassifier, and resolve its deprecated losses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from peerloss._deprecation import warn_renamed
from peerloss._validation import check_choice, check_count, check_in_range
from peerloss.estimators.folds import check_cv_kind
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import as_base, check_trainable_base, trainable_bases
from peerloss.functional.peer import PEERS
from peerloss.noise import as_noise_model
from peerloss.posterior.decision import check_alpha_or_auto

if TYPE_CHECKING:
    from peerloss.estimators._robust_mlp import RobustMLPClassifier

#: Losses that use ``noise``.
CORRECTIONS = ("backward", "forward")
LOSSES = ("peer", *CORRECTIONS, "dmi")
#: Deprecated losses, with the parameters to use instead.
DEPRECATED_LOSSES = {
    "surrogate": 'loss="backward"',
    "plain": 'loss="peer", alpha=0',
    "gce": 'loss="peer", alpha=0, base="gce"',
    "symmetric": 'loss="peer", alpha=0, base="sigmoid"',
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
    """Translate deprecated losses."""
    given = LossChoice(model.loss, model.base, model.alpha, model.peers)
    if not (isinstance(model.loss, str) and model.loss in DEPRECATED_LOSSES):
        return given
    warn_renamed(f'loss="{model.loss}"', DEPRECATED_LOSSES[model.loss], stacklevel=6)
    if model.loss == "surrogate":
        return given._replace(loss="backward")
    base = "gce" if model.loss == "gce" else model.base
    if model.loss == "symmetric":
        symmetric = tuple(name for name in trainable_bases() if as_base(name).symmetric)
        base = "sigmoid" if base == "cross_entropy" else check_choice(base, "base", symmetric)
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
