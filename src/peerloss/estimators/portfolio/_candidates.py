"""The candidates that PeerClassifier compares: models of scikit-learn, and networks, trained in one batch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import softmax
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from peerloss._progress import phase
from peerloss.estimators.portfolio._kernel_ridge import KernelRidgeSettings
from peerloss.posterior.calibrator import as_score_columns
from peerloss.training import Net, TrainedNets, train_nets

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

    from peerloss._classifier import FitInput
    from peerloss._validation import FloatArray
    from peerloss.estimators.folds import Folds

#: Forests with two sizes of leaves compete: at least this many rows, and a share of the rows within limits.
MIN_LEAF_SIZE, ROWS_PER_LARGE_LEAF, LARGE_LEAF_LIMITS = 1, 40, (10, 200)
#: Two classes with few rows have larger leaves: smaller ones follow the wrong labels.
FEW_ROWS, LEAF_SIZES_OF_FEW = 1000, (10, 30)
#: (least number of rows, trees per forest), from few rows to many.
N_TREES = ((0, 60), (1001, 100), (2001, 60))
#: Trees of a forest that is cross-fitted, for each fold.
TREES_PER_FOLD = 40
#: With more rows than this, each tree of a forest is trained on a sample of this size.
MAX_TREE_ROWS = 50_000
#: LightGBM with fewer rows than this has steps of .2 instead of .1, and 63 bins per feature instead of 255:
#: the same held-out loss on development tables in a half to a third of the time.
QUICK_BOOSTING_ROWS = 10_000
#: Components of the kernel approximation: at least, per row, at most; and at most half of the rows.
MIN_COMPONENTS, ROWS_PER_COMPONENT, MAX_COMPONENTS = 300, 10, 600
#: Name of the candidate → gamma of the kernel times the number of features, whose variances are 1.
KERNELS = {"wide kernel": 0.25, "narrow kernel": 1.0}
#: Penalties of kernel ridge regression; two classes with few rows have larger ones, like leaves.
PENALTIES, PENALTIES_OF_FEW = (0.03, 0.3, 3.0), (3.0, 30.0)
#: Inverse strengths of the penalty of logistic regression on sparse features.
SPARSE_STRENGTHS = (0.05, 0.5, 5.0)
#: With at least this many features, one H200 trains the networks of all folds as fast as 16 CPU cores.
GPU_FEATURES = 2048
#: Width of the two hidden layers and training steps of the small networks, which are always trained.
SMALL_NETWORK = (32, 1000)
#: (least number of rows, width, training steps) of the wide networks, from few rows to many. With 2,000 to
#: 6,000 rows they gained nothing beside the kernels on development tables, in a third of the time of a fit.
WIDE_NETWORKS = ((20_000, 128, 4000),)


def candidate_models(n_rows: int, n_features: int, n_classes: int, *, seed: int) -> dict[str, Any]:
    """Return the models by name, for standardised features; their capacity grows with the rows.

    The noisier the labels, the more of them must be averaged for their majority to be right. The noise is not
    known, so forests compete with several sizes of leaves and strengths of shrinkage, and the number of
    boosting rounds is chosen on held-out rows.
    """
    components = min(max(MIN_COMPONENTS, n_rows // ROWS_PER_COMPONENT), MAX_COMPONENTS, max(2, n_rows // 2))
    penalties = PENALTIES_OF_FEW if _is_small(n_rows, n_classes) else PENALTIES
    models: dict[str, Any] = {
        "logistic C=.001": LogisticRegression(C=0.001, max_iter=500),
        "logistic C=.01": LogisticRegression(C=0.01, max_iter=500),
        "logistic C=.1": LogisticRegression(C=0.1, max_iter=500),
        "boosting": _boosting(n_rows, n_classes, seed),
    }
    kernels = {
        name: KernelRidgeSettings(gamma / n_features, penalties, components, seed)
        for name, gamma in KERNELS.items()
    }
    return models | kernels | _forests(n_rows, n_classes, seed)


def _is_small(n_rows: int, n_classes: int) -> bool:
    return n_classes == 2 and n_rows <= FEW_ROWS


@dataclass(frozen=True)
class LightGBMSettings:
    """LightGBM as a candidate."""

    parameters: dict[str, Any]
    """Those of its ``train``."""
    patience: int
    """Training stops after this many rounds without a smaller held-out loss."""
    max_trees: int
    """Most trees if there are more than ``least_rounds`` rounds; a round has one tree per class."""
    least_rounds: int


def _boosting(n_rows: int, n_classes: int, seed: int) -> HistGradientBoostingClassifier | LightGBMSettings:
    """Return LightGBM if it is installed, else scikit-learn's boosting; the number of rounds is open."""
    leaves = 7 if n_rows < 1000 else 15 if n_rows < 10_000 else 31
    min_rows = 20 if n_rows >= 400 else max(5, n_rows // 20)
    if has_lightgbm():
        is_quick = n_rows < QUICK_BOOSTING_ROWS
        many = {"objective": "multiclass", "num_class": n_classes}
        parameters: dict[str, Any] = {
            "num_leaves": leaves,
            "learning_rate": 0.2 if is_quick else 0.1,
            "max_bin": 63 if is_quick else 255,
            "min_data_in_leaf": min_rows,
            "min_data_per_group": min_rows,
            "lambda_l2": 5.0,
            "feature_fraction_bynode": 0.5,
            "force_row_wise": True,
            "num_threads": 1,
            "seed": seed % 2**31,
            "verbose": -1,
        }
        parameters |= many if n_classes > 2 else {"objective": "binary"}
        limits = (10, 500, 25) if is_quick else (15, 800, 40)
        return LightGBMSettings(parameters, *limits)
    return HistGradientBoostingClassifier(
        learning_rate=0.1,
        max_leaf_nodes=leaves,
        min_samples_leaf=min_rows,
        l2_regularization=5.0,
        max_features=0.5,
        early_stopping=False,
        warm_start=True,
        random_state=seed,
    )


@cache
def has_lightgbm() -> bool:
    """Return whether LightGBM can be imported."""
    try:
        import_module("lightgbm")
    except (ImportError, OSError):  # OSError: its compiled library needs another one that is missing
        return False
    return True


def is_forest(model: Any) -> bool:
    """Return whether a model is a random forest or extra trees."""
    return isinstance(model, RandomForestClassifier | ExtraTreesClassifier)


def is_boosting(model: Any) -> bool:
    """Return whether the number of rounds of a model is chosen on held-out rows."""
    return isinstance(model, HistGradientBoostingClassifier | LightGBMSettings)


class SparseLogistic(LogisticRegression):
    """Logistic regression on the sparse features of a table with free text, or of a sparse matrix."""


def sparse_models() -> dict[str, SparseLogistic]:
    """Return the models for sparse features by name."""
    return {f"sparse logistic C={C:g}": SparseLogistic(C=C, max_iter=500) for C in SPARSE_STRENGTHS}


def features_for(model: Any, X: FloatArray, trees: FloatArray | None, wide: Any = None) -> Any:
    """Return the features that a model uses.

    These are ``trees``, if the table has mixed columns and the model has trees, and ``wide``, if the model is
    for sparse features.
    """
    if isinstance(model, SparseLogistic):
        return wide
    has_trees = is_forest(model) or is_boosting(model) or isinstance(model, FoldBooster)
    return trees if trees is not None and has_trees else X


def _forests(n_rows: int, n_classes: int, seed: int) -> dict[str, BaseEstimator]:
    """Return random forests and extra trees; both draw bootstrap samples, for out-of-bag probabilities."""
    options: dict[str, Any] = {
        "n_estimators": [trees for least, trees in N_TREES if n_rows >= least][-1],
        "bootstrap": True,
        "max_samples": MAX_TREE_ROWS if n_rows > MAX_TREE_ROWS else None,
        "random_state": seed,
    }
    kinds = {"forest": RandomForestClassifier, "extra trees": ExtraTreesClassifier}
    large = int(np.clip(n_rows // ROWS_PER_LARGE_LEAF, *LARGE_LEAF_LIMITS))
    if _is_small(n_rows, n_classes):
        leaves = [(kind, leaf) for kind in kinds for leaf in LEAF_SIZES_OF_FEW]
    else:  # extra trees with large leaves had almost no weight on development tables
        leaves = [("forest", MIN_LEAF_SIZE), ("forest", large), ("extra trees", MIN_LEAF_SIZE)]
    return {f"{kind}, leaf {leaf}": kinds[kind](min_samples_leaf=leaf, **options) for kind, leaf in leaves}


def candidate_networks() -> dict[str, dict[str, Any]]:
    """Return the networks by name, as options of :class:`peerloss.training.Net`.

    The first has peer loss with a bounded base, which limits the influence of rows that it cannot explain.
    The second has plain cross entropy and strong weight decay, for smooth problems.
    """
    sigmoid = {"base": "sigmoid", "alpha": 1.0, "learning_rate": 2e-3, "weight_decay": 0.1}
    logistic = {"base": "logistic", "alpha": 0.0, "learning_rate": 7e-4, "weight_decay": 1.0}
    return {"network, sigmoid peer": sigmoid, "network, cross entropy": logistic}


@dataclass(frozen=True)
class FoldNet:
    """One trained network with the interface of a classifier."""

    trained: TrainedNets
    index: int

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Return probabilities, shape (n, K)."""
        logits = np.asarray(self.trained.logits(X, nets=[self.index])[0], dtype=np.float64)
        return np.asarray(softmax(logits, axis=1), dtype=np.float64)


@dataclass(frozen=True)
class FoldBooster:
    """A LightGBM booster with the interface of a classifier."""

    booster: Any

    def first(self, n_rounds: int) -> FoldBooster:
        """Return the booster of the first rounds, without its training data."""
        from lightgbm import Booster  # noqa: PLC0415 - an optional dependency

        return FoldBooster(Booster(model_str=self.booster.model_to_string(num_iteration=n_rounds)))

    def predict_proba(self, X: FloatArray) -> FloatArray:
        """Return probabilities, shape (n, K)."""
        # Raw scores, since a booster from a model folder has no objective.
        raw = np.asarray(self.booster.predict(X, raw_score=True, num_threads=1), dtype=np.float64)
        return np.asarray(softmax(as_score_columns(raw), axis=1), dtype=np.float64)


def fit_networks(
    data: FitInput, folds: Folds, *, seed: int, device: str
) -> dict[str, list[tuple[FoldNet, FloatArray]]]:
    """Train each network on each fold; return models and held-out probabilities by name.

    With tens of thousands of rows, wide networks are trained too. Small ones remain the best for smooth
    problems with many wrong labels. The list of a network that diverges on any fold is empty.
    """
    wide = [size for least, *size in WIDE_NETWORKS if len(data.codes) >= least]
    with phase("training networks", 0.0, 0.5 if wide else 1.0):
        fitted = _fit_size(data, folds, SMALL_NETWORK, seed=seed, device=device)
    if wide:
        with phase("training wide networks", 0.5, 1.0):
            more = _fit_size(data, folds, (wide[-1][0], wide[-1][1]), seed=seed, device=device)
        fitted |= {f"wide {name}": parts for name, parts in more.items()}
    return fitted


def _fit_size(
    data: FitInput, folds: Folds, size: tuple[int, int], *, seed: int, device: str
) -> dict[str, list[tuple[FoldNet, FloatArray]]]:
    networks = candidate_networks()
    nets = [
        Net(
            data.codes[train], rows=train, weight=data.weight[train], random_state=seed % 2**31 + i, **options
        )
        for options in networks.values()
        for i, (train, _) in enumerate(folds)
    ]
    width, steps = size
    trained = train_nets(
        data.X,
        nets,
        n_classes=len(data.classes),
        hidden_layer_sizes=(width, width),
        max_steps=steps,
        device=device,
    )
    fitted: dict[str, list[tuple[FoldNet, FloatArray]]] = {}
    for i, name in enumerate(networks):
        places = range(i * len(folds), (i + 1) * len(folds))
        models = [] if trained.diverged[list(places)].any() else [FoldNet(trained, place) for place in places]
        fitted[name] = [
            (model, model.predict_proba(data.X[test]))
            for model, (_, test) in zip(models, folds, strict=False)
        ]
    return fitted
