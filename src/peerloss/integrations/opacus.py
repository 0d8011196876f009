"""Opacus: differentially private training (DP-SGD) with a loss of this package.

DP-SGD clips the gradient of every row, so the loss must be a sum over rows: the gradient of a row must not
depend on other rows. Peer loss with expected peers and a given ``noisy_prior`` is such a sum. With sampled
peers, or with label frequencies that are counted during training, it is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from peerloss._validation import check_count, check_in_range, check_non_negative
from peerloss.exceptions import InvalidInputError
from peerloss.functional.base import as_base, is_built_in
from peerloss.integrations._training_loops import missing_extra
from peerloss.losses import BackwardLoss, DMILoss, FDivergenceLoss, ForwardLoss, PeerLoss, PlainLoss

try:
    from opacus import PrivacyEngine
except ImportError as error:
    raise missing_extra(error, "privacy") from error

if TYPE_CHECKING:
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader

#: Losses whose rows share nothing but the label frequencies.
PRIOR_LOSSES = (PeerLoss, FDivergenceLoss)
ROW_LOSSES = (*PRIOR_LOSSES, PlainLoss, BackwardLoss, ForwardLoss, nn.CrossEntropyLoss)


@dataclass(frozen=True, eq=False)
class PrivateTraining:
    """What a training loop needs, and the privacy that it has spent; :func:`make_private` returns it."""

    model: nn.Module
    """The model, which computes one gradient per row."""
    optimizer: Any
    """The optimiser, which clips the gradients and adds noise."""
    loader: DataLoader[Any]
    """The loader, which draws each row independently. Batches differ in size and can be empty."""
    engine: PrivacyEngine
    """Opacus's engine with its accountant."""
    prior_epsilon: float
    """ε of the label frequencies."""

    def epsilon(self, delta: float) -> float:
        """Return the total ε of (ε, ``delta``)-differential privacy so far: of the steps and frequencies."""
        delta = check_in_range(delta, "delta", 0.0, 1.0, low_open=True, high_open=True)
        steps = self.engine.get_epsilon(delta) if len(self.engine.accountant) else 0.0
        return float(steps) + self.prior_epsilon


def make_private(
    model: nn.Module,
    optimizer: Optimizer,
    loader: DataLoader[Any],
    loss: nn.Module,
    *,
    target_epsilon: float,
    target_delta: float,
    epochs: int,
    prior_epsilon: float | None = None,
    max_grad_norm: float = 1.0,
    accountant: str = "prv",
    secure_mode: bool = False,
) -> PrivateTraining:
    """Prepare a training loop for differential privacy with Opacus, after checking the loss.

    **Guarantee.** If one row is added to the data or removed, the probability of every set of trained weights
    changes at most by the factor e^ε, up to δ. This holds for the weights and everything computed from them,
    after at most ``epochs`` passes over the returned loader. The noise of the steps is chosen so that they
    cost at most ``target_epsilon − prior_epsilon``.

    **What else must not come from these rows:** α, T, ``score_matrix``, class weights, learning rate, the
    number of epochs, and statistics with which features are standardised. If they were chosen on the private
    data, they cost privacy that is not counted here. Labels that were released before
    (:func:`~peerloss.noise.release_labels`) are not private any more; their frequencies may be counted.

    Parameters
    ----------
    model
        Without batch normalisation, which mixes rows; Opacus refuses such models and names the layers.
    optimizer
        Of the parameters of ``model``.
    loader
        Over the training rows. Its batch size becomes the *mean* size of the batches.
    loss
        A loss of this package, or ``nn.CrossEntropyLoss``, that :func:`check_private_loss` accepts. If its
        reduction is a mean, it refuses ignored labels from now on: the weight of a row would depend on how
        many other rows are ignored. Use ``reduction="sum"`` with ignored labels.
    target_epsilon, target_delta
        ε and δ of the whole training, the label frequencies included. δ should be well below 1/n.
    epochs
        Number of passes over the loader.
    prior_epsilon
        What the ``noisy_prior`` of the loss cost: ε of
        :func:`~peerloss.noise.private_label_frequencies`, or 0 if it does not come from these labels.
        Required for losses with a prior; omit it for others.
    max_grad_norm
        Gradients of rows are clipped to this length.
    accountant
        ``"prv"``, ``"rdp"`` or another accountant of Opacus.
    secure_mode
        Whether Opacus draws its noise from a cryptographic generator, which needs the package torchcsprng.
        Without it, Opacus warns: use the result for experiments only.

    Raises
    ------
    InvalidInputError
        If the loss is not a sum over rows, if the cost of its prior is not stated, or if that cost leaves no
        ε, or too little, for training.

    Examples
    --------
    >>> import torch, warnings
    >>> from torch.utils.data import DataLoader, TensorDataset
    >>> X, y = torch.zeros(100, 2), torch.arange(100) % 2
    >>> model, loss = nn.Linear(2, 2), PeerLoss(noisy_prior=[0.5, 0.5])
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> options = {"target_epsilon": 3.0, "target_delta": 1e-4, "epochs": 1, "prior_epsilon": 0.0}
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # no secure generator
    ...     private = make_private(model, optimizer, DataLoader(TensorDataset(X, y), 20), loss, **options)
    >>> private.epsilon(1e-4)
    0.0
    """
    check_private_loss(loss)
    spent = _check_prior_epsilon(loss, prior_epsilon)
    total = check_non_negative(target_epsilon, "target_epsilon", positive=True)
    delta = check_in_range(target_delta, "target_delta", 0.0, 1.0, low_open=True, high_open=True)
    if spent >= total:
        raise InvalidInputError(
            f"`target_epsilon` must be above `prior_epsilon`; got {total:g} and {spent:g}, which leaves no ε "
            "for training. Release the frequencies with a smaller ε, or raise `target_epsilon`."
        )
    engine = PrivacyEngine(accountant=accountant, secure_mode=secure_mode)
    try:
        private, optimizer, loader = engine.make_private_with_epsilon(
            module=model,
            optimizer=optimizer,
            data_loader=loader,
            target_epsilon=total - spent,
            target_delta=delta,
            epochs=check_count(epochs, "epochs"),
            max_grad_norm=check_non_negative(max_grad_norm, "max_grad_norm", positive=True),
            loss_reduction=loss.reduction,
        )
    except ValueError as error:
        if "budget is too low" not in str(error):
            raise
        raise InvalidInputError(
            f"`target_epsilon` must leave enough ε for training; got target_epsilon={total:g} and "
            f"prior_epsilon={spent:g}, and Opacus finds no noise for the rest. Release the frequencies with "
            "a smaller ε, raise `target_epsilon` or `target_delta`, or train fewer epochs."
        ) from error
    if loss.reduction == "mean":
        loss.register_forward_pre_hook(_refuse_ignored, with_kwargs=True)
    return PrivateTraining(private, optimizer, loader, engine, spent)


def check_private_loss(loss: nn.Module) -> None:
    """Raise an error unless ``loss`` is a sum (or mean) over rows, so that DP-SGD can bound each row.

    Raises
    ------
    InvalidInputError
        For sampled peers and for DMI, whose rows share a loss; if label frequencies are counted; for class
        weights with a mean, which is divided by the weights of all rows; and for other losses, subclasses
        and base losses of your own, which cannot be checked.

    Examples
    --------
    >>> check_private_loss(PeerLoss(noisy_prior=[0.3, 0.7]))
    >>> check_private_loss(PeerLoss(peers="sampled", noisy_prior=[0.3, 0.7]))
    Traceback (most recent call last):
        ...
    peerloss.exceptions.InvalidInputError: `loss` must have expected peers for private training...
    """
    if isinstance(loss, DMILoss):
        raise InvalidInputError(
            "`loss` must be a sum over rows for private training; DMILoss is a determinant of the whole "
            "batch, so rows have no gradients of their own. Use PeerLoss(noisy_prior=...)."
        )
    if type(loss) not in ROW_LOSSES:  # a subclass may mix rows
        raise InvalidInputError(
            f"`loss` must be a loss of this package or nn.CrossEntropyLoss; got {type(loss).__name__}, for "
            "which a sum over rows cannot be verified. If it is one, call Opacus directly."
        )
    base = getattr(loss, "base", None)
    if base is not None and not is_built_in(base):
        raise InvalidInputError(
            f"`loss` must have a base loss of this package for private training; got base={as_base(base)!r}, "
            "for which a sum over rows cannot be verified. If it is one, call Opacus directly."
        )
    if isinstance(loss, PeerLoss) and loss.peers != "expected":
        raise InvalidInputError(
            f"`loss` must have expected peers for private training; got peers={loss.peers!r}: the loss of a "
            "row would depend on the rows that were drawn as its peers, so clipping its gradient would not "
            "limit the influence of a row. Use PeerLoss(peers='expected', noisy_prior=...)."
        )
    if isinstance(loss, PRIOR_LOSSES) and loss.noisy_prior is None:
        raise InvalidInputError(
            "`loss` must have a given `noisy_prior` for private training: counted label frequencies are data "
            "of all rows. Pass noisy_prior=private_label_frequencies(labels, epsilon, classes=...), whose ε "
            "is part of the total, or frequencies that do not come from these labels."
        )
    if loss.reduction not in {"mean", "sum"}:
        raise InvalidInputError(
            f"`loss` must have reduction='mean' or 'sum'; got {loss.reduction!r}. Opacus scales the "
            "gradients of rows by it."
        )
    if loss.reduction == "mean" and loss.weight is not None:
        raise InvalidInputError(
            "`loss` must have reduction='sum' if it has class weights: a mean is divided by the weights of "
            "all rows of the batch, so rows would depend on each other. Divide the learning rate by the "
            "batch size."
        )


def _check_prior_epsilon(loss: nn.Module, prior_epsilon: float | None) -> float:
    if not isinstance(loss, PRIOR_LOSSES):
        if prior_epsilon is not None:
            raise InvalidInputError(
                f"`prior_epsilon` is for losses with a `noisy_prior`; {type(loss).__name__} has none. Omit "
                "it."
            )
        return 0.0
    if prior_epsilon is None:
        raise InvalidInputError(
            "`prior_epsilon` must state what the `noisy_prior` of the loss cost: pass the ε of "
            "private_label_frequencies, or 0 if the prior does not come from these labels."
        )
    return check_non_negative(prior_epsilon, "prior_epsilon")


def _refuse_ignored(loss: Any, inputs: tuple[Tensor, ...], named: dict[str, Tensor]) -> None:
    target = named["target"] if "target" in named else inputs[1]
    is_soft = target.is_floating_point()
    if (target.isnan() if is_soft else target.eq(loss.ignore_index)).any():
        found = "rows of NaN" if is_soft else f"the ignored label {loss.ignore_index}"
        raise InvalidInputError(
            f"`target` must not hold {found} in private training with reduction='mean': the weight of a row "
            "would depend on other rows. Drop these rows, or use reduction='sum'."
        )
