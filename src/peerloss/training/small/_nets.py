"""One training of the engine: rows, labels, a loss, settings of the optimiser and a seed of its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._deprecation import renamed_fields
from peerloss._probabilities import label_frequencies
from peerloss._validation import (
    FloatArray,
    IntArray,
    as_float_array,
    as_labels,
    as_prior,
    check_choice,
    check_count,
    check_finite,
    check_in_range,
    check_same_length,
)
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import DEFAULT_EPS, as_base, check_trainable_base
from peerloss.functional.information import DEFAULT_DMI_EPS
from peerloss.functional.peer import PEERS
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike

    from peerloss.training.small._batches import RealArray

LOSSES = ("peer", "backward", "forward", "dmi")


@renamed_fields(seed="random_state", warm_start="warm_up", transition="noise")
@dataclass(frozen=True, eq=False)
class Net:
    """One training of :func:`train_nets`.

    Parameters
    ----------
    y
        Noisy class codes 0..K-1, one per row of the net.
    rows
        Indices of the net's rows; ``None`` means all.
    X
        Features of this net; ``None`` means the shared ones.
    weight
        Non-negative weights of the rows. They weight both the loss and the counted prior; only their ratios
        matter.
    loss
        ``"peer"`` (``alpha=0`` is the plain loss), ``"backward"``, ``"forward"`` or ``"dmi"``.
    base
        Base loss of ``"peer"`` and ``"backward"``.
    alpha, peers, noisy_prior
        Of ``"peer"``. If ``noisy_prior`` is ``None``, it is counted over the rows of the net.
    noise
        Noise model or T of ``"backward"`` and ``"forward"``.
    eps
        Clip of cross entropy.
    dmi_eps
        ``eps`` of :func:`~peerloss.functional.dmi_loss`, the floor of |det J| for ``"dmi"``.
    learning_rate, weight_decay
        Of AdamW. Weights decay, biases do not.
    warm_up
        Number of first steps that minimise plain cross entropy. ``"dmi"`` needs them, because its value does
        not depend on the order of the classes.
    random_state
        Seed of the first weights, the batches and the sampled peers, independent of every other net.
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
    noise: NoiseModel | ArrayLike | None = None
    eps: float = DEFAULT_EPS
    dmi_eps: float = DEFAULT_DMI_EPS
    learning_rate: float = 7e-4
    weight_decay: float = 0.0
    warm_up: int = 0
    random_state: int | tuple[int, ...] = 0


@dataclass(frozen=True)
class Objective:
    """The function of the logits that is minimised; nets with equal objectives are computed together."""

    family: str
    """``"linear"`` in the loss matrix, ``"forward"`` or ``"dmi"``."""
    base: str
    eps: float


@dataclass(frozen=True, eq=False)
class PreparedNet:
    """A checked net in the form from which batches are drawn."""

    net: Net
    rows: IntArray
    """Row numbers in the table of all features."""
    codes: IntArray
    weight: FloatArray | None
    """Mean 1, or ``None`` for equal weights."""
    coefficients: FloatArray
    """(K, K): row y multiplies the loss matrix of an example with label y (forward: it is added to log p)."""
    objective: Objective

    @property
    def warm_up_objective(self) -> Objective:
        """The objective of the warm-up."""
        return Objective("linear", "cross_entropy", self.net.eps)

    @property
    def group_key(self) -> tuple[Any, ...]:
        """Nets with equal keys have the same objective at every step."""
        return (self.objective.family, self.objective.base, self.objective.eps, self.net.warm_up)


def prepare_nets(
    X: ArrayLike | None, nets: Sequence[Net], n_classes: int, dtype: str = "float32"
) -> tuple[RealArray, list[PreparedNet]]:
    """Check the nets and put all features into one table."""
    if len(nets) == 0:
        raise InvalidInputError("`nets` is empty; pass at least one Net.")
    tables: dict[int, tuple[int, RealArray]] = {}
    # Nets of one search share rows and labels; each array is checked, and held in memory, once.
    seen: dict[tuple[int, int], IntArray] = {}
    labels: dict[int, IntArray] = {}
    prepared, length = [], 0
    for i, net in enumerate(nets):
        source = X if net.X is None else net.X
        if source is None:
            raise InvalidInputError(f"`nets[{i}].X` must be given if there is no shared `X`; got None.")
        if id(source) not in tables:
            name = "X" if net.X is None else f"nets[{i}].X"
            tables[id(source)] = (length, _as_features(source, name, dtype))
            length += len(tables[id(source)][1])
        offset, features = tables[id(source)]
        key = (id(source), id(net.rows))
        if key not in seen:
            seen[key] = _check_rows(net.rows, len(features), i) + offset
        if id(net.y) not in labels:
            labels[id(net.y)] = as_labels(net.y, f"nets[{i}].y", n_classes=n_classes)
        prepared.append(_prepare_net(net, seen[key], labels[id(net.y)], n_classes, f"nets[{i}]"))
    parts = [features for _, features in tables.values()]
    if len({part.shape[1] for part in parts}) > 1:
        raise InvalidInputError(
            f"`X` must have the same number of columns for every net; got {[p.shape[1] for p in parts]}."
        )
    return parts[0] if len(parts) == 1 else np.concatenate(parts), prepared


def _as_features(value: ArrayLike, name: str, dtype: str) -> RealArray:
    ready = isinstance(value, np.ndarray) and value.dtype == dtype and value.ndim == 2 and value.size
    if ready and np.isfinite(value).all():
        return np.ascontiguousarray(value, dtype=dtype)  # saves a float64 copy of large data
    return as_float_array(value, name, ndim=2).astype(dtype, order="C")


def _check_rows(value: ArrayLike | None, n: int, i: int) -> IntArray:
    if value is None:
        return np.arange(n)
    rows = np.asarray(value)
    if rows.ndim != 1 or rows.dtype.kind not in "iu" or rows.size == 0:
        raise InvalidInputError(f"`nets[{i}].rows` must be integer indices, shape (m,); got {rows.dtype}.")
    if rows.min() < 0 or rows.max() >= n:
        raise InvalidInputError(
            f"`nets[{i}].rows` must lie in 0..{n - 1}; found {rows.min()} to {rows.max()}."
        )
    return rows.astype(np.int64)


def _prepare_net(net: Net, rows: IntArray, codes: IntArray, n_classes: int, name: str) -> PreparedNet:
    """Check one net with checked rows and labels; express its loss as coefficients of the loss matrix."""
    check_same_length(**{f"{name}.y": codes, f"{name}.rows": rows})
    check_choice(net.loss, f"{name}.loss", LOSSES)
    check_trainable_base(net.base, f"{name}.base")
    check_choice(net.peers, f"{name}.peers", PEERS)
    check_finite(net.alpha, f"{name}.alpha")
    check_in_range(net.eps, f"{name}.eps", 0.0, 1.0)
    check_in_range(net.dmi_eps, f"{name}.dmi_eps", 0.0, 1.0)
    check_in_range(net.learning_rate, f"{name}.learning_rate", 0.0, float("inf"), low_open=True)
    check_in_range(net.weight_decay, f"{name}.weight_decay", 0.0, float("inf"))
    check_count(net.warm_up, f"{name}.warm_up", minimum=0)
    weight = None if net.weight is None else _check_weight(net.weight, codes, name)
    return PreparedNet(
        net, rows, codes, weight, _coefficients(net, codes, weight, n_classes, name), _objective(net)
    )


def _check_weight(value: ArrayLike, codes: IntArray, name: str) -> FloatArray:
    weight = as_float_array(value, f"{name}.weight", ndim=1)
    check_same_length(**{f"{name}.weight": weight, f"{name}.y": codes})
    if (weight < 0).any() or not weight.any():
        raise InvalidInputError(
            f"`{name}.weight` must be non-negative and not all zero; got minimum {weight.min():g}."
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
        if net.noise is None:
            raise InvalidInputError(
                f"`{name}.noise` must be given for loss={net.loss!r}; got None. Pass a NoiseModel, or use "
                "the loss 'peer', which needs none."
            )
        noise = as_noise_model(net.noise, f"{name}.noise")
        if noise.n_classes != n_classes:
            raise InvalidInputError(f"`{name}.noise` must be for {n_classes} classes; got {noise.n_classes}.")
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
    base = as_base(net.base)
    return Objective("linear", "cross_entropy" if base.log_loss else net.base, base.clip(net.eps))
