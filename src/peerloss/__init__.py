"""Learning from noisy labels without knowing the noise rates.

The public names are imported when they are first used, so that ``import peerloss`` and ``peerloss --help``
are fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from peerloss._deprecation import warn_renamed
from peerloss._version import __version__

if TYPE_CHECKING:
    from peerloss import functional, metrics, noise, peer_prediction, theory
    from peerloss.audit import find_label_issues
    from peerloss.boosting import PeerBoostingClassifier
    from peerloss.crowd import score_annotators
    from peerloss.datasets import list_datasets, load_dataset
    from peerloss.estimators import (
        CostSensitiveSVC,
        MarginPerceptron,
        PeerClassifier,
        PeerPlugInClassifier,
        RobustMLPClassifier,
    )
    from peerloss.losses import (
        AlphaSchedule,
        BackwardLoss,
        DMILoss,
        FDivergenceLoss,
        ForwardLoss,
        PeerLoss,
        PlainLoss,
    )
    from peerloss.metrics import make_peer_scorer, peer_score, peer_scorer
    from peerloss.noise import NoiseModel, estimate_noise, flip_labels
    from peerloss.persistence import load_model, save_model

#: Package → public names that are imported from it.
_PACKAGES = {
    "audit": "find_label_issues",
    "boosting": "PeerBoostingClassifier",
    "crowd": "score_annotators",
    "datasets": "list_datasets load_dataset",
    "estimators": "CostSensitiveSVC MarginPerceptron PeerClassifier PeerPlugInClassifier RobustMLPClassifier",
    "losses": "AlphaSchedule BackwardLoss DMILoss FDivergenceLoss ForwardLoss PeerLoss PlainLoss",
    "metrics": "make_peer_scorer peer_score peer_scorer",
    "noise": "NoiseModel estimate_noise flip_labels",
    "persistence": "load_model save_model",
}
_HOMES = {name: package for package, names in _PACKAGES.items() for name in names.split()}
_MODULES = ("functional", "metrics", "noise", "peer_prediction", "theory")
#: Deprecated name → public name.
_RENAMED = {"BaseLoss": "PlainLoss"}

__all__ = [
    "AlphaSchedule", "BackwardLoss", "CostSensitiveSVC", "DMILoss", "FDivergenceLoss", "ForwardLoss",
    "MarginPerceptron", "NoiseModel", "PeerBoostingClassifier", "PeerClassifier", "PeerLoss",
    "PeerPlugInClassifier", "PlainLoss", "RobustMLPClassifier", "__version__", "estimate_noise",
    "find_label_issues", "flip_labels", "functional", "list_datasets", "load_dataset", "load_model",
    "make_peer_scorer", "metrics", "noise", "peer_prediction", "peer_score", "peer_scorer", "save_model",
    "score_annotators", "theory",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _RENAMED:
        warn_renamed(f"peerloss.{name}", f"peerloss.{_RENAMED[name]}")
        return __getattr__(_RENAMED[name])
    if name in _HOMES:
        value = getattr(import_module(f"peerloss.{_HOMES[name]}"), name)
    elif name in _MODULES:
        value = import_module(f"peerloss.{name}")
    else:
        raise AttributeError(f"module 'peerloss' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
