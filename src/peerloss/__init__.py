"""Learning from noisy labels without knowing the noise rates.

The public names are imported when they are first used, so that ``import peerloss`` and ``peerloss --help``
are fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from peerloss._deprecation import renamed
from peerloss._lazy_names import lazy_names
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
        LinearPeerLoss,
        PeerLoss,
        PlainLoss,
    )
    from peerloss.metrics import make_peer_scorer, peer_score, peer_scorer
    from peerloss.noise import NoiseModel, estimate_noise, flip_labels
    from peerloss.persistence import load_model, save_model

#: Package → public names that are imported from it.
_NAMES = {
    "audit": "find_label_issues",
    "boosting": "PeerBoostingClassifier",
    "crowd": "score_annotators",
    "datasets": "list_datasets load_dataset",
    "estimators": "CostSensitiveSVC MarginPerceptron PeerClassifier PeerPlugInClassifier RobustMLPClassifier",
    "losses": "AlphaSchedule BackwardLoss DMILoss FDivergenceLoss ForwardLoss LinearPeerLoss PeerLoss "
    "PlainLoss",
    "metrics": "make_peer_scorer peer_score peer_scorer",
    "noise": "NoiseModel estimate_noise flip_labels",
    "persistence": "load_model save_model",
}
#: Packages that are attributes without having been imported.
_MODULES = ("functional", "metrics", "noise", "peer_prediction", "theory")

__all__ = [
    "AlphaSchedule", "BackwardLoss", "CostSensitiveSVC", "DMILoss", "FDivergenceLoss", "ForwardLoss",
    "LinearPeerLoss", "MarginPerceptron", "NoiseModel", "PeerBoostingClassifier", "PeerClassifier",
    "PeerLoss", "PeerPlugInClassifier", "PlainLoss", "RobustMLPClassifier", "__version__", "estimate_noise",
    "find_label_issues", "flip_labels", "functional", "list_datasets", "load_dataset", "load_model",
    "make_peer_scorer", "metrics", "noise", "peer_prediction", "peer_score", "peer_scorer", "save_model",
    "score_annotators", "theory",
]  # fmt: skip

_get_name, __dir__ = lazy_names(__name__, _NAMES, modules=_MODULES)
__getattr__ = renamed(__name__, {"BaseLoss": "peerloss.PlainLoss"}, otherwise=_get_name)
