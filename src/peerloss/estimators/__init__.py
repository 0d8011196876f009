"""Classifiers that are right about the true labels, in scikit-learn's form."""

from peerloss.estimators._mlp import RobustMLPClassifier
from peerloss.estimators._peer import PeerClassifier, PeerReport
from peerloss.estimators._perceptron import MarginPerceptron
from peerloss.estimators._persistence import load_model, read_manifest, save_model
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
    "load_model",
    "read_manifest",
    "save_model",
]
