"""Scikit-learn classifiers that are trained on noisy labels and predict the clean ones.

``_peer_classifier``, ``_peer_report``, ``portfolio/``
    :class:`PeerClassifier`: a portfolio of models, the clean posterior, and a report.
``_plug_in``
    :class:`PeerPlugInClassifier`: any probabilistic classifier, calibrated and decided with α.
``_robust_mlp``, ``_mlp_checks``, ``_mlp_search``, ``_device_choice``
    :class:`RobustMLPClassifier`: small neural networks; its parameters, and its search for α.
``_perceptron``, ``_svm``
    :class:`MarginPerceptron` and :class:`CostSensitiveSVC`: the baselines of the paper.
``_table_encoder``
    :class:`TableEncoder`: columns of numbers and text as features.
``folds``, ``_fold_classifier``, ``progress``
    Shared by the above: cross-validation folds, ``fit`` with groups, reports of progress.
"""

from peerloss._deprecation import renamed
from peerloss.estimators._peer_classifier import PeerClassifier
from peerloss.estimators._peer_report import PeerReport
from peerloss.estimators._perceptron import MarginPerceptron
from peerloss.estimators._plug_in import PeerPlugInClassifier
from peerloss.estimators._robust_mlp import RobustMLPClassifier
from peerloss.estimators._svm import CostSensitiveSVC
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
