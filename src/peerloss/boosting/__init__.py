"""Gradient boosting with the peer loss, on LightGBM or XGBoost.

``_boosting_classifier``
    :class:`PeerBoostingClassifier`.
``_objectives``
    The gradient of the peer loss, and objectives for users who call either library themselves.
``libraries``
    Training and prediction with either library behind one interface.
``categorical``
    Categorical columns as codes.
"""

from peerloss.boosting._boosting_classifier import PeerBoostingClassifier
from peerloss.boosting._objectives import (
    PeerObjective,
    lightgbm_peer_objective,
    peer_gradient,
    xgboost_peer_objective,
)

__all__ = [
    "PeerBoostingClassifier",
    "PeerObjective",
    "lightgbm_peer_objective",
    "peer_gradient",
    "xgboost_peer_objective",
]
