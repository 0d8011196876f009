"""A reader of pickles that can build arrays of integers and nothing else.

A pickle from outside can call anything. This reader builds only what the files of CIFAR-10 hold: containers,
bytes, numbers, and arrays of integers, which it assembles itself. The file cannot reach the functions that do
so.
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

#: Bytes of the largest file of CIFAR-10, six times over; what is larger is something else.
LARGEST_PICKLE = 200_000_000
#: Instructions of a pickle: a batch of CIFAR-10 has some 90,000. Each may make a small object.
MAX_INSTRUCTIONS = 1_000_000
#: Times that a pickle may use a tuple again which it has stored. CIFAR-10 never does.
MAX_SHARED_TUPLES = 20
_STORES = {"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"}
_FETCHES = {"GET", "BINGET", "LONG_BINGET"}


class DtypeRecord:
    """Stands for ``numpy.dtype`` in the file: remembers the name, ignores what else is said."""

    __slots__ = ("name", "order")

    def __init__(self, name: object = "", *_: object) -> None:
        self.name = as_text(name)
        self.order = "<"

    def __setstate__(self, state: object) -> None:
        if isinstance(state, tuple) and len(state) > 1 and state[1] in (">", b">"):
            self.order = ">"


class ArrayRecord:
    """Stands for ``numpy.ndarray``: assembles the array from its bytes, if they are integers."""

    __slots__ = ("array",)

    array: NDArray[Any] | None

    def __init__(self, *_: object) -> None:
        self.array = None

    def __setstate__(self, state: object) -> None:
        if not (isinstance(state, tuple) and len(state) == 5):
            raise pickle.UnpicklingError("an array with an unknown layout")
        _, shape, dtype, by_column, raw = state
        if not isinstance(dtype, DtypeRecord) or dtype.name not in ("u1", "i1", "i2", "i4", "i8"):
            raise pickle.UnpicklingError("an array of something else than integers")
        data = raw.encode("latin-1") if isinstance(raw, str) else raw
        flat = np.frombuffer(data, dtype=np.dtype(dtype.order + dtype.name))
        self.array = flat.reshape(shape, order="F" if by_column else "C")


class _Builder:
    """What a name in the file stands for: it can be called, and not changed."""

    __slots__ = ("_build",)

    def __init__(self, build: Callable[..., Any]) -> None:
        self._build = build

    def __call__(self, *arguments: object) -> Any:
        return self._build(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("it wants to change the reader")


def _encode(text: object, encoding: object) -> bytes:
    """Turn text into bytes: how Python 3 writes bytes in the old protocol; other codecs are not for us."""
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise pickle.UnpicklingError(f"the codec {as_text(encoding)!r}")
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
            raise pickle.UnpicklingError(f"it wants to build {module}.{name}")
        return _Builder(_ALLOWED[module, name])


def read_integers(content: bytes, path: Path) -> Any:
    """Return what a pickle holds; ``path`` names it in the error."""
    try:
        _check_instructions(content)
        return _IntegersOnly(io.BytesIO(content), encoding="bytes").load()
    except Exception as error:  # a damaged pickle can fail in any way
        raise InvalidInputError(
            f"{path} is refused: {error}. It must hold arrays of integers, lists and names only; get it "
            "again from its source."
        ) from error


def as_text(key: object) -> str:
    """Return text for a key of the file, and nothing for what is no text: its repr may be of any length."""
    if isinstance(key, bytes):
        return key.decode("latin-1")
    return key if isinstance(key, str) else ""


def _check_instructions(content: bytes) -> None:
    """Refuse a pickle that takes far more memory or time than a file of its size explains.

    The unpickler keeps a table of what was stored, as long as the largest number in it; whoever writes
    pickles counts from 0. A tuple of tuples that are used again and again takes exponential time to hash.
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
                raise pickle.UnpicklingError(f"it stores value {place} as its {count}th instruction")
            tuples[place] = is_tuple
            continue
        is_tuple = tuples.get(int(argument or 0), True) if name in _FETCHES else _may_be_tuple(instruction)
        shared += name == "DUP" or (name in _FETCHES and is_tuple)
        if shared > MAX_SHARED_TUPLES:
            raise pickle.UnpicklingError(f"it uses tuples again more than {MAX_SHARED_TUPLES} times")


def _may_be_tuple(instruction: pickletools.OpcodeInfo) -> bool:
    """Whether a tuple may lie on top of the stack after an instruction."""
    if instruction.name in {"GLOBAL", "REDUCE", "STACK_GLOBAL"}:  # what these make, this file decides
        return False
    top = instruction.stack_after[-1:]
    return not top or top[0].name in {"tuple", "any", "frozenset"}
