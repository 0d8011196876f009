"""Phases, listeners and the line that shows them."""

import io
import sys
import threading

import pytest
import rich.console

from peerloss import _progress
from peerloss._progress import (
    announce,
    describe,
    listening,
    phase,
    show_progress,
    shows_progress,
    tracker,
)


def test_phases_inside_phases_share_the_time():
    """A phase from 50 % to 100 % that contains one from 0 to 50 % reports 50 to 75 %."""
    reports = []
    with listening(lambda *report: reports.append(report)):
        with phase("first", 0.0, 0.5):
            announce("middle", 0.5)
        with phase("second", 0.5, 1.0), phase("inner", 0.0, 0.5):
            tracker(4)(2)
    assert reports == [
        ("first", 0.0), ("middle", 0.25), ("first", 0.5),
        ("second", 0.5), ("inner", 0.5), ("inner", 0.625), ("inner", 0.75), ("second", 1.0),
    ]  # fmt: skip


def test_progress_never_goes_back():
    """A part that is repeated does not reduce what was reported."""
    shares = []
    with listening(lambda _, share: shares.append(share)), phase("work", 0.0, 1.0):
        report = tracker(10)
        for done in (5, 1, 20):
            report(done)
    assert shares == [0.0, 0.5, 0.5, 1.0, 1.0]


def test_threads_may_report():
    """The tracker belongs to the phase in which it was made."""
    shares = []
    with listening(lambda _, share: shares.append(share)), phase("work", 0.0, 0.5):
        report = tracker(2)
        thread = threading.Thread(target=report, args=(1,))
        thread.start()
        thread.join()
    assert 0.25 in shares


def test_without_a_listener_nothing_is_reported():
    """There is no tracker then, and phases cost nothing."""
    with phase("work", 0.0, 1.0):
        announce("part", 0.5)
        assert tracker(3) is None


@pytest.mark.parametrize(
    ("share", "elapsed", "text"),
    [
        (0.0, 0.0, "fit: models, 0 %, 0:00 elapsed, time left not known"),
        (0.5, 65.0, "fit: models, 50 %, 1:05 elapsed, about 1:05 left"),
        (0.999, 4000.0, "fit: models, 99 %, 1:06:40 elapsed, about 0:04 left"),
        (0.25, 3600.0, "fit: models, 25 %, 1:00:00 elapsed, about 3:00:00 left"),
    ],
)
def test_the_text_has_label_percentage_elapsed_and_left(share, elapsed, text):
    """Both times are named, and 100 % is not shown before the end."""
    assert describe("fit", "models", share, elapsed) == text


def test_lines_are_few(capsys, monkeypatch):
    """Outside a terminal: one line per phase, more only after some seconds, and one at the end."""
    with show_progress("work"):
        with phase("a", 0.0, 0.5):
            for done in range(100):
                tracker(100)(done)
        monkeypatch.setattr(_progress, "SECONDS_BETWEEN_LINES", 0.0)
        with phase("b", 0.5, 1.0):
            tracker(2)(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(", ")[0] for line in lines] == [
        "work: a",
        "work: b",
        "work: b",
        "work: finished in 0:00",
    ]


def test_only_terminals_get_a_bar_in_commands(capsys):
    """With `terminal_only`, log files get nothing."""
    with show_progress("work", terminal_only=True), phase("a", 0.0, 1.0):
        assert tracker(1) is None
    assert capsys.readouterr() == ("", "")


def test_a_terminal_has_one_line(monkeypatch):
    """It shows the phase and the times, and is removed at the end."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    console = rich.console.Console(file=stream, force_terminal=True, width=120)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    with show_progress("10 rows"), phase("training networks", 0.0, 0.5):
        pass
    text = stream.getvalue()
    assert "10 rows: training networks, 50 %, 0:00 elapsed, about 0:00 left" in text
    assert text.endswith("\x1b[2K")


def test_the_line_fits_a_usual_terminal(monkeypatch):
    """With 80 columns the text is neither wrapped nor cut."""
    stream = io.StringIO()
    console = rich.console.Console(file=stream, force_terminal=True, width=80)
    monkeypatch.setattr(rich.console, "Console", lambda **_: console)
    with show_progress("30,000 rows"), phase("estimating the noise", 0.0, 0.5):
        pass
    text = stream.getvalue()
    assert "30,000 rows: estimating the noise, 50 %, 0:00 elapsed, about 0:00 left" in text
    assert text.count("\x1b[1A") == 1, "one line is removed at the end"


def test_an_inner_computation_does_not_show_a_second_line(capsys):
    """Its phases are part of the outer line."""
    with show_progress("outer"), phase("part", 0.0, 1.0), show_progress("inner"), phase("own", 0.0, 1.0):
        pass
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[0] for line in lines] == ["outer"] * 3
    assert "own" in lines[1]


def test_a_decorated_function_is_shown_on_request(capsys):
    """The keyword decides; the result and the signature are those of the function."""

    @shows_progress("double")
    def double(number, *, verbose=False):  # noqa: ARG001 - read by the decorator
        announce("working", 0.5)
        return 2 * number

    assert double(2) == 4
    assert capsys.readouterr().err == ""
    assert double(3, verbose=True) == 6
    assert capsys.readouterr().err.startswith("double: working, 50 %")
