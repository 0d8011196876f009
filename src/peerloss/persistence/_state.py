"""Convert a fitted classifier to plain data and back: JSON for its structure, plus arrays and other parts.

The key ``"$"`` of every JSON object names its kind. Classes are named as in ``_own_types``: no other class is
ever built, whatever a file contains.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.tree._tree import Tree
from sklearn.utils import Bunch

from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.noise import NoiseModel
from peerloss.persistence._checked_boosters import load_booster
from peerloss.persistence._content_checks import check_loaded, tree_from_arrays, tree_to_arrays
from peerloss.persistence._own_types import OWN_TYPES, current_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

_NAMES = {cls: name for name, cls in OWN_TYPES.items()}
#: Names of the files with boosters, in the formats of their libraries.
BOOSTER_FILES = {"lightgbm": "booster-{}.txt", "xgboost": "booster-{}.json"}

#: Largest size in bytes of an array of text, whose elements all take the declared width.
MAX_TEXT_BYTES = 2**30


@dataclass
class State:
    """The content of a classifier."""

    root: Any = None
    objects: list[Any] = field(default_factory=list)
    """Each object of ``OWN_TYPES`` once, so that shared objects stay shared."""
    arrays: dict[str, NDArray[Any]] = field(default_factory=dict)
    parts: list[tuple[str, Any]] = field(default_factory=list)
    """Names of attributes and their objects, for skops."""
    boosters: dict[str, bytes] = field(default_factory=dict)


class Writer:
    """Convert a fitted classifier to a :class:`State`."""

    def __init__(self) -> None:
        self.state = State()
        self._places: dict[int, int] = {}
        self._alive: list[Any] = []  # an id is unique only while its object exists
        self._encoders: dict[type, Callable[[Any, str], Any]] = {
            float: lambda value, _: value if math.isfinite(value) else {"$": "float", "value": str(value)},
            list: self._list,
            tuple: lambda value, name: {"$": "tuple", "items": self._list(value, name)},
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
        # Exact types only: a subclass may have more content.
        encode = self._object if type(value) in _NAMES else self._encoders.get(type(value))
        if encode is not None:
            return encode(value, name)
        if isinstance(value, np.generic):
            return {"$": "scalar", "array": self._array(np.asarray(value), name)}
        if isinstance(value, pd.Index):
            return self._index(value, name)
        if _library(value) in BOOSTER_FILES and type(value).__name__ == "Booster":
            return self._booster(value)
        self.state.parts.append((name, value))
        return {"$": "part", "number": len(self.state.parts) - 1}

    def _list(self, value: Sequence[Any], name: str) -> Any:
        return [self._encode(item, f"{name}[{i}]") for i, item in enumerate(value)]

    def _dict(self, value: dict[Any, Any], name: str) -> Any:
        items = [[self._encode(k, name), self._encode(v, f"{name}[{k!r}]")] for k, v in value.items()]
        return {"$": "dict", "items": items}

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
            self.state.objects[self._places[id(value)]] = {"type": _NAMES[type(value)], "fields": fields}
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
        is_text = library == "lightgbm"
        content = booster.model_to_string().encode() if is_text else bytes(booster.save_raw("json"))
        self.state.boosters[file] = content
        return {"$": "booster", "library": library, "file": file}


class Reader:
    """Rebuild a classifier from untrusted data, with every value checked."""

    def __init__(self, objects: Sequence[Any], *, arrays: Any, parts: Sequence[Any], boosters: Any) -> None:
        self._written, self._arrays, self._parts, self._boosters = objects, arrays, parts, boosters
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
            "tree": lambda value: tree_from_arrays({key: self._decode(v) for key, v in value["arrays"]}),
            "object": lambda value: self._object(value["number"]),
            "part": lambda value: self._parts[value["number"]],
            "booster": lambda value: load_booster(value["library"], self._boosters[value["file"]]),
        }

    def read(self, root: Any) -> Any:
        """Return the object that ``root`` describes."""
        try:
            return self._decode(root)
        except ModelFolderError:
            raise
        except Exception as error:  # constructors may raise anything for hostile values
            raise ModelFolderError(f"its state is damaged: {error!r}.") from error

    def _decode(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._decode(item) for item in value]
        if not isinstance(value, dict):
            return value
        if value["$"] not in self._decoders:
            raise ModelFolderError(f"its state contains {value['$']!r}, which this version does not know.")
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

    def _object(self, number: int) -> Any:
        if number in self._built:
            return self._built[number]
        if number in self._open:
            raise ModelFolderError("its state is damaged: an object contains itself.")
        self._open.add(number)
        written = self._written[number]
        if written["type"] not in OWN_TYPES:
            raise ModelFolderError(
                f"it names the type {written['type']!r}, which is not allowed. Allowed types are "
                f"{', '.join(OWN_TYPES)}."
            )
        fields = {str(key): self._decode(item) for key, item in written["fields"].items()}
        self._built[number] = _build(OWN_TYPES[written["type"]], current_fields(written["type"], fields))
        return self._built[number]


def _library(value: Any) -> str:
    return type(value).__module__.split(".")[0]


def _fields(value: Any) -> dict[str, Any]:
    if isinstance(value, NoiseModel):
        return {"transition": np.array(value.transition)}
    if isinstance(value, tuple):
        return dict(value._asdict())  # type: ignore[attr-defined]  # all tuples here are named tuples
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
