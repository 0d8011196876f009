"""Everything this package raises or warns on its own account.

Each error is also the built-in error a caller would expect (``ValueError``, ``OSError``,
``FloatingPointError``), so code that knows nothing of this package handles it sensibly.
"""


class PeerLossError(Exception):
    """Base class: ``except PeerLossError`` catches everything this package raises on purpose."""


class InvalidInputError(PeerLossError, ValueError):
    """An argument has the wrong shape, type or values; the message says which and what to do."""


class NotIdentifiableError(PeerLossError, ValueError):
    """The quantity asked for does not exist for this noise: a singular T, an α* that no number satisfies."""


class ModelFolderError(PeerLossError, ValueError):
    """A model folder is absent, foreign, damaged, too new, or holds a type that is not trusted."""


class OutputError(PeerLossError, OSError):
    """Something could not be written, for example because the disk is full; what was there is unchanged."""

    def __init__(self, message: str, number: int | None = None) -> None:
        super().__init__(message)
        self.errno = number


class WorkerError(PeerLossError, RuntimeError):
    """A worker process ended before its work was done; what is finished is kept."""


class DivergenceError(PeerLossError, FloatingPointError):
    """Training left the finite numbers."""


class DivergenceWarning(RuntimeWarning):
    """Logits grow without bound, as peer losses that are not bounded below allow (α ≥ 1)."""


class IdentifiabilityWarning(UserWarning):
    """An estimate was made, but the data cannot support it."""
