"""Read pickles of integer arrays without running code from the file.

An untrusted pickle can call any function. This reader builds only what the files of CIFAR-10 and CIFAR-100
contain: containers, bytes, numbers, and arrays of integers. The file has no access to the functions that
build them.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

#: Largest accepted file in bytes. The largest published one is the training file of CIFAR-100, with 154
#: million bytes of pixels, and names and labels of 50,000 images.
LARGEST_PICKLE = 200_000_000
#: Largest number of instructions. Each may create a small object. A batch of CIFAR-10 has about
#: 90,000, the training file of CIFAR-100 about 200,000.
MAX_INSTRUCTIONS = 1_000_000
#: How often a pickle may reuse stored tuples. The published files never do.
MAX_SHARED_TUPLES = 20
_STORES = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_FETCHES = {"GET", "BINGET", "LONG_BINGET"}


class DtypeRecord:
    """Replaces ``numpy.dtype``: keeps the name and the byte order, ignores everything else."""

    __slots__ = ("name", "order")

    def __init__(self, name: object = "", *_: object) -> None:
        self.name = as_text(name)
        self.order = "<"

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in (">", b">"):
            self.order = ">"


class ArrayRecord:
    """Replaces ``numpy.ndarray``: builds the array from its bytes if they are integers."""

    __slots__ = ("array",)

    array: NDArray[Any] | None

    def __init__(self, *_: object) -> None:
        self.array = None

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, tuple) and len(state) == 5):
            raise pickle.UnpicklingError("an array with an unknown layout")
        _, shape, dtype, by_column, raw = state
        if not isinstance(dtype, DtypeRecord) or dtype.name not in ("u1", "i1", "i2", "i4", "i8"):
            raise pickle.UnpicklingError("an array that does not hold integers")
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        flat = np.frombuffer(data, dtype=np.dtype(dtype.order + dtype.name))
        self.array = flat.reshape(shape, order="F" if by_column else "C")


class _Builder:
    """Replaces a name in the file: it can be called but not changed."""

    __slots__ = ("_build",)

    def __init__(self, build: Callable[..., Any]) -> None:
        self._build = build

    def __call__(self, *arguments: object) -> Any:
        return self._build(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it tries to change the reader")


def _encode(text: object, encoding: object) -> bytes:
    """Turn text into bytes, as Python 3 stores bytes in protocol 2; other codecs are refused."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the codec {as_text(encoding)!r} is not allowed")
    return text.encode("latin-1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("_codecs", "encode"): _encode,
    ("numpy", "ndarray"): ArrayRecord,
    ("numpy", "dtype"): DtypeRecord,
    ("numpy.core.multiarray", "_reconstruct"): ArrayRecord,
    ("numpy._core.multiarray", "_reconstruct"): ArrayRecord,
}


class _IntegersOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it tries to build {module}.{name}")
        return _Builder(_ALLOWED[module, name])


def read_integers(content: bytes, path: Path) -> Any:
    """Return the content of a pickle; ``path`` appears in the error message."""
    try:
        _check_instructions(content)
        return _IntegersOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can fail in any way
        raise InvalidInputError(
            f"{path} is refused: {error}. It may hold only arrays of integers, lists and names. Download it "
            "again."
        ) from error


def as_text(key: object) -> str:
    """Return a key of the file as text, or "" if it is not text: its repr may have any length."""
    if isinstance(key, bytes):
        return key.decode("latin-1")
    return key if isinstance(key, str) else ""


def _check_instructions(content: bytes) -> None:
    """Refuse a pickle that would use far too much memory or time for its size.

    The unpickler allocates its memo up to the largest index; regular pickles count from 0. Hashing a tuple
    of tuples that are reused many times takes exponential time.
    """
    tuples: dict[int, bool] = {}
    shared, is_tuple = 0, False
    for count, (instruction, argument, _) in enumerate(pickletools.genops(content)):
        if count > MAX_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"more than {MAX_INSTRUCTIONS} instructions")
        name = instruction.name
        if name in _STORES:
            place = len(tuples) if name == "MEMOIZE" else int(argument or 0)
            if place > count:
                raise pickle.UnpicklingError(f"instruction {count} stores value {place}")
            tuples[place] = is_tuple
            continue
        is_tuple = tuples.get(int(argument or 0), True) if name in _FETCHES else _may_push_tuple(instruction)
        shared += name == "DUP" or (name in _FETCHES and is_tuple)
        if shared > MAX_SHARED_TUPLES:
            raise pickle.UnpicklingError(f"it reuses tuples more than {MAX_SHARED_TUPLES} times")


def _may_push_tuple(instruction: pickletools.OpcodeInfo) -> bool:
    """Return whether a tuple may be on top of the stack after an instruction."""
    if instruction.name in {"GLOBAL", "REDUCE", "STACK_GLOBAL"}:  # this module decides what these build
        return False
    top = instruction.stack_after[-1:]
    return not top or top[0].name in {"tuple", "any", "frozenset"}
