"""A fitted classifier as plain data and back: JSON for its shape, arrays and scikit-learn parts beside it.

Every JSON object has a key ``"$"`` that says what it stands for. Classes are named by the fixed table below:
nothing else is ever built, whatever a file says.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.pipeline import Pipeline
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor, ExtraTreeClassifier
from sklearn.tree._tree import Tree
from sklearn.utils import Bunch

from peerloss.boosting import PeerBoostingClassifier
from peerloss.boosting._backends import Plan, Trained
from peerloss.boosting._columns import CategoricalColumns
from peerloss.boosting._objectives import PeerObjective
from peerloss.estimators._mlp import RobustMLPClassifier
from peerloss.estimators._peer import PeerClassifier, PeerReport, _Member
from peerloss.estimators._perceptron import MarginPerceptron
from peerloss.estimators._plug_in import PeerPlugInClassifier
from peerloss.estimators._svm import CostSensitiveSVC
from peerloss.estimators._table import TableEncoder
from peerloss.estimators.portfolio._networks import FoldNet
from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.noise import NoiseModel
from peerloss.persistence._boosters import load_booster
from peerloss.persistence._state_checks import check_loaded
from peerloss.persistence._trees import tree_from_arrays, tree_to_arrays
from peerloss.posterior import CleanPosterior
from peerloss.posterior.calibrator import Calibrator
from peerloss.posterior.decision import CleanMap
from peerloss.posterior.many_classes import CleanCurve, CleanCurves
from peerloss.training import TrainedNets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

#: Name in the file → class. Names stay when classes move. Pipelines are here because they hold our
#: classifiers, trees because compiled code would copy theirs before they could be checked, and what
#: consists of trees because of the trees.
OWN_TYPES: dict[str, type] = {
    "AdaBoostClassifier": AdaBoostClassifier,
    "BaggingClassifier": BaggingClassifier,
    "Calibrator": Calibrator,
    "CategoricalColumns": CategoricalColumns,
    "CleanCurve": CleanCurve,
    "CleanCurves": CleanCurves,
    "CleanMap": CleanMap,
    "CleanPosterior": CleanPosterior,
    "CostSensitiveSVC": CostSensitiveSVC,
    "DecisionTreeClassifier": DecisionTreeClassifier,
    "DecisionTreeRegressor": DecisionTreeRegressor,
    "ExtraTreeClassifier": ExtraTreeClassifier,
    "ExtraTreesClassifier": ExtraTreesClassifier,
    "FoldNet": FoldNet,
    "GradientBoostingClassifier": GradientBoostingClassifier,
    "MarginPerceptron": MarginPerceptron,
    "Member": _Member,
    "NoiseModel": NoiseModel,
    "PeerBoostingClassifier": PeerBoostingClassifier,
    "PeerClassifier": PeerClassifier,
    "PeerObjective": PeerObjective,
    "PeerPlugInClassifier": PeerPlugInClassifier,
    "PeerReport": PeerReport,
    "Pipeline": Pipeline,
    "Plan": Plan,
    "RandomForestClassifier": RandomForestClassifier,
    "RobustMLPClassifier": RobustMLPClassifier,
    "TableEncoder": TableEncoder,
    "Trained": Trained,
    "TrainedNets": TrainedNets,
    "VotingClassifier": VotingClassifier,
}
_NAMES = {cls: name for name, cls in OWN_TYPES.items()}
#: Names of the files that boosters go to, in the libraries' own formats.
BOOSTER_FILES = {"lightgbm": "booster-{}.txt", "xgboost": "booster-{}.json"}

#: Bytes of an array of text, in which every element is as wide as the declared width.
MAX_TEXT_BYTES = 2**30


@dataclass
class State:
    """What a classifier is made of."""

    root: Any = None
    objects: list[Any] = field(default_factory=list)
    """Each own object once, so that shared ones stay shared."""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    parts: list[tuple[str, Any]] = field(default_factory=list)
    """Attribute and object, for skops."""
    boosters: dict[str, bytes] = field(default_factory=dict)


class Writer:
    """Take a fitted classifier apart."""

    def __init__(self) -> None:
        self.state = State()
        self._places: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is unique only as long as its object lives
        self._encoders: dict[type, Callable[[Any, str], Any]] = {
            float: self._float,
            list: self._list,
            tuple: self._tuple,
            dict: self._dict,
            Bunch: lambda value, name: {"$": "bunch", "items": self._dict(dict(value), name)["items"]},
            np.ndarray: self._array,
            pd.DataFrame: self._frame,
            Tree: self._tree,
        }

    def write(self, model: Any) -> State:
        """Return the state of ``model``."""
        self.state.root = self._encode(model, type(model).__name__)
        return self.state

    def _encode(self, value: Any, name: str) -> Any:
        if value is None or type(value) in {bool, int, str}:
            return value
        if type(value) in _NAMES:
            return self._object(value, name)
        if type(value) in self._encoders:  # exactly these: a subclass may hold more than its parent
            return self._encoders[type(value)](value, name)
        if isinstance(value, np.generic | pd.Index):
            return self._scalar(value, name) if isinstance(value, np.generic) else self._index(value, name)
        if _library(value) in BOOSTER_FILES and type(value).__name__ == "Booster":
            return self._booster(value)
        self.state.parts.append((name, value))
        return {"$": "part", "number": len(self.state.parts) - 1}

    def _float(self, value: float, _: str) -> Any:
        return value if math.isfinite(value) else {"$": "float", "value": str(value)}

    def _list(self, value: list[Any], name: str) -> Any:
        return [self._encode(item, f"{name}[{i}]") for i, item in enumerate(value)]

    def _tuple(self, value: tuple[Any, ...], name: str) -> Any:
        return {"$": "tuple", "items": self._list(list(value), name)}

    def _dict(self, value: dict[Any, Any], name: str) -> Any:
        items = [[self._encode(k, name), self._encode(v, f"{name}[{k!r}]")] for k, v in value.items()]
        return {"$": "dict", "items": items}

    def _scalar(self, value: np.generic, name: str) -> Any:
        return {"$": "scalar", "array": self._array(np.asarray(value), name)}

    def _index(self, value: pd.Index, name: str) -> Any:
        array = self._array(value.to_numpy(), name)
        return {"$": "index", "array": array, "name": self._encode(value.name, name)}

    def _frame(self, value: pd.DataFrame, name: str) -> Any:
        columns = [[str(label), self._array(value[label].to_numpy(), name)] for label in value]
        return {"$": "frame", "index": self._index(value.index, name), "columns": columns}

    def _tree(self, value: Any, name: str) -> Any:
        arrays = [[key, self._array(array, name)] for key, array in tree_to_arrays(value).items()]
        return {"$": "tree", "arrays": arrays}

    def _object(self, value: Any, name: str) -> Any:
        if id(value) not in self._places:
            self._places[id(value)] = len(self.state.objects)
            self._alive.append(value)
            self.state.objects.append(None)
            fields = {key: self._encode(item, f"{name}.{key}") for key, item in _fields(value).items()}
            written = {"type": _NAMES[type(value)], "fields": fields}
            self.state.objects[self._places[id(value)]] = written
        return {"$": "object", "number": self._places[id(value)]}

    def _array(self, array: NDArray[Any], name: str) -> Any:
        shape = list(array.shape)
        if array.dtype.kind in "OU":
            items = self._encode(array.ravel().tolist(), name)
            kind = "object" if array.dtype.kind == "O" else array.dtype.newbyteorder("=").str
            return {"$": "values", "items": items, "dtype": kind, "shape": shape}
        if array.dtype.kind not in "biufmM" or array.dtype.itemsize > 8:
            raise InvalidInputError(
                f"`{name}` is an array of dtype {array.dtype}, which cannot be saved. Use numbers or text."
            )
        native = array.astype(array.dtype.newbyteorder("="), order="C")
        place = f"array-{len(self.state.arrays)}"
        self.state.arrays[place] = native.view(np.int64) if native.dtype.kind in "mM" else native
        dates = {"dtype": native.dtype.str} if native.dtype.kind in "mM" else {}
        return {"$": "array", "name": place, **dates}

    def _booster(self, booster: Any) -> Any:
        library = _library(booster)
        file = BOOSTER_FILES[library].format(len(self.state.boosters))
        content = (
            booster.model_to_string().encode() if library == "lightgbm" else bytes(booster.save_raw("json"))
        )
        self.state.boosters[file] = content
        return {"$": "booster", "library": library, "file": file}


class Reader:
    """Put a classifier together again; everything comes from outside and is checked."""

    def __init__(
        self,
        objects: Sequence[Any],
        *,
        arrays: Mapping[str, NDArray[Any]],
        parts: Sequence[Any],
        boosters: Mapping[str, bytes],
    ) -> None:
        self._written = objects
        self._arrays, self._parts, self._boosters = arrays, parts, boosters
        self._built: dict[int, Any] = {}
        self._open: set[int] = set()
        self._decoders: dict[str, Callable[[Any], Any]] = {
            "float": lambda value: float(value["value"]),
            "tuple": lambda value: tuple(self._decode(value["items"])),
            "dict": lambda value: {self._decode(k): self._decode(v) for k, v in value["items"]},
            "bunch": lambda value: Bunch(**{key: self._decode(v) for key, v in value["items"]}),
            "values": self._values,
            "array": self._array,
            "scalar": lambda value: self._decode(value["array"])[()],
            "index": lambda value: pd.Index(self._decode(value["array"]), name=self._decode(value["name"])),
            "frame": self._frame,
            "tree": self._tree,
            "object": lambda value: self._object(value["number"]),
            "part": lambda value: self._parts[value["number"]],
            "booster": lambda value: load_booster(value["library"], self._boosters[value["file"]]),
        }

    def read(self, root: Any) -> Any:
        """Return the object that ``root`` stands for."""
        try:
            return self._decode(root)
        except ModelFolderError:
            raise
        except Exception as error:  # constructors of hostile values raise what they like
            raise ModelFolderError(f"its state is damaged: {error!r}.") from error

    def _decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value["$"] not in self._decoders:
            raise ModelFolderError(f"its state holds {value['$']!r}, which this version does not know.")
        return self._decoders[value["$"]](value)

    def _values(self, value: Any) -> Any:
        dtype = _dtype(value["dtype"], "OU")
        size = len(value["items"]) * dtype.itemsize
        if size > MAX_TEXT_BYTES:
            raise ModelFolderError(f"its state is damaged: a text array that would need {size} bytes.")
        array = np.empty(len(value["items"]), dtype=dtype)
        array[:] = self._decode(value["items"])
        return array.reshape(value["shape"])

    def _array(self, value: Any) -> Any:
        array = self._arrays[value["name"]]
        return array.view(_dtype(value["dtype"], "mM")) if "dtype" in value else array

    def _frame(self, value: Any) -> Any:
        columns = {label: self._decode(array) for label, array in value["columns"]}
        return pd.DataFrame(columns, index=self._decode(value["index"]))

    def _tree(self, value: Any) -> Any:
        return tree_from_arrays({key: self._decode(array) for key, array in value["arrays"]})

    def _object(self, number: int) -> Any:
        if number in self._built:
            return self._built[number]
        if number in self._open:
            raise ModelFolderError("its state is damaged: an object that holds itself.")
        self._open.add(number)
        written = self._written[number]
        if written["type"] not in OWN_TYPES:
            raise ModelFolderError(
                f"it names the type {written['type']!r}, which is none of this library's. Models hold "
                f"{', '.join(OWN_TYPES)}."
            )
        fields = {str(key): self._decode(item) for key, item in written["fields"].items()}
        self._built[number] = _build(OWN_TYPES[written["type"]], fields)
        return self._built[number]


def _library(value: Any) -> str:
    return type(value).__module__.split(".")[0]


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, NoiseModel):
        return {"transition": np.array(value.transition)}
    if isinstance(value, tuple):
        return dict(value._asdict())  # type: ignore[attr-defined]  # the only tuples here are named ones
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return dict(value.__getstate__())


def _build(cls: Any, fields: dict[str, Any]) -> Any:
    if not issubclass(cls, BaseEstimator):
        return cls(**fields)
    missing = set(cls._get_param_names()) - set(fields)
    if missing:
        raise ModelFolderError(f"its {cls.__name__} lacks {', '.join(sorted(missing))}.")
    estimator = cls.__new__(cls)
    estimator.__setstate__(fields)
    check_loaded(estimator)
    return estimator


def _dtype(name: str, kinds: str) -> np.dtype[Any]:
    dtype = np.dtype(name)
    if dtype.kind not in kinds or dtype.names is not None:
        raise ModelFolderError(f"its state is damaged: an array of dtype {name!r}.")
    return dtype
