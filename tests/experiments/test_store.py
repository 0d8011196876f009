"""The store: append-only; a damaged line affects only its own run."""

import json
import os
import warnings

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.experiments import Record, Store, StoreWarning, load_experiment
from peerloss.experiments._record import FORMAT


@pytest.fixture(autouse=True)
def short_records(monkeypatch):
    """Accept every record, so that those below can be short."""
    monkeypatch.setattr(Record, "is_usable", True)


def record(key, finished="2026-01-01T00:00:00.000+00:00", **fields):
    return {"format": FORMAT, "key": key, "finished": finished, **fields}


def only_file(folder):
    (path,) = folder.glob("records-*.jsonl")
    return path


def fill(folder, *keys):
    with Store(folder) as store:
        store.append([record(key, accuracy=0.1) for key in keys])
    return only_file(folder)


def test_what_is_appended_is_read_in_the_order_of_keys(tmp_path):
    """By another store, without loss."""
    fill(tmp_path, "b", "a")
    assert Store(tmp_path).records() == [record("a", accuracy=0.1), record("b", accuracy=0.1)]


def test_an_absent_folder_is_an_empty_store(tmp_path):
    """Reading does not create it."""
    assert Store(tmp_path / "none").records() == []
    assert not (tmp_path / "none").exists()


def test_a_file_is_not_a_store(tmp_path):
    """The message names it."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInputError, match="file is a file"):
        Store(tmp_path / "file")


def test_a_cut_line_affects_one_run_only(tmp_path):
    """For every length of the last line: the records before it are read, and a warning reports it."""
    path = fill(tmp_path, "a", "b")
    content = path.read_bytes()
    first = content.index(b"\n") + 1
    for length in range(first + 1, len(content)):
        path.write_bytes(content[:length])
        with pytest.warns(StoreWarning, match="last line is incomplete"):
            assert [r["key"] for r in Store(tmp_path).records()] == ["a"]
    path.write_bytes(content[:first])
    assert [r["key"] for r in Store(tmp_path).records()] == ["a"]


def test_repair_removes_an_incomplete_line(tmp_path):
    """With one warning; afterwards there is nothing to repair."""
    path = fill(tmp_path, "a", "b")
    content = path.read_bytes()
    path.write_bytes(content[:-7])
    with pytest.warns(StoreWarning, match="repaired"):
        Store(tmp_path).repair()
    assert path.read_bytes() == content[: content.index(b"\n") + 1]
    Store(tmp_path).repair()
    assert Store(tmp_path).done() == {"a"}


def test_repair_does_not_change_the_file_of_a_living_process(tmp_path):
    """Its line may be unfinished."""
    with Store(tmp_path) as alive:
        alive.append([record("a")])
        path = only_file(tmp_path)
        with path.open("ab") as stream:
            stream.write(b'{"half')
        Store(tmp_path).repair()
        assert path.read_bytes().endswith(b'{"half')


#: Lines that no store writes, by what is wrong with them.
ODD_LINES = {
    "noise": b"\x00\xff\x00",
    "not an object": b"[1, 2]",
    "key of another type": b'{"format": 1, "key": 3, "finished": "2026"}',
    "no key": b'{"format": 1, "finished": "2026"}',
    "no format": b'{"key": "x", "finished": "2026"}',
    "nested too deeply to be parsed": b'{"format": 1, "key": "x", "finished": "2026", "more": '
    + b"[" * 100_000
    + b"]" * 100_000
    + b"}",
    "nested too deeply to be traversed": b'{"format": 1, "key": "x", "finished": "2026", "more": '
    + b"[" * 500
    + b"]" * 500
    + b"}",
    "lone surrogate": b'{"format": 1, "key": "x", "finished": "2026", "method": "\\uD800"}',
    "not a number": b'{"format": 1, "key": "x", "finished": "2026", "seconds": NaN}',
    "number of 5,000 digits": b'{"format": 1, "key": "x", "finished": "2026", "seed": ' + b"1" * 5000 + b"}",
}


@pytest.mark.parametrize("line", ODD_LINES.values(), ids=ODD_LINES)
def test_a_damaged_line_affects_its_own_run_only(tmp_path, line):
    """The records before and after it are read, and one warning counts the skipped lines."""
    path = fill(tmp_path, "a", "b")
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, line, line, second, b""]))
    with pytest.warns(StoreWarning, match="2 of its 4 lines cannot be read as records") as caught:
        assert Store(tmp_path).done() == {"a", "b"}
    assert len(caught) == 1


def test_unusable_records_are_skipped(tmp_path, monkeypatch):
    """Like lines that cannot be read; records are checked when they are read."""
    fill(tmp_path, "a", "b")
    monkeypatch.setattr(Record, "is_usable", property(lambda record: record["key"] == "a"))
    with pytest.warns(StoreWarning, match="1 of its 2 lines"):
        assert Store(tmp_path).done() == {"a"}


def test_records_of_another_version_are_not_damage(tmp_path):
    """They are skipped without a warning."""
    path = fill(tmp_path, "a")
    old = json.dumps(record("old") | {"format": FORMAT + 1}).encode()
    path.write_bytes(old + b"\n\n" + path.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Store(tmp_path).done() == {"a"}


@pytest.mark.parametrize("free", [0, 1, 40, 10_000])
def test_a_full_disk_leaves_complete_records(tmp_path, free):
    """At any size: the error names the file, no part of a record stays, and appending can continue."""
    resource = pytest.importorskip("resource", reason="this system has no limits on files")
    with Store(tmp_path) as store:
        store.append([record("a")])
        path = only_file(tmp_path)
        before = path.read_bytes()
        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + free, usual[1]))
        try:
            with pytest.raises(OSError, match=path.name):
                store.append([record("b"), record("c", text="c" * 20_000)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, usual)
        assert path.read_bytes() == before
        store.append([record("d")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Store(tmp_path).done() == {"a", "d"}


def test_a_disk_that_fails_at_the_end_leaves_complete_records(tmp_path, monkeypatch):
    """A network disk may report an error only when the file is flushed."""

    def full(_):
        raise OSError(28, "No space left on device")

    with Store(tmp_path) as store:
        store.append([record("a")])
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                store.append([record("b")])
        store.append([record("c")])
    assert Store(tmp_path).done() == {"a", "c"}


def test_of_two_records_of_a_run_the_earlier_counts(tmp_path):
    """In any order of the files."""
    for finished, accuracy in (("2026-01-02", 0.2), ("2026-01-01", 0.1), ("2026-01-03", 0.3)):
        with Store(tmp_path) as store:
            store.append([record("a", finished, accuracy=accuracy)])
    (found,) = Store(tmp_path).records()
    assert found["accuracy"] == 0.1


def test_records_of_an_experiment(tmp_path, spec):
    """Those with its name and protocol, also with other methods, seeds and settings."""
    experiment = load_experiment(spec, protocol="fair", methods=["pam"], seeds=1)
    own = {"experiment": "tiny", "protocol": "fair"}
    with Store(tmp_path) as store:
        store.append(
            [
                record("a", **own, method="pam", seed=0),
                record("b", **own, method="nn", seed=7, spec="other"),
                record("c", **own | {"protocol": "paper"}, method="pam", seed=0),
                record("d", **own | {"experiment": "large"}, method="pam", seed=0),
            ]
        )
        assert [found["key"] for found in store.records_of(experiment)] == ["a", "b"]


def test_a_store_sees_what_others_add(tmp_path):
    """Line by line, also after it read a part of a line."""
    reader = Store(tmp_path)
    path = fill(tmp_path, "a")
    assert reader.done() == {"a"}
    line = json.dumps(record("b")).encode() + b"\n"
    for part in (line[:9], line[9:]):
        with path.open("ab") as stream:
            stream.write(part)
        found = reader.done()
    assert found == {"a", "b"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(reader.records()) == 2


def test_numbers_are_finite_or_null(tmp_path):
    """NaN is not JSON; a record with it is rejected before anything is written."""
    with Store(tmp_path) as store, pytest.raises(ValueError, match="JSON"):
        store.append([record("a"), record("b", accuracy=float("nan"))])
    assert list(tmp_path.iterdir()) == []
