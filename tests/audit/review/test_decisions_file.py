"""The file of decisions: nothing that was saved is ever lost."""

import errno
import json
import os
import subprocess
import sys
import textwrap
import warnings

import pytest

from peerloss.audit.review import Decision, DecisionsFile, DecisionsFileWarning, read_decisions
from peerloss.audit.review._decisions_file import disagreements, latest
from peerloss.exceptions import InvalidInputError, OutputError


@pytest.fixture
def path(tmp_path):
    return tmp_path / "decisions.jsonl"


def test_decisions_are_read_back(path):
    """Appended decisions are there after the file is closed; the last decision on a row counts."""
    with DecisionsFile(path) as file:
        file.append(3, "change", "b")
        file.append(1, "keep")
        file.append(3, "drop")
    assert read_decisions(path) == [Decision(3, "change", "b"), Decision(1, "keep"), Decision(3, "drop")]
    assert latest(read_decisions(path))[3].action == "drop"


def test_a_skip_cancels_no_decision(path):
    """A skip, by anyone, counts only on a row without another decision; undoing that one leaves the skip."""
    with DecisionsFile(path) as file:
        file.append(3, "change", "b", reviewer="Ada")
        file.append(3, "skip", reviewer="Ada")
        file.append(3, "skip", reviewer="Bo")
        file.append(4, "skip", reviewer="Bo")
        file.append(4, "keep", reviewer="Ada")
        file.append(5, "skip", reviewer="Ada")
        file.append(5, "skip", reviewer="Bo")
        actions = {row: d.action for row, d in latest(file.decisions).items()}
        assert actions == {3: "change", 4: "keep", 5: "skip"}
        file.append(4, "undo", reviewer="Ada")
        file.append(3, "undo", reviewer="Ada")  # the own skip
        assert latest(file.decisions)[3].action == "change"
        file.append(3, "undo", reviewer="Ada")
    assert {row: d.action for row, d in latest(read_decisions(path)).items()} == {
        3: "skip",
        4: "skip",
        5: "skip",
    }


def test_undo_is_a_separate_line(path):
    """Undo cancels the last decision on its row, now and after reading again; the file only grows."""
    with DecisionsFile(path) as file:
        file.append(3, "change", "b")
        file.append(3, "keep")
        size = path.stat().st_size
        file.append(3, "undo")
        assert file.decisions == [Decision(3, "change", "b")]
        assert path.stat().st_size > size
    assert read_decisions(path) == [Decision(3, "change", "b")]


def test_each_reviewer_undoes_own_decisions(path):
    """Undo cancels the last decision of its reviewer on the row; notes and names are read back."""
    with DecisionsFile(path) as file:
        file.append(3, "drop", note="é\n<b>", reviewer="Ada")
        file.append(3, "keep", reviewer="Bo")
        file.append(4, "keep")
        file.append(3, "undo", reviewer="Ada")
    assert read_decisions(path) == [Decision(3, "keep", None, None, "Bo"), Decision(4, "keep")]


def test_disagreements_are_found():
    """Rows whose last decisions by different reviewers differ; skipping and changed minds do not count."""
    made = [
        Decision(1, "keep", reviewer="Ada"),
        Decision(1, "change", "b", reviewer="Bo"),
        Decision(2, "keep", reviewer="Ada"),
        Decision(2, "skip", reviewer="Bo"),
        Decision(3, "keep", reviewer="Ada"),
        Decision(3, "drop", reviewer="Ada"),
        Decision(4, "change", "b", reviewer="Ada"),
        Decision(4, "change", "c", reviewer=None),
    ]
    assert disagreements(made) == [1, 4]


def test_an_incomplete_line_is_removed_with_a_warning(path):
    """All earlier lines are kept, and the next decision starts on a new line."""
    with DecisionsFile(path) as file:
        file.append(1, "keep")
    complete = path.read_bytes()
    for cut in range(1, len(complete) - 1, 7):
        path.write_bytes(complete + complete[:cut])
        with pytest.warns(DecisionsFileWarning, match="last line is incomplete"), DecisionsFile(path) as file:
            file.append(2, "skip")
        assert [d.row for d in read_decisions(path)] == [1, 2]
        assert path.read_bytes().startswith(complete)


@pytest.mark.parametrize(
    "line",
    [
        "nonsense", "[]", '{"row": -1, "action": "keep"}', '{"row": true, "action": "keep"}',
        '{"row": 1, "action": "eat"}', '{"row": 1, "action": "change"}',
        '{"row": 1, "action": "keep", "label": "x"}', '{"row": 1, "action": "keep", "note": 7}',
        '{"row": 1, "action": "keep", "reviewer": ["x"]}',
        "[" * 100_000,
    ],
    ids=range(10),
)  # fmt: skip
def test_an_invalid_line_is_skipped_with_a_warning(path, line):
    """Lines that are not decisions are ignored, with a warning at the line of the caller."""
    path.write_text(line + '\n{"row": 7, "action": "keep"}\n')
    with pytest.warns(DecisionsFileWarning, match="line 1 is not a valid decision; skipped") as caught:
        assert read_decisions(path) == [Decision(7, "keep")]
    assert caught[0].filename == __file__


@pytest.mark.skipif(sys.platform == "win32", reason="locks are those of POSIX")
def test_two_reviews_at_once_are_refused(path):
    """The second review is refused and does not change the file."""
    with DecisionsFile(path), pytest.raises(InvalidInputError, match="open in another review"):
        DecisionsFile(path)
    with DecisionsFile(path):
        pass


@pytest.mark.skipif(sys.platform == "win32", reason="locks are those of POSIX")
def test_a_file_system_without_locks_can_be_used(path, monkeypatch):
    """Some network disks refuse every lock; a review works there nevertheless."""
    fcntl = pytest.importorskip("fcntl")

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with DecisionsFile(path) as file:
        file.append(1, "keep")
    assert [decision.row for decision in read_decisions(path)] == [1]


def test_a_killed_process_loses_nothing_it_acknowledged(path):
    """If a process is killed while it appends, every decision that it had reported is in the file."""
    code = (
        "import sys\nfrom pathlib import Path\nfrom peerloss.audit.review import DecisionsFile\n"
        f"file = DecisionsFile(Path({str(path)!r}))\n"
        "for row in range(10**6):\n    file.append(row, 'change', 'x' * 50)\n    print(row, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        reported = [int(process.stdout.readline()) for _ in range(50)]
        process.kill()
        reported += [int(line) for line in process.stdout.read().split("\n")[:-1]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DecisionsFileWarning)
        rows = [decision.row for decision in read_decisions(path)]
    assert rows[: len(reported)] == reported


def test_each_decision_is_forced_to_the_disk(path, monkeypatch):
    """A decision is on the disk before it is added to the decisions."""
    forced = []
    with DecisionsFile(path) as file:
        monkeypatch.setattr(os, "fsync", lambda _: forced.append(len(file.decisions)))
        file.append(0, "keep")
    assert forced == [0]
    assert json.loads(path.read_text())["row"] == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
def test_decisions_refused_by_a_full_disk_never_appear(path):
    """Decisions that the system refuses to write are not in the file, now or after the next decision."""
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


def test_a_file_that_cannot_be_repaired_accepts_no_decision(path, monkeypatch):
    """If an incomplete line cannot be removed, every further decision is refused."""
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
