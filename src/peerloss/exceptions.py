"""The errors and warnings of this package.

Each error is also the built-in error that a caller would expect (``ValueError``, ``OSError``,
``FloatingPointError``), so code that does not know this package can handle it.
"""

import os
import sys
import warnings

__all__ = [
    "DivergenceError",
    "DivergenceWarning",
    "IdentifiabilityWarning",
    "InvalidInputError",
    "ModelFolderError",
    "NotIdentifiableError",
    "OutputError",
    "PeerLossError",
    "WorkerError",
]

_PACKAGE = os.path.join(os.path.dirname(__file__), "")  # noqa: PTH118, PTH120 - ends in a separator


class PeerLossError(Exception):
    """Base class: ``except PeerLossError`` catches every error that this package raises deliberately."""


class InvalidInputError(PeerLossError, ValueError):
    """An argument has the wrong shape, type or values. The message names it and what to do."""


class NotIdentifiableError(PeerLossError, ValueError):
    """The requested quantity does not exist for this noise, such as α* or the inverse of a singular T."""


class ModelFolderError(PeerLossError, ValueError):
    """A model folder is missing, damaged, too new, not a model folder, or has a type that is not trusted."""


class OutputError(PeerLossError, OSError):
    """An output could not be written, for example because the disk is full. Its old content is unchanged."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number


class WorkerError(PeerLossError, RuntimeError):
    """A worker process was killed before it returned its results."""


class DivergenceError(PeerLossError, FloatingPointError):
    """Training diverged: the loss or the weights became NaN or infinite."""


class DivergenceWarning(RuntimeWarning):
    """Logits grow without bound, which peer losses without a lower bound allow (α ≥ 1)."""


class IdentifiabilityWarning(UserWarning):
    """An estimate was computed, but the data do not support it."""


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn at the line that called this package.

    A fixed ``stacklevel`` would be wrong for a function that several public functions use.
    """
    frame, level = sys._getframe(1), 2  # noqa: SLF001 - as warnings.warn does
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
