"""Gradient boosting with the peer loss, on LightGBM or XGBoost."""

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
