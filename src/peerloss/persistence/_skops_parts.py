"""The scikit-learn parts of a model folder, saved by skops: a fixed list of types, and checked content.

skops trusts every estimator of scikit-learn. Compiled code follows the indices of some of them without a
check, so a crafted file could make it read or write outside its arrays. This list has only types whose
predictions run in NumPy, which checks shapes and indices itself, or whose content ``_content_checks``
verifies. A file that names another type is rejected before any object is built.
"""

from __future__ import annotations

import io
import json
import zipfile
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import skops.io

from peerloss._unpacking import check_unpacked_size
from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.persistence._content_checks import check_loaded

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Module of scikit-learn → its estimators, parts of estimators, and splitters for ``cv``.
_OBJECTS = {
    "compose": "ColumnTransformer make_column_selector",
    "decomposition": "PCA TruncatedSVD",
    "discriminant_analysis": "LinearDiscriminantAnalysis QuadraticDiscriminantAnalysis",
    "dummy": "DummyClassifier",
    "ensemble": "HistGradientBoostingClassifier",
    "ensemble._hist_gradient_boosting.binning": "_BinMapper",
    "ensemble._hist_gradient_boosting.predictor": "TreePredictor",
    "feature_extraction.text": "CountVectorizer TfidfTransformer TfidfVectorizer",
    "impute": "MissingIndicator SimpleImputer",
    "kernel_approximation": "Nystroem RBFSampler",
    "linear_model": "LogisticRegression LogisticRegressionCV Perceptron RidgeClassifier RidgeClassifierCV "
    "SGDClassifier",
    "_loss.link": "HalfLogitLink Interval LogitLink MultinomialLogit",
    "_loss.loss": "ExponentialLoss HalfBinomialLoss HalfMultinomialLoss",
    "model_selection": "GroupKFold KFold LeaveOneGroupOut StratifiedGroupKFold StratifiedKFold",
    "naive_bayes": "BernoulliNB ComplementNB GaussianNB MultinomialNB",
    "pipeline": "FeatureUnion Pipeline",
    "preprocessing": "FunctionTransformer LabelBinarizer LabelEncoder MaxAbsScaler MinMaxScaler Normalizer "
    "OneHotEncoder OrdinalEncoder PowerTransformer QuantileTransformer RobustScaler StandardScaler",
    "svm": "LinearSVC NuSVC SVC",
}
_NUMBERS = {
    f"numpy.{kind.__name__}"
    for kind in np.sctypeDict.values()
    if issubclass(kind, np.bool_ | np.number | np.datetime64 | np.timedelta64 | np.str_)
}
_CLASSES = [
    getattr(import_module(f"sklearn.{module}"), name)
    for module, names in _OBJECTS.items()
    for name in names.split()
]
_PLAIN = {f"builtins.{name}" for name in ("bool", "float", "int", "str")}
_SGD_LOSSES = ("EpsilonInsensitive", "Hinge", "ModifiedHuber", "SquaredEpsilonInsensitive", "SquaredHinge")
_LOSSES = ("CyExponentialLoss", "CyHalfBinomialLoss", "CyHalfMultinomialLoss")
#: Kind of entry in a skops file → names of the types that it may have.
LISTED: dict[str, set[str]] = {
    "DTypeNode": {"numpy.dtype"},
    "DefaultDictNode": {"collections.defaultdict"},
    "DictNode": {"builtins.dict"},
    "FunctionNode": {f"numpy.{name}" for name in dir(np) if isinstance(getattr(np, name), np.ufunc)},
    "JsonNode": _PLAIN,
    "ListNode": {"builtins.list"},
    "LossNode": {f"sklearn.linear_model._sgd_fast.{name}" for name in _SGD_LOSSES}
    # The module has its short name in scikit-learn 1.6.
    | {f"{module}.{name}" for module in ("_loss", "sklearn._loss._loss") for name in _LOSSES},
    "NdArrayNode": {"numpy.ndarray", *_NUMBERS},
    "ObjectNode": {f"{cls.__module__}.{cls.__name__}" for cls in _CLASSES}
    | {"sklearn.compose._column_transformer._RemainderColsList"},  # scikit-learn before 1.9
    "RandomGeneratorNode": {"numpy.random._generator.Generator"},
    "RandomStateNode": {"numpy.random.mtrand.RandomState"},
    "SetNode": {"builtins.set"},
    "SliceNode": {"builtins.slice"},
    "TupleNode": {"builtins.tuple"},
    "TypeNode": {*_PLAIN, *_NUMBERS},
}
#: A skops file may unpack to this many bytes, or to this many times its own size if that is more.
_FREE_BYTES, _MAX_RATIO = 2**30, 100


def dump_parts(parts: Sequence[tuple[str, Any]], trusted: Sequence[str]) -> bytes:
    """Return a skops file of the parts, each given with the name of its attribute."""
    data = _dump([part for _, part in parts])
    if isinstance(data, Exception):
        failed = [(name, type(part).__name__) for name, part in parts if isinstance(_dump(part), Exception)]
        raise InvalidInputError(
            f"{', '.join(f'`{name}` ({kind})' for name, kind in failed) or 'the model'} cannot be saved "
            f"without pickle: {data!r}. Replace it by a plain value or a scikit-learn object before saving."
        )
    unknown = _Contents(data).unlisted(trusted)
    if unknown:
        holders = [name for name, part in parts if _is_unlisted(part, trusted)]
        raise InvalidInputError(
            f"`{'`, `'.join(holders)}` must have types whose content is checked when a model is loaded; got "
            f"{', '.join(unknown)}. If you trust them, use save_model(model, folder, trusted={unknown!r}) "
            "and load the model with the same argument."
        )
    return data


def load_parts(data: bytes, trusted: Sequence[str]) -> list[Any]:
    """Return the parts of a skops file."""
    try:
        contents = _Contents(data)
        unknown = contents.unlisted(trusted)
        parts = [] if unknown else skops.io.loads(data, trusted=[*contents.types, *trusted])
    except Exception as error:  # a hostile or damaged file may raise anything
        raise ModelFolderError(f"its scikit-learn parts cannot be read: {error!r}.") from error
    if unknown:
        raise ModelFolderError(
            f"it contains types that are not trusted: {', '.join(unknown)}. Their content cannot be checked. "
            "If you trust the source of the folder, pass their names: load_model(folder, trusted=[...])."
        )
    if not isinstance(parts, list):
        raise ModelFolderError("its scikit-learn parts are not a list.")
    try:
        for item in _objects(parts):
            check_loaded(item)
    except Exception as error:
        raise ModelFolderError(f"its scikit-learn parts are damaged: {error}") from error
    return parts


def _dump(value: Any) -> bytes | Exception:
    try:
        return bytes(skops.io.dumps(value, compression=zipfile.ZIP_DEFLATED, compresslevel=1))
    except Exception as error:  # noqa: BLE001 - skops raises whatever the methods of the object raise
        return error


def _is_unlisted(part: Any, trusted: Sequence[str]) -> bool:
    data = _dump(part)
    return not isinstance(data, Exception) and bool(_Contents(data).unlisted(trusted))


def _objects(value: Any) -> Iterator[Any]:
    """Yield all loaded objects, including nested ones."""
    waiting, seen = [value], set()
    while waiting:
        item = waiting.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, list | tuple | set):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(item.values())
        elif isinstance(item, np.ndarray) and item.dtype == object:
            waiting.extend(item.ravel().tolist())
        elif not isinstance(item, type):
            yield item
            waiting.extend(getattr(item, "__dict__", {}).values())


class _Contents:
    """The types and sizes that a skops file declares, read without building any object."""

    def __init__(self, data: bytes) -> None:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            sizes = {entry.filename: entry.file_size for entry in archive.infolist()}
            _check_unpacked(sizes["schema.json"], data)
            self._entries = list(_entries(json.loads(archive.read("schema.json"))))
        self._check_generators()
        # skops reads a file once per entry that names it, and once for all entries that share an identifier.
        largest: dict[Any, int] = {}
        for number, entry in enumerate(self._entries):
            if entry.get("file") is not None:
                key = entry.get("__id__") or ("entry", number)
                largest[key] = max(sizes[entry["file"]], largest.get(key, 0))
        _check_unpacked(sum(largest.values()), data)

    def _check_generators(self) -> None:
        """Reject a random generator whose seed has a pool of another length: mixing takes quadratic time.

        If entries share an identifier, skops uses the first one, so all of them are checked.
        """
        wrong = {entry.get("__id__") for entry in self._entries if entry.get("content") != "4"}
        for entry in self._entries:
            size = entry["content"].get("pool_size") if isinstance(entry.get("content"), dict) else None
            if size is not None and (size.get("content") != "4" or size.get("__id__") in wrong - {None}):
                raise ValueError("a random generator with a pool of another length")

    @property
    def types(self) -> list[str]:
        """The names of all types in the file."""
        return sorted({_type_name(entry) for entry in self._entries})

    def unlisted(self, trusted: Sequence[str]) -> list[str]:
        """Return the types that are neither on the list nor ``trusted``."""
        found = {(entry["__loader__"], _type_name(entry)) for entry in self._entries}
        return sorted({name for kind, name in found if name not in {*LISTED.get(kind, ()), *trusted}})


def _type_name(entry: dict[str, Any]) -> str:
    return f"{entry['__module__']}.{entry['__class__']}"


def _check_unpacked(size: int, data: bytes) -> None:
    advice = f"{size} bytes are more than a model needs."
    limits = {"free_bytes": _FREE_BYTES, "max_ratio": _MAX_RATIO}
    check_unpacked_size(size, len(data), "the file", **limits, advice=advice)


def _entries(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield every entry, at any level."""
    waiting = [schema]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            if isinstance(item.get("__loader__"), str):
                yield item
            waiting.extend(item.values())
        elif isinstance(item, list):
            waiting.extend(item)
