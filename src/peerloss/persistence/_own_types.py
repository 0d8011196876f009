"""The classes that ``state.json`` may name, and the fields that earlier versions wrote under other names.

No other class is ever built, whatever a file contains.
"""

from __future__ import annotations

from typing import Any

from sklearn import ensemble, tree
from sklearn.pipeline import Pipeline

from peerloss.boosting import PeerBoostingClassifier, PeerObjective
from peerloss.boosting.libraries import BoosterSettings, CategoricalColumns, TrainedBooster
from peerloss.datasets.tables.sparse_encoder import SparseEncoder
from peerloss.estimators import (
    CostSensitiveSVC,
    MarginPerceptron,
    PeerClassifier,
    PeerPlugInClassifier,
    PeerReport,
    RobustMLPClassifier,
    TableEncoder,
)
from peerloss.estimators.portfolio import FoldBooster, FoldNet, KernelRidge, Member, SparseLogistic
from peerloss.noise import NoiseModel
from peerloss.posterior import NoisePosterior, TabulatedPosterior
from peerloss.posterior.calibrator import Calibrator
from peerloss.posterior.decision import CleanMap
from peerloss.posterior.many_classes import CleanCurve, CleanCurves
from peerloss.training import TrainedNets

#: Name in the file → class. The names stay when classes are moved or renamed. Pipelines are listed because
#: they contain classifiers of this library, trees because compiled code would copy their nodes before they
#: can be checked, and ensembles because they contain trees.
OWN_TYPES: dict[str, type] = {
    "AdaBoostClassifier": ensemble.AdaBoostClassifier,
    "BaggingClassifier": ensemble.BaggingClassifier,
    "Calibrator": Calibrator,
    "CategoricalColumns": CategoricalColumns,
    "CleanCurve": CleanCurve,
    "CleanCurves": CleanCurves,
    "CleanMap": CleanMap,
    "CostSensitiveSVC": CostSensitiveSVC,
    "DecisionTreeClassifier": tree.DecisionTreeClassifier,
    "DecisionTreeRegressor": tree.DecisionTreeRegressor,
    "ExtraTreeClassifier": tree.ExtraTreeClassifier,
    "ExtraTreesClassifier": ensemble.ExtraTreesClassifier,
    "FoldBooster": FoldBooster,
    "FoldNet": FoldNet,
    "GradientBoostingClassifier": ensemble.GradientBoostingClassifier,
    "KernelRidge": KernelRidge,
    "MarginPerceptron": MarginPerceptron,
    "Member": Member,
    "NoiseModel": NoiseModel,
    "NoisePosterior": NoisePosterior,
    "PeerBoostingClassifier": PeerBoostingClassifier,
    "PeerClassifier": PeerClassifier,
    "PeerObjective": PeerObjective,
    "PeerPlugInClassifier": PeerPlugInClassifier,
    "PeerReport": PeerReport,
    "Pipeline": Pipeline,
    "Plan": BoosterSettings,
    "RandomForestClassifier": ensemble.RandomForestClassifier,
    "RobustMLPClassifier": RobustMLPClassifier,
    "SparseEncoder": SparseEncoder,
    "SparseLogistic": SparseLogistic,
    "TableEncoder": TableEncoder,
    "TabulatedPosterior": TabulatedPosterior,
    "Trained": TrainedBooster,
    "TrainedNets": TrainedNets,
    "VotingClassifier": ensemble.VotingClassifier,
}
#: Name in the file → old name of a field → its present name.
RENAMED_FIELDS = {
    "PeerBoostingClassifier": {"_plan": "_settings"},
    "RobustMLPClassifier": {"warm_start_fraction": "warm_up_fraction"},
}
#: Name in the file → fields that earlier versions did not have, with the values that they used.
NEW_FIELDS: dict[str, dict[str, Any]] = {
    "CostSensitiveSVC": {"table_": None, "medians_": None, "verbose": False},
    "MarginPerceptron": {"table_": None, "medians_": None, "verbose": False},
    "PeerBoostingClassifier": {
        "n_folds": 5,
        "clean_map_": None,
        "noise_": None,
        "oof_proba_": None,
        "table_": None,
        "verbose": False,
    },
    "PeerClassifier": {"table_": None, "medians_": None, "verbose": False},
    "PeerPlugInClassifier": {"random_state": 0, "table_": None, "medians_": None, "verbose": False},
    "RobustMLPClassifier": {"table_": None, "medians_": None, "verbose": False},
    "TableEncoder": {
        "output": "features",
        "free_text_": [],
        "_text_models": {},
        "_codes": {},
        "_medians": {},
    },
}


def current_fields(name: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an object under their present names, also if an earlier version saved it."""
    renamed = RENAMED_FIELDS.get(name, {})
    return NEW_FIELDS.get(name, {}) | {renamed.get(key, key): value for key, value in fields.items()}
