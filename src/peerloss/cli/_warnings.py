"""Print the warnings of a results folder as lines of the command line."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from peerloss.cli._terminal import say

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def store_warnings() -> Iterator[None]:
    """Print each ``StoreWarning`` as one line on stderr; other warnings are shown as usual."""
    from peerloss.experiments import StoreWarning

    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, StoreWarning):
                say(f"Warning: {message}", err=True)
            else:
                usual(message, category, *where, **more)

        warnings.showwarning = show
        warnings.simplefilter("always", StoreWarning)
        yield
