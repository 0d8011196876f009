"""What one training is made of: rows, labels, a loss, an optimiser's settings and a seed of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import label_frequencies
from peerloss._validation import (
    FloatArray,
    IntArray,
    as_float_array,
    as_prior,
    check_choice,
    check_count,
    check_finite,
    check_in_range,
    check_same_length,
)
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import BASES, DEFAULT_EPS
from peerloss.functional.information import DEFAULT_DMI_EPS
from peerloss.functional.peer import PEERS
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

LOSSES = ("peer", "backward", "forward", "dmi")


def trainable_bases() -> tuple[str, ...]:
    """Return the names of the base losses that have a gradient, those registered later included."""
    return tuple(name for name in BASES if name != "zero_one")


@dataclass(frozen=True, eq=False)
class Net:
    """One training of :func:`train_nets`.

    Parameters
    ----------
    y
        Noisy class codes 0..K-1, one for each of the net's rows.
    rows
        Indices of the net's rows; ``None`` means all.
    X
        Features of its own; ``None`` means the shared ones.
    weight
        Non-negative weights of the rows. They multiply rows and the counted prior; only ratios count.
    loss
        ``"peer"`` (``alpha=0`` is the plain loss), ``"backward"``, ``"forward"`` or ``"dmi"``.
    base
        Base loss of ``"peer"`` and ``"backward"``.
    alpha, peers, noisy_prior
        Of ``"peer"``; the prior is counted over the net's rows where ``None``.
    transition
        T of ``"backward"`` and ``"forward"``.
    eps
        Clip of cross entropy.
    dmi_eps
        ``eps`` of :func:`~peerloss.functional.dmi_loss`: sets the floor of |det J| for ``"dmi"``.
    learning_rate, weight_decay
        Of AdamW; weights decay, biases do not.
    warm_start
        Number of first steps that minimise plain cross entropy. DMI cannot tell classes apart without them.
    seed
        Decides first weights, batches and sampled peers, independently of every other net.
    """

    y: ArrayLike
    rows: ArrayLike | None = None
    X: ArrayLike | None = None
    weight: ArrayLike | None = None
    loss: str = "peer"
    base: str = "cross_entropy"
    alpha: float = 1.0
    peers: str = "expected"
    noisy_prior: ArrayLike | None = None
    transition: NoiseModel | ArrayLike | None = None
    eps: float = DEFAULT_EPS
    dmi_eps: float = DEFAULT_DMI_EPS
    learning_rate: float = 7e-4
    weight_decay: float = 0.0
    warm_start: int = 0
    seed: int | tuple[int, ...] = 0


@dataclass(frozen=True)
class Objective:
    """Which function of the logits is minimised; nets with equal objectives are computed together."""

    family: str
    """``"linear"`` in the loss matrix, ``"forward"`` or ``"dmi"``."""
    base: str
    eps: float


@dataclass(frozen=True, eq=False)
class PreparedNet:
    """A checked net in the form that batches are cut from."""

    net: Net
    rows: IntArray
    """Row numbers in the table of all features."""
    codes: IntArray
    weight: FloatArray | None
    """Mean 1, or ``None`` for equal weights."""
    coefficients: FloatArray
    """(K, K): what a row of label y multiplies the loss matrix (forward: adds to log p) with."""
    objective: Objective

    @property
    def warm_objective(self) -> Objective:
        """What is minimised during the warm start."""
        return Objective("linear", "cross_entropy", self.net.eps)

    @property
    def group(self) -> tuple[Any, ...]:
        """Nets with equal keys share one objective at every step."""
        return (self.objective.family, self.objective.base, self.objective.eps, self.net.warm_start)


def prepare_net(net: Net, rows: IntArray, codes: IntArray, n_classes: int, name: str) -> PreparedNet:
    """Check one net whose rows and labels are known; turn its loss into coefficients of the loss matrix."""
    check_same_length(**{f"{name}.y": codes, f"{name}.rows": rows})
    check_choice(net.loss, f"{name}.loss", LOSSES)
    check_choice(net.base, f"{name}.base", trainable_bases())
    check_choice(net.peers, f"{name}.peers", PEERS)
    check_finite(net.alpha, f"{name}.alpha")
    check_in_range(net.eps, f"{name}.eps", 0.0, 1.0)
    check_in_range(net.dmi_eps, f"{name}.dmi_eps", 0.0, 1.0)
    check_in_range(net.learning_rate, f"{name}.learning_rate", 0.0, float("inf"), low_open=True)
    check_in_range(net.weight_decay, f"{name}.weight_decay", 0.0, float("inf"))
    check_count(net.warm_start, f"{name}.warm_start", minimum=0)
    weight = None if net.weight is None else _check_weight(net.weight, codes, name)
    return PreparedNet(
        net, rows, codes, weight, _coefficients(net, codes, weight, n_classes, name), _objective(net)
    )


def _check_weight(value: ArrayLike, codes: IntArray, name: str) -> FloatArray:
    weight = as_float_array(value, f"{name}.weight", ndim=1)
    check_same_length(**{f"{name}.weight": weight, f"{name}.y": codes})
    if (weight < 0).any() or not weight.any():
        raise InvalidInputError(
            f"`{name}.weight` must be non-negative and not zero throughout; got minimum {weight.min():g}."
        )
    normalised: FloatArray = weight / weight.mean()
    return normalised


def _coefficients(
    net: Net, codes: IntArray, weight: FloatArray | None, n_classes: int, name: str
) -> FloatArray:
    identity: FloatArray = np.eye(n_classes)
    if net.loss == "peer" and net.peers == "expected":
        if net.noisy_prior is None:
            noisy_prior = label_frequencies(codes, n_classes, weight)
        else:
            noisy_prior = as_prior(net.noisy_prior, f"{name}.noisy_prior", n_classes=n_classes)
        return identity - net.alpha * noisy_prior
    if net.loss in ("backward", "forward"):
        if net.transition is None:
            raise InvalidInputError(
                f"`{name}.transition` must be given for loss={net.loss!r}; got None. Pass a NoiseModel, or "
                "use the loss 'peer', which needs none."
            )
        noise = as_noise_model(net.transition, f"{name}.transition")
        if noise.n_classes != n_classes:
            raise InvalidInputError(
                f"`{name}.transition` must be for {n_classes} classes; got {noise.n_classes}."
            )
        if net.loss == "backward":
            return noise.inverse()
        with np.errstate(divide="ignore"):
            log_transition: FloatArray = np.log(noise.transition.T)
        return log_transition
    return identity


def _objective(net: Net) -> Objective:
    if net.loss == "dmi":
        return Objective("dmi", "cross_entropy", net.dmi_eps)
    if net.loss == "forward":
        return Objective("forward", "cross_entropy", 0.0)
    if net.base == "logistic":
        return Objective("linear", "cross_entropy", 0.0)
    return Objective("linear", net.base, net.eps if net.base == "cross_entropy" else 0.0)
