"""Scikit-learn classifiers that are trained on noisy labels and predict the clean ones."""

from peerloss._deprecation import renamed
from peerloss.estimators._baselines import CostSensitiveSVC, MarginPerceptron
from peerloss.estimators._peer_classifier import PeerClassifier, PeerReport
from peerloss.estimators._plug_in import PeerPlugInClassifier
from peerloss.estimators._robust_mlp import RobustMLPClassifier
from peerloss.estimators._table_encoder import TableEncoder

__all__ = [
    "CostSensitiveSVC",
    "MarginPerceptron",
    "PeerClassifier",
    "PeerPlugInClassifier",
    "PeerReport",
    "RobustMLPClassifier",
    "TableEncoder",
]

__getattr__ = renamed(
    __name__, {name: f"peerloss.persistence.{name}" for name in ("load_model", "read_manifest", "save_model")}
)
