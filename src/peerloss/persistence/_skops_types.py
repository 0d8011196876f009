"""The fixed list of types that the scikit-learn parts of a model folder may have.

skops trusts every estimator of scikit-learn. Compiled code follows the indices of some of them without a
check, so a crafted file could make it read or write outside its arrays. This list has only types whose
predictions run in NumPy, which checks shapes and indices itself, or whose content ``_content_checks``
verifies.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn import (
    compose,
    decomposition,
    discriminant_analysis,
    dummy,
    ensemble,
    impute,
    kernel_approximation,
    linear_model,
    model_selection,
    naive_bayes,
    pipeline,
    preprocessing,
    svm,
)
from sklearn._loss import link, loss
from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.feature_extraction import text

from peerloss._unpacking import check_unpacked_size

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ESTIMATORS = (
    compose.ColumnTransformer,
    decomposition.PCA,
    decomposition.TruncatedSVD,
    discriminant_analysis.LinearDiscriminantAnalysis,
    discriminant_analysis.QuadraticDiscriminantAnalysis,
    dummy.DummyClassifier,
    ensemble.HistGradientBoostingClassifier,
    impute.MissingIndicator,
    impute.SimpleImputer,
    kernel_approximation.Nystroem,
    kernel_approximation.RBFSampler,
    linear_model.LogisticRegression,
    linear_model.LogisticRegressionCV,
    linear_model.Perceptron,
    linear_model.RidgeClassifier,
    linear_model.RidgeClassifierCV,
    linear_model.SGDClassifier,
    naive_bayes.BernoulliNB,
    naive_bayes.ComplementNB,
    naive_bayes.GaussianNB,
    naive_bayes.MultinomialNB,
    pipeline.FeatureUnion,
    pipeline.Pipeline,
    preprocessing.FunctionTransformer,
    preprocessing.LabelBinarizer,
    preprocessing.LabelEncoder,
    preprocessing.MaxAbsScaler,
    preprocessing.MinMaxScaler,
    preprocessing.Normalizer,
    preprocessing.OneHotEncoder,
    preprocessing.OrdinalEncoder,
    preprocessing.PowerTransformer,
    preprocessing.QuantileTransformer,
    preprocessing.RobustScaler,
    preprocessing.StandardScaler,
    svm.LinearSVC,
    svm.NuSVC,
    svm.SVC,
    text.CountVectorizer,
    text.TfidfTransformer,
    text.TfidfVectorizer,
)
#: Parts of estimators, and splitters for `cv`.
_PIECES = (
    TreePredictor,
    _BinMapper,
    compose.make_column_selector,
    link.HalfLogitLink,
    link.Interval,
    link.LogitLink,
    link.MultinomialLogit,
    loss.ExponentialLoss,
    loss.HalfBinomialLoss,
    loss.HalfMultinomialLoss,
    model_selection.GroupKFold,
    model_selection.KFold,
    model_selection.LeaveOneGroupOut,
    model_selection.StratifiedGroupKFold,
    model_selection.StratifiedKFold,
)
_NUMBERS = {
    f"numpy.{kind.__name__}"
    for kind in np.sctypeDict.values()
    if issubclass(kind, np.bool_ | np.number | np.datetime64 | np.timedelta64 | np.str_)
}
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
    "ObjectNode": {f"{cls.__module__}.{cls.__name__}" for cls in (*ESTIMATORS, *_PIECES)}
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


class Contents:
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
    check_unpacked_size(
        size,
        len(data),
        "the file",
        free_bytes=_FREE_BYTES,
        max_ratio=_MAX_RATIO,
        advice=f"{size} bytes are more than a model needs.",
    )


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
