"""The parameters of RobustMLPClassifier, checked in ``fit``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from peerloss._validation import check_choice, check_count, check_in_range
from peerloss.estimators._folds import check_cv_kind
from peerloss.exceptions import InvalidInputError
from peerloss.functional.peer import PEERS
from peerloss.noise import as_noise_model
from peerloss.posterior.decision import check_alpha_or_auto
from peerloss.training._device import usable_device
from peerloss.training._nets import trainable_bases

if TYPE_CHECKING:
    from peerloss.estimators._mlp import RobustMLPClassifier

LOSSES = ("peer", "plain", "surrogate", "backward", "forward", "symmetric", "dmi", "gce")
SYMMETRIC_BASES = ("sigmoid", "unhinged", "mae", "ramp")
#: From this width on a GPU, where there is one, beats the compiled loop on the CPU (one net: H200, EPYC).
GPU_WIDTH = 512


def check_parameters(model: RobustMLPClassifier, n_classes: int) -> tuple[int, ...]:
    """Refuse what cannot be used, naming the argument; return the hidden widths."""
    check_choice(model.loss, "loss", LOSSES)
    check_choice(model.base, "base", trainable_bases())
    if model.loss == "symmetric" and model.base != "cross_entropy":
        check_choice(model.base, "base", SYMMETRIC_BASES)
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
    check_in_range(model.warm_start_fraction, "warm_start_fraction", 0.0, 1.0, low_open=True)
    _check_noise(model.noise, model.loss, n_classes)
    return _check_hidden(model.hidden_layer_sizes)


def choose_device(device: str | torch.device, width: int, *, least: int = GPU_WIDTH) -> str:
    """Return the torch device to train on; ``"auto"`` takes a GPU, if there is one, from a ``width`` on."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() and width >= least else "cpu"
    return str(usable_device(device))


def _check_hidden(value: Any) -> tuple[int, ...]:
    widths = (value,) if isinstance(value, int | np.integer) else value
    try:
        return tuple(check_count(width, "hidden_layer_sizes") for width in widths)
    except TypeError as error:
        raise InvalidInputError(
            f"`hidden_layer_sizes` must be integers such as (32, 32); got {value!r}."
        ) from error


def _check_noise(noise: Any, loss: str, n_classes: int) -> None:
    if loss not in ("surrogate", "backward", "forward"):
        return
    if noise is None:
        raise InvalidInputError(
            f"`noise` must be given for loss={loss!r}: a NoiseModel, a transition matrix, or 'estimate'; got "
            "None. The loss 'peer' needs none."
        )
    if isinstance(noise, str):
        check_choice(noise, "noise", ("estimate",))
        return
    model = as_noise_model(noise)
    if model.n_classes != n_classes:
        raise InvalidInputError(
            f"`noise` must be for the {n_classes} classes of `y`; got a model of {model.n_classes}."
        )
