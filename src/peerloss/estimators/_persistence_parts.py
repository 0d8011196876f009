"""The scikit-learn parts of a model folder: skops with a fixed list of types, and checked indices.

skops refuses a file that names a type outside the list before it builds anything.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import skops.io
from sklearn.base import BaseEstimator
from skops.io.exceptions import UntrustedTypesFoundException

from peerloss.estimators._persistence_trees import check_indices
from peerloss.exceptions import InvalidInputError, ModelFolderError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What the portfolio, the column encoder and `cv` arguments need beyond what skops trusts by itself.
ALLOWED_TYPES = (
    "_loss.CyHalfMultinomialLoss",  # how scikit-learn 1.6 names its module
    "numpy.dtype",
    "sklearn._loss.link.HalfLogitLink",
    "sklearn._loss.link.Interval",
    "sklearn._loss.link.LogitLink",
    "sklearn._loss.link.MultinomialLogit",
    "sklearn._loss.loss.HalfBinomialLoss",
    "sklearn._loss.loss.HalfMultinomialLoss",
    "sklearn.compose._column_transformer._RemainderColsList",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.binning._BinMapper",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.model_selection._split.GroupKFold",
    "sklearn.model_selection._split.KFold",
    "sklearn.model_selection._split.LeaveOneGroupOut",
    "sklearn.model_selection._split.StratifiedGroupKFold",
    "sklearn.model_selection._split.StratifiedKFold",
    "sklearn.tree._tree.Tree",
)


def dump_parts(parts: Sequence[tuple[str, Any]], trusted: Sequence[str]) -> bytes:
    """Return a skops file that holds the parts, each given with the name of the attribute it comes from.

    Raises
    ------
    InvalidInputError
        If a part cannot be saved, or could not be loaded because it holds a type that is not trusted.
    """
    data = _dump([part for _, part in parts])
    if isinstance(data, Exception):
        raise _not_savable(parts, data)
    unknown = _untrusted(data, trusted)
    if unknown:
        holders = [name for name, part in parts if _is_untrusted(part, trusted)]
        raise InvalidInputError(
            f"`{'`, `'.join(holders)}` must hold types that are trusted when a model is loaded; got "
            f"{', '.join(unknown)}. If you trust them, use save_model(model, folder, trusted={unknown!r}) "
            "and load with the same."
        )
    return data


def load_parts(data: bytes, trusted: Sequence[str]) -> list[Any]:
    """Return the parts of a skops file."""
    try:
        parts = skops.io.loads(data, trusted=[*ALLOWED_TYPES, *trusted])
    except UntrustedTypesFoundException as error:
        raise ModelFolderError(
            f"it holds types that are not trusted: {', '.join(_untrusted(data, trusted))}. If you know where "
            "the folder comes from, pass their names: load_model(folder, trusted=[...])."
        ) from error
    except Exception as error:  # a hostile or damaged file may raise anything
        raise ModelFolderError(f"its scikit-learn parts cannot be read: {error!r}.") from error
    if not isinstance(parts, list):
        raise ModelFolderError("its scikit-learn parts are not a list.")
    try:
        for estimator in _estimators(parts):
            check_indices(estimator)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise ModelFolderError(f"its scikit-learn parts are damaged: {error}") from error
    return parts


def _dump(value: Any) -> bytes | Exception:
    try:
        return bytes(skops.io.dumps(value, compression=zipfile.ZIP_DEFLATED, compresslevel=1))
    except Exception as error:  # noqa: BLE001 - skops raises what the object's own methods raise
        return error


def _untrusted(data: bytes, trusted: Sequence[str]) -> list[str]:
    return sorted({*skops.io.get_untrusted_types(data=data)} - {*ALLOWED_TYPES, *trusted})


def _is_untrusted(part: Any, trusted: Sequence[str]) -> bool:
    data = _dump(part)
    return not isinstance(data, Exception) and bool(_untrusted(data, trusted))


def _not_savable(parts: Sequence[tuple[str, Any]], error: Exception) -> InvalidInputError:
    told = [f"`{name}` ({type(part).__name__})" for name, part in parts if isinstance(_dump(part), Exception)]
    return InvalidInputError(
        f"{', '.join(told) or 'the model'} cannot be saved without pickle: {error!r}. Replace it by a plain "
        "value or a scikit-learn object before saving."
    )


def _estimators(value: Any) -> Iterator[BaseEstimator]:
    """Find the estimators in what was loaded, the nested ones too."""
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
        elif isinstance(item, BaseEstimator):
            yield item
            waiting.extend(vars(item).values())
