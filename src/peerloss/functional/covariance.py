"""Noise that depends on the row: take its covariance with the loss out of the labels (second order, CAL)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from peerloss._validation import SOFT_LABEL_TOLERANCE
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import values_are_checkable


def covariance_targets(
    target: Tensor,
    clean: Tensor,
    transitions: Tensor | None = None,
    *,
    mean_transition: Tensor | None = None,
    ignore_index: int = -100,
) -> Tensor:
    r"""Return soft targets whose expected losses are those of class-conditional noise.

    If the noise depends on the row, ``T(x)[i, j] = P(noisy = j | clean = i, x)``, with
    ``T̄[i, j] = E[T(x)[i, j] | clean = i]``, then every loss matrix L has

    ``E L[x, ỹ] = Σ_ij P(i)·T̄[i, j]·E[L[x, j] | i] + Σ_ij P(i)·Cov(T(x)[i, j], L[x, j] | i)``.

    The first sum is the risk under the class-conditional noise T̄, for which the theory of peer loss holds.
    The noisy prior is the same under both. The targets

    ``q[n, j] = 1[ỹ_n = j] − Σ_i P(clean = i | x_n)·(T(x_n)[i, j] − T̄[i, j])``

    leave out the second sum. They sum to one, may be negative, and fit every loss that takes soft targets.
    With two classes, or if ``T̄[i, j] = e_j`` for all i ≠ j, the expected peer loss (α = 1) of q is
    ``(1 − Σe)`` times that of the clean labels; without the correction it is not.

    Errors of ``clean`` count only as far as T(x) differs from T̄. If T(x) is constant, q is the label.

    Parameters
    ----------
    target
        Noisy labels (n,), integers in 0..K-1 or ``ignore_index``.
    clean
        P(clean = i | x_n), shape (n, K). Without ``transitions``: P(clean = i | x_n, ỹ_n), or one-hot rows.
    transitions
        T(x_n), shape (n, K, K), for example from :func:`peerloss.posterior.row_transitions`. If ``None``,
        1[ỹ_n = j] takes the place of T(x_n)[i, j], which has the same covariance, as CAL does. Then
        q = clean @ T̄ and depends on the label through ``clean`` and T̄ only: the result is as good as
        ``clean``, and not better.
    mean_transition
        T̄, shape (K, K). If ``None``, the mean of T(x_n) over these rows, weighted by ``clean``. Pass that of
        all rows if ``target`` is one batch.
    ignore_index
        Rows with this label are left out of the mean; their targets are NaN, which losses ignore.

    Returns
    -------
    Soft targets (n, K) in the dtype of ``clean``.

    Raises
    ------
    InvalidInputError
        For invalid shapes and, on the CPU, rows that do not sum to one or labels out of range.

    Examples
    --------
    >>> easy, hard = torch.eye(2), torch.tensor([[0.6, 0.4], [0.4, 0.6]])
    >>> clean = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> covariance_targets(torch.tensor([0, 1, 1]), clean, torch.stack([easy, hard, easy]))
    tensor([[0.8000, 0.2000],
            [0.2000, 0.8000],
            [0.0000, 1.0000]])

    References
    ----------
    Zhu, Song and Liu, *A Second-Order Approach to Learning with Instance-Dependent Label Noise*, CVPR 2021.
    """
    n, k = _check_clean(clean)
    labelled = _check_codes(target, n, k, ignore_index)
    posterior = _in_single_precision(clean)
    labels = one_hot(target.long().masked_fill(~labelled, 0), k).to(posterior)
    weights = posterior * labelled[:, None]
    if transitions is not None:
        _check_rows(transitions, "transitions", (n, k, k))
        transitions = _in_single_precision(transitions).to(posterior)
    if mean_transition is None:
        joint = (
            weights.T @ labels if transitions is None else torch.einsum("ni,nij->ij", weights, transitions)
        )
        # Divided by its own sums: the sum of `weights`, rounded over many rows, is not exactly the same.
        mean = joint / joint.sum(dim=1, keepdim=True).clamp(min=torch.finfo(joint.dtype).tiny)
    else:
        _check_rows(mean_transition, "mean_transition", (k, k))
        mean = _in_single_precision(mean_transition).to(posterior)
    expected = posterior @ mean
    if transitions is None:
        soft = expected
    else:
        soft = labels - torch.einsum("ni,nij->nj", posterior, transitions) + expected
    return soft.masked_fill(~labelled[:, None], torch.nan).to(clean.dtype)


def _in_single_precision(table: Tensor) -> Tensor:
    """Return probabilities in at least float32; rows in half precision, which is rounded, sum to one again.

    Sums over many rows overflow in float16.
    """
    if table.dtype not in (torch.float16, torch.bfloat16):
        return table
    exact = table.float()
    return exact / exact.sum(dim=-1, keepdim=True)


def _check_clean(clean: Tensor) -> tuple[int, int]:
    if (
        not isinstance(clean, Tensor)
        or not clean.is_floating_point()
        or clean.ndim != 2
        or clean.shape[1] < 2
    ):
        got = tuple(clean.shape) if isinstance(clean, Tensor) else type(clean).__name__
        raise InvalidInputError(
            f"`clean` must be a floating-point tensor (n, K) of class probabilities, K ≥ 2; got {got}. For "
            "class codes use torch.nn.functional.one_hot(codes, K).float()."
        )
    _check_rows(clean, "clean", tuple(clean.shape))
    return clean.shape[0], clean.shape[1]


def _check_codes(target: Tensor, n: int, k: int, ignore_index: int) -> Tensor:
    """Return which rows have a label, (n,) bool."""
    if not isinstance(target, Tensor) or target.is_floating_point() or tuple(target.shape) != (n,):
        got = f"{target.dtype} {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
        raise InvalidInputError(
            f"`target` must be an integer tensor of shape ({n},), one label per row of `clean`; got {got}."
        )
    labelled = target != ignore_index
    if values_are_checkable(target) and (labelled & ((target < 0) | (target >= k))).any():
        raise InvalidInputError(
            f"`target` must hold labels in 0..{k - 1} or ignore_index={ignore_index}; found "
            f"{sorted(set(target[labelled].tolist()))[:8]}."
        )
    return labelled


def _check_rows(table: Tensor, name: str, shape: tuple[int, ...]) -> None:
    """Refuse another shape and rows, in the last dimension, that are not probabilities."""
    if not isinstance(table, Tensor) or not table.is_floating_point() or tuple(table.shape) != shape:
        got = f"{table.dtype} {tuple(table.shape)}" if isinstance(table, Tensor) else type(table).__name__
        raise InvalidInputError(f"`{name}` must be a floating-point tensor of shape {shape}; got {got}.")
    if values_are_checkable(table):
        off = (table.double().sum(dim=-1) - 1.0).abs()
        tolerance = max(SOFT_LABEL_TOLERANCE, torch.finfo(table.dtype).eps)  # of rounding in half precision
        if not bool((off <= tolerance).all() and (table >= 0).all()):
            raise InvalidInputError(
                f"`{name}` must hold probabilities that sum to 1 in the last dimension; found a row that "
                "does not. Divide by the sums."
            )
