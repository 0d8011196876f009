"""Decisions on disk: nothing that was acknowledged is ever lost."""

import errno
import json
import os
import subprocess
import sys
import textwrap
import warnings

import pytest

from peerloss.audit.review import Decision, DecisionsFile, DecisionsFileWarning, read_decisions
from peerloss.audit.review._decisions_file import latest
from peerloss.exceptions import InvalidInputError, OutputError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.jsonl"


def test_decisions_are_read_back(path):
    """What is appended stands after the file is closed; the last decision on a row counts."""
    with DecisionsFile(path) as file:
        file.append(3, "change", "b")
        file.append(1, "keep")
        file.append(3, "skip")
    assert read_decisions(path) == [Decision(3, "change", "b"), Decision(1, "keep"), Decision(3, "skip")]
    assert latest(read_decisions(path))[3].action == "skip"


def test_undo_is_a_line_of_its_own(path):
    """Undo takes back the last decision on its row, now and after reading again; the file only grows."""
    with DecisionsFile(path) as file:
        file.append(3, "change", "b")
        file.append(3, "keep")
        size = path.stat().st_size
        file.append(3, "undo")
        assert file.decisions == [Decision(3, "change", "b")]
        assert path.stat().st_size > size
    assert read_decisions(path) == [Decision(3, "change", "b")]


def test_a_line_that_was_cut_off_is_repaired_with_a_warning(path):
    """Everything before it is kept, and the next decision begins on a line of its own."""
    with DecisionsFile(path) as file:
        file.append(1, "keep")
    whole = path.read_bytes()
    for cut in range(1, len(whole) - 1, 7):
        path.write_bytes(whole + whole[:cut])
        with pytest.warns(DecisionsFileWarning, match="last line is incomplete"), DecisionsFile(path) as file:
            file.append(2, "skip")
        assert [d.row for d in read_decisions(path)] == [1, 2]
        assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize(
    "line",
    [
        "nonsense", "[]", '{"row": -1, "action": "keep"}', '{"row": true, "action": "keep"}',
        '{"row": 1, "action": "eat"}', '{"row": 1, "action": "change"}',
        '{"row": 1, "action": "keep", "label": "x"}',
        "[" * 100_000,
    ],
    ids=range(8),
)  # fmt: skip
def test_a_line_that_is_no_decision_is_left_out_with_a_warning(path, line):
    """Lines from elsewhere are not believed."""
    path.write_text(line + '\n{"row": 7, "action": "keep"}\n')
    with pytest.warns(DecisionsFileWarning, match="line 1 is not a valid decision; skipped"):
        assert read_decisions(path) == [Decision(7, "keep")]


@pytest.mark.skipif(sys.platform == "win32", reason="locks are those of POSIX")
def test_two_reviews_at_once_are_refused(path):
    """The second one says so and leaves the file alone."""
    with DecisionsFile(path), pytest.raises(InvalidInputError, match="open in another review"):
        DecisionsFile(path)
    with DecisionsFile(path):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="locks are those of POSIX")
def test_a_file_system_without_locks_can_be_used(path, monkeypatch):
    """Some network disks refuse every lock; a review works there all the same."""
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with DecisionsFile(path) as file:
        file.append(1, "keep")
    assert [decision.row for decision in read_decisions(path)] == [1]


def test_a_killed_process_loses_nothing_it_acknowledged(path):
    """A process that is killed while it appends leaves every decision that it had told of."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom peerloss.audit.review import DecisionsFile\n"
        f"file = DecisionsFile(Path({str(path)!r}))\n"
        "for row in range(10**6):\n    file.append(row, 'change', 'x' * 50)\n    print(row, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        told = [int(process.stdout.readline()) for _ in range(50)]
        process.kill()
        told += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DecisionsFileWarning)
        rows = [decision.row for decision in read_decisions(path)]
    assert rows[: len(told)] == told


def test_each_decision_is_forced_to_the_disk(path, monkeypatch):
    """A decision is on the disk before the decision counts."""
    forced = []
    with DecisionsFile(path) as file:
        monkeypatch.setattr(os, "fsync", lambda _: forced.append(len(file.decisions)))
        file.append(0, "keep")
    assert forced == [0]
    assert json.loads(path.read_text())["row"] == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
def test_decisions_refused_by_a_full_disk_never_appear(path):
    """The system refuses the write; what was refused is not in the file, now or after the next decision."""
    code = f"""
        import resource
        from pathlib import Path
        from peerloss.audit.review import DecisionsFile
        from peerloss.exceptions import OutputError
        with DecisionsFile(Path({str(path)!r})) as file:
            file.append(1, "keep")
            limits = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (80, limits[1]))
            for row in (2, 3):
                try:
                    file.append(row, "keep")
                except OutputError as error:
                    print(error)
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
            file.append(4, "keep")
            print([decision.row for decision in file.decisions])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=True
    )
    assert done.stdout.count("could not be written: File too large. This decision was not saved") == 2
    assert done.stdout.splitlines()[-1] == "[1, 4]"
    assert [decision.row for decision in read_decisions(path)] == [1, 4]


def test_a_journal_that_cannot_be_repaired_takes_no_more(path, monkeypatch):
    """If a half-written line cannot be taken back, every further decision is refused."""
    with DecisionsFile(path) as file:
        file.append(1, "keep")
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda *_: os.close(-1))
            patch.setattr(os, "ftruncate", lambda *_: os.close(-1))
            with pytest.raises(OutputError, match="Bad file descriptor"):
                file.append(2, "keep")
        with pytest.raises(OutputError, match="closed file"):
            file.append(3, "keep")
    assert [decision.row for decision in read_decisions(path)] == [1]
