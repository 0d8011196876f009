"""Scikit-learn classifiers that are trained on noisy labels and predict the clean ones."""

from peerloss._deprecation import renamed
from peerloss.datasets.tables.column_use import describe_columns
from peerloss.datasets.tables.table_encoder import TableEncoder
from peerloss.estimators._baselines import CostSensitiveSVC, MarginPerceptron
from peerloss.estimators._peer_classifier import PeerClassifier
from peerloss.estimators._peer_report import PeerReport
from peerloss.estimators._plug_in import PeerPlugInClassifier
from peerloss.estimators._robust_mlp import RobustMLPClassifier

__all__ = [
    "CostSensitiveSVC",
    "MarginPerceptron",
    "PeerClassifier",
    "PeerPlugInClassifier",
    "PeerReport",
    "RobustMLPClassifier",
    "TableEncoder",
    "describe_columns",
]

__getattr__ = renamed(
    __name__, {name: f"peerloss.persistence.{name}" for name in ("load_model", "read_manifest", "save_model")}
)
