"""The methods that are compared. A new one is a function and a line in ``METHODS``.

The keyword arguments of a method's function are the settings that an experiment file may change. If the file
has a list of values, noisy validation labels choose among them.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from peerloss.estimators import MarginPerceptron, PeerClassifier, PeerPlugInClassifier
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from peerloss.experiments.tables._execute_runs import RunData

Options = dict[str, Any]

#: Settings of every network, with the values of the authors' README.
NET_SETTINGS: dict[str, Any] = {
    "width": 8,
    "hidden_layers": 2,
    "learning_rate": 7e-4,
    "weight_decay": 0.0,
    "batch_size": 64,
    "steps": 1000,
}


@dataclass(frozen=True)
class NetMethod:
    """A loss for the small network that all neural methods share; trained in batches by the engine."""

    title: str
    """As in the paper's tables, if they have the method."""
    options: Callable[..., Options]
    """From data and settings to options of :class:`peerloss.training.Net`."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that an experiment file may change, with their defaults."""
        return NET_SETTINGS | _keywords(self.options)


@dataclass(frozen=True)
class EstimatorMethod:
    """A scikit-learn classifier."""

    title: str
    make: Callable[..., Any]
    """From data and settings to the estimator."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings that an experiment file may change, with their defaults."""
        return _keywords(self.make)


def _keywords(function: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(function).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}


def _nn(_: RunData, *, base: str = "logistic") -> Options:
    return {"alpha": 0.0, "base": base}


def _peer(_: RunData, *, alpha: float = 1.0, base: str = "logistic", peers: str = "expected") -> Options:
    return {"alpha": alpha, "base": base, "peers": peers}


def _surrogate(data: RunData, *, base: str = "logistic") -> Options:
    return {"loss": "backward", "noise": data.noise, "base": base}


def _dmi(_: RunData, *, warm_start: int = 500) -> Options:
    return {"loss": "dmi", "warm_up": warm_start}


def _c_svm(_: RunData, *, class_weight: float = 1.0, C: float = 1.0) -> Any:
    # The same as CostSensitiveSVC with a single weight; here the grid searches the weight.
    return SVC(C=C, gamma="auto", class_weight={0: 1.0, 1: class_weight}, cache_size=500)


def _pam(data: RunData, *, margin: float = 0.0, n_epochs: int = 10, average: str = "last") -> Any:
    return MarginPerceptron(
        margin_grid=(margin,), n_epochs=n_epochs, average=average, cv=2, random_state=data.seed
    )


def _logistic(_: RunData, *, C: float = 0.01, alpha: float | str = 1.0, cv: int = 5) -> Any:
    return PeerPlugInClassifier(LogisticRegression(C=C, max_iter=500), alpha=alpha, cv=cv)


def _forest(
    data: RunData, *, leaf: float = 0.025, max_features: float = 0.3, alpha: float | str = 1.0, cv: int = 5
) -> Any:
    forest = RandomForestClassifier(
        100, min_samples_leaf=leaf, max_features=max_features, random_state=data.seed
    )
    return PeerPlugInClassifier(forest, alpha=alpha, cv=cv)


def _boosting(
    data: RunData,
    *,
    leaves: int = 7,
    rounds: int = 40,
    rate: float = 0.1,
    alpha: float | str = 1.0,
    cv: int = 5,
) -> Any:
    trees = HistGradientBoostingClassifier(
        max_iter=rounds,
        max_leaf_nodes=leaves,
        learning_rate=rate,
        min_samples_leaf=max(5, len(data.y_train) // 40),
        early_stopping=False,
        random_state=data.seed,
    )
    return PeerPlugInClassifier(trees, alpha=alpha, cv=cv)


def _peer_classifier(data: RunData) -> Any:
    metric = "balanced_accuracy" if data.prior == "equalized" else "accuracy"
    return PeerClassifier(metric=metric, device="cpu", random_state=data.seed)


METHODS: dict[str, NetMethod | EstimatorMethod] = {
    "peer": NetMethod("Peer", _peer),
    "surrogate": NetMethod("Surr", _surrogate),
    "symmetric": NetMethod("Symm", partial(_nn, base="sigmoid")),
    "dmi": NetMethod("DMI", _dmi),
    "nn": NetMethod("NN", _nn),
    "c-svm": EstimatorMethod("C-SVM", _c_svm),
    "pam": EstimatorMethod("PAM", _pam),
    "plug-in-logistic": EstimatorMethod("Plug-in logistic", _logistic),
    "plug-in-forest": EstimatorMethod("Plug-in forest", _forest),
    "plug-in-boosting": EstimatorMethod("Plug-in boosting", _boosting),
    "peer-classifier": EstimatorMethod("PeerClassifier", _peer_classifier),
}


class Numbers(NamedTuple):
    """Numbers from ``low`` (excluded if ``low_open``) to ``high``, or one of ``names``."""

    low: float
    high: float
    integer: bool = False
    low_open: bool = False
    names: tuple[str, ...] = ()

    def contains(self, value: Any) -> bool:
        """Whether a value is allowed."""
        if isinstance(value, str):
            return value in self.names
        if isinstance(value, bool) or not isinstance(value, int if self.integer else int | float):
            return False
        return (value > self.low if self.low_open else value >= self.low) and value <= self.high

    def __str__(self) -> str:
        """Describe the allowed values."""
        kind = "an integer" if self.integer else "a number"
        low = f"above {self.low:g}, at most" if self.low_open else f"from {self.low:g} to"
        return f"{kind} {low} {self.high:g}" + "".join(f", or {name!r}" for name in self.names)


#: Allowed ranges of settings. Settings that are not listed may be any finite number or name.
NUMBERS = {
    "width": Numbers(1, 4096, integer=True),
    "hidden_layers": Numbers(1, 64, integer=True),
    "learning_rate": Numbers(0, 1e3, low_open=True),
    "weight_decay": Numbers(0, 1e6),
    "batch_size": Numbers(1, 10**6, integer=True),
    "steps": Numbers(1, 10**7, integer=True),
    "alpha": Numbers(-1e6, 1e6, names=("auto",)),
    "warm_start": Numbers(0, 10**7, integer=True),
    "class_weight": Numbers(0, 1e6, low_open=True),
    "C": Numbers(0, 1e12, low_open=True),
    "margin": Numbers(0, 1e6),
    "n_epochs": Numbers(1, 10**6, integer=True),
    "cv": Numbers(2, 1000, integer=True),
    "leaf": Numbers(0, 0.5, low_open=True),
    "max_features": Numbers(0, 1, low_open=True),
    "leaves": Numbers(2, 10**6, integer=True),
    "rounds": Numbers(1, 10**6, integer=True),
    "rate": Numbers(0, 1e3, low_open=True),
}


def check_setting(name: str, value: Any, where: str) -> None:
    """Reject a setting, or a list of values to be searched, that is out of range."""
    values = value if isinstance(value, list) else [value]
    if not values or not all(isinstance(v, int | float | str) for v in values):
        raise InvalidInputError(
            f"{where}: `{name}` must be a number, a name or a list of them; got {value!r}."
        )
    allowed = NUMBERS.get(name)
    for single in values:
        if allowed is not None and not allowed.contains(single):
            raise InvalidInputError(f"{where}: `{name}` must be {allowed}; got {single!r}.")
