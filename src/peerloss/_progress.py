"""Progress of long computations: they report phases and shares, and one listener shows them.

A computation divides its time into phases (:func:`phase`, :func:`announce`) and reports how far a phase is
(:func:`tracker`).
Phases of a computation inside another one become parts of its phase. Nothing is reported, and nothing costs
time, unless :func:`listening` or :func:`show_progress` surrounds the computation.
"""

from __future__ import annotations

import functools
import sys
import time
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    #: Called with the name of the phase and the finished share of everything, which never decreases.
    Listener = Callable[[str, float], None]

_Function = TypeVar("_Function", bound="Callable[..., Any]")

#: Seconds between two lines if the output is not a terminal and the phase has not changed.
SECONDS_BETWEEN_LINES = 10.0
#: Below this share, the time left is not estimated.
MIN_SHARE = 0.02
#: In a narrower terminal the bar is short, so that all of the text fits into the line.
WIDE = 100


@dataclass(frozen=True)
class _Span:
    """The part of the whole computation that the current phase covers."""

    listener: Listener
    label: str = ""
    low: float = 0.0
    high: float = 1.0


_SPAN: ContextVar[_Span | None] = ContextVar("span", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call ``listener(label, share)`` for the progress of the computations inside the block."""
    lock, reached = Lock(), 0.0

    def monotone(label: str, share: float) -> None:
        nonlocal reached
        with lock:  # networks report from several threads
            reached = max(reached, min(share, 1.0))
            listener(label, reached)

    token = _SPAN.set(_Span(monotone))
    try:
        yield
    finally:
        _SPAN.reset(token)


@contextmanager
def phase(label: str, low: float, high: float) -> Iterator[None]:
    """Report the block as a phase that takes the computation from the share ``low`` to ``high``."""
    outer = _SPAN.get()
    if outer is None:
        yield
        return
    width = outer.high - outer.low
    inner = _Span(outer.listener, label, outer.low + width * low, outer.low + width * high)
    inner.listener(label, inner.low)
    token = _SPAN.set(inner)
    try:
        yield
    finally:
        _SPAN.reset(token)
    inner.listener(label, inner.high)


def announce(label: str, share: float) -> None:
    """Report that a short phase begins after this share of the current phase."""
    span = _SPAN.get()
    if span is not None:
        span.listener(label, span.low + (span.high - span.low) * share)


def tracker(total: float) -> Callable[[float], None] | None:
    """Return a function to call with the finished amount of the current phase; ``None`` if nobody listens.

    It may be called from any thread, but must be made in the thread of the phase.
    """
    span = _SPAN.get()
    if span is None:
        return None

    def report(done: float) -> None:
        span.listener(span.label, span.low + (span.high - span.low) * done / total)

    return report


def reporter(total: int, callback: Callable[[int, int], object] | None = None) -> Callable[[int], None]:
    """Return a function to call with the finished number of ``total`` equal parts of the current phase.

    ``callback``, if any, is called with this number and the total.
    """
    track = tracker(total)

    def report(done: int) -> None:
        if callback is not None:
            callback(done, total)
        if track is not None:
            track(done)

    if track is not None:
        track(0)  # the first part may take long
    return report


@contextmanager
def show_progress(title: str, *, show: bool = True, terminal_only: bool = False) -> Iterator[None]:
    """Show the progress of the block on stderr: phase, percentage, elapsed time, time left.

    On a terminal this is one line, which disappears at the end. Elsewhere, such as in a notebook or a log
    file, it is a line per phase, or nothing with ``terminal_only``. Inside a block whose progress is shown
    already, nothing more is shown.
    """
    if not show or _SPAN.get() is not None:
        yield
        return
    from rich.console import Console  # noqa: PLC0415 - only if progress is shown

    console = Console(stderr=True)
    if console.is_terminal and not console.is_jupyter:
        with _line(title, console) as listener, listening(listener):
            yield
    elif terminal_only:
        yield
    else:
        lines = _Lines(title)
        with listening(lines):
            yield
        lines.end()


def shows_progress(title: str) -> Callable[[_Function], _Function]:
    """Let a function show its progress if its keyword ``verbose`` is true."""

    def decorate(function: _Function) -> _Function:
        @functools.wraps(function)
        def show(*args: Any, **kwargs: Any) -> Any:
            with show_progress(title, show=bool(kwargs.get("verbose"))):
                return function(*args, **kwargs)

        return show  # type: ignore[return-value]

    return decorate


def describe(title: str, label: str, share: float, elapsed: float) -> str:
    """Return the text of the progress.

    >>> describe("fit", "training networks", 0.25, 30)
    'fit: training networks, 25 %, 0:30 elapsed, about 1:30 left'
    """
    left = f"about {_clock(elapsed / share - elapsed)} left" if share >= MIN_SHARE else "time left not known"
    phase_name = f" {label}," if label else ""
    return f"{title}:{phase_name} {int(100 * share)} %, {_clock(elapsed)} elapsed, {left}"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


@contextmanager
def _line(title: str, console: Any) -> Iterator[Listener]:
    """Yield a listener that keeps one line of the terminal up to date."""
    from rich.progress import BarColumn, Progress, ProgressColumn, Task  # noqa: PLC0415
    from rich.table import Column  # noqa: PLC0415 - only if progress is shown
    from rich.text import Text  # noqa: PLC0415

    class Description(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(describe(title, task.description, task.completed, task.elapsed or 0.0))

    width = 20 if console.width >= WIDE else 6
    description = Description(table_column=Column(no_wrap=True))  # a second line would look like another bar
    with Progress(BarColumn(width), description, console=console, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda label, share: bar.update(task, description=label, completed=share)


class _Lines:
    """A listener that prints a line for each phase, and for long ones every few seconds."""

    def __init__(self, title: str) -> None:
        self.title, self.start = title, time.monotonic()
        self.seen: set[str] = set()
        self.printed = self.start

    def __call__(self, label: str, share: float) -> None:
        now = time.monotonic()
        if label in self.seen and (share >= 1.0 or now - self.printed < SECONDS_BETWEEN_LINES):
            return
        self.seen.add(label)
        self.printed = now
        _print(describe(self.title, label, share, now - self.start))

    def end(self) -> None:
        _print(f"{self.title}: finished in {_clock(time.monotonic() - self.start)}")


def _print(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
