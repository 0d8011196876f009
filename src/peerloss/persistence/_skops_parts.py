"""Save and load the scikit-learn parts of a model folder: skops with a fixed list of types, checked content.

A file that names a type outside the list is rejected before any object is built.
"""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import skops.io

from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.persistence._content_checks import check_loaded
from peerloss.persistence._skops_types import Contents

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def dump_parts(parts: Sequence[tuple[str, Any]], trusted: Sequence[str]) -> bytes:
    """Return a skops file of the parts, each given with the name of its attribute.

    Raises
    ------
    InvalidInputError
        If a part cannot be saved, or could not be loaded because of a type that is not trusted.
    """
    data = _dump([part for _, part in parts])
    if isinstance(data, Exception):
        raise _not_savable(parts, data)
    unknown = Contents(data).unlisted(trusted)
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
        contents = Contents(data)
        unknown = contents.unlisted(trusted)
    except Exception as error:  # a hostile or damaged file may raise anything
        raise _unreadable(error) from error
    if unknown:
        raise ModelFolderError(
            f"it contains types that are not trusted: {', '.join(unknown)}. Their content cannot be checked. "
            "If you trust the source of the folder, pass their names: load_model(folder, trusted=[...])."
        )
    try:
        parts = skops.io.loads(data, trusted=[*contents.types, *trusted])
    except Exception as error:
        raise _unreadable(error) from error
    if not isinstance(parts, list):
        raise ModelFolderError("its scikit-learn parts are not a list.")
    try:
        for item in _objects(parts):
            check_loaded(item)
    except Exception as error:
        raise ModelFolderError(f"its scikit-learn parts are damaged: {error}") from error
    return parts


def _unreadable(error: Exception) -> ModelFolderError:
    return ModelFolderError(f"its scikit-learn parts cannot be read: {error!r}.")


def _dump(value: Any) -> bytes | Exception:
    try:
        return bytes(skops.io.dumps(value, compression=zipfile.ZIP_DEFLATED, compresslevel=1))
    except Exception as error:  # noqa: BLE001 - skops raises whatever the methods of the object raise
        return error


def _is_unlisted(part: Any, trusted: Sequence[str]) -> bool:
    data = _dump(part)
    return not isinstance(data, Exception) and bool(Contents(data).unlisted(trusted))


def _not_savable(parts: Sequence[tuple[str, Any]], error: Exception) -> InvalidInputError:
    names = [
        f"`{name}` ({type(part).__name__})" for name, part in parts if isinstance(_dump(part), Exception)
    ]
    return InvalidInputError(
        f"{', '.join(names) or 'the model'} cannot be saved without pickle: {error!r}. Replace it by a plain "
        "value or a scikit-learn object before saving."
    )


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
