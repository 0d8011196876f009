"""Classifiers that are right about the true labels, in scikit-learn's form."""

from peerloss._deprecation import renamed
from peerloss.estimators._mlp import RobustMLPClassifier
from peerloss.estimators._peer import PeerClassifier, PeerReport
from peerloss.estimators._perceptron import MarginPerceptron
from peerloss.estimators._plug_in import PeerPlugInClassifier
from peerloss.estimators._svm import CostSensitiveSVC
from peerloss.estimators._table import TableEncoder

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
    __name__,
    {name: f"peerloss.persistence.{name}" for name in ("load_model", "read_manifest", "save_model")},
)
