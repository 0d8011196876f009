"""The store: append-only, and whatever is cut off or damaged costs its own cell alone."""

import json
import warnings

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.experiments import Store, StoreWarning
from peerloss.experiments._cells import FORMAT


def record(key, finished="2026-01-01T00:00:00.000+00:00", **fields):
    return {"format": FORMAT, "key": key, "finished": finished, **fields}


def only_file(folder):
    (path,) = folder.glob("records-*.jsonl")
    return path


def fill(folder, *keys):
    with Store(folder) as store:
        store.append([record(key, figure=0.1) for key in keys])
    return only_file(folder)


def test_what_is_appended_is_read_in_the_order_of_keys(tmp_path):
    """By a store of its own, with nothing lost."""
    fill(tmp_path, "b", "a")
    assert Store(tmp_path).records() == [record("a", figure=0.1), record("b", figure=0.1)]


def test_an_absent_folder_is_an_empty_store(tmp_path):
    """Looking does not make it."""
    assert Store(tmp_path / "none").records() == []
    assert not (tmp_path / "none").exists()


def test_a_file_is_no_store(tmp_path):
    """The message names it."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInputError, match="file is a file"):
        Store(tmp_path / "file")


def test_a_cut_line_costs_one_cell_wherever_it_is_cut(tmp_path):
    """For every length of the last line that a kill may leave: the cells before stay, a warning tells."""
    path = fill(tmp_path, "a", "b")
    whole = path.read_bytes()
    first = whole.index(b"\n") + 1
    for length in range(first + 1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.warns(StoreWarning, match="last line is incomplete"):
            assert [r["key"] for r in Store(tmp_path).records()] == ["a"]
    path.write_bytes(whole[:first])
    assert [r["key"] for r in Store(tmp_path).records()] == ["a"]


def test_repair_cuts_an_incomplete_line_off(tmp_path):
    """With a warning, once; afterwards all is in order."""
    path = fill(tmp_path, "a", "b")
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    with pytest.warns(StoreWarning, match="repaired"):
        Store(tmp_path).repair()
    assert path.read_bytes() == whole[: whole.index(b"\n") + 1]
    Store(tmp_path).repair()
    assert Store(tmp_path).done() == {"a"}


def test_repair_leaves_the_file_of_a_living_runner_alone(tmp_path):
    """Its line may be in the middle of being written."""
    with Store(tmp_path) as alive:
        alive.append([record("a")])
        path = only_file(tmp_path)
        with path.open("ab") as stream:
            stream.write(b'{"half')
        Store(tmp_path).repair()
        assert path.read_bytes().endswith(b'{"half')


def test_damaged_lines_cost_their_own_cells_alone(tmp_path):
    """Noise, other JSON, another version: what is a record is still read."""
    path = fill(tmp_path, "a")
    others = [b"\x00\xff\x00", b"[1, 2]", b'{"key": 3}', json.dumps(record("old") | {"format": -1}).encode()]
    path.write_bytes(b"\n".join([*others, path.read_bytes()]))
    with pytest.warns(StoreWarning) as caught:
        assert Store(tmp_path).done() == {"a"}
    assert len(caught) == 3, "another version is no damage"


def test_of_two_records_of_a_cell_the_earlier_counts(tmp_path):
    """Whatever the order of the files: readers agree."""
    for finished, figure in (("2026-01-02", 0.2), ("2026-01-01", 0.1), ("2026-01-03", 0.3)):
        with Store(tmp_path) as store:
            store.append([record("a", finished, figure=figure)])
    (found,) = Store(tmp_path).records()
    assert found["figure"] == 0.1


def test_a_store_sees_what_others_add(tmp_path):
    """Line by line, also where it saw half a line before."""
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


def test_figures_are_finite_or_null(tmp_path):
    """NaN is no JSON; a record with it is refused before anything is written."""
    with Store(tmp_path) as store, pytest.raises(ValueError, match="JSON"):
        store.append([record("a"), record("b", figure=float("nan"))])
    assert Store(tmp_path).records() == []
