"""What a report reads from a folder, and what it leaves out."""

import json

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.experiments import load_experiment
from peerloss.experiments._store import write_plan
from peerloss.report._read_results import method_order, read_results
from tests.report.made_up import record, store


def test_damaged_records_are_reported_and_left_out(tmp_path):
    """The others are read."""
    store(tmp_path, [record(), record(seed=1, n_test=-1)])
    found = read_results(tmp_path)
    assert [len(group.records) for group in found.groups] == [1]
    assert any("1 of its 2 lines cannot be read as records" in note for note in found.notes)


def test_lines_that_are_not_records_are_reported(tmp_path):
    """The warnings of the store reach the reader of the report."""
    store(tmp_path, [record()])
    (tmp_path / "records-cut.jsonl").write_text(json.dumps(record(seed=1)))
    assert any("last line is incomplete" in note for note in read_results(tmp_path).notes)


def test_of_several_settings_the_last_are_shown(tmp_path):
    """If the settings of an experiment were changed, old and new runs are not mixed; a note reports it."""
    old = [record(seed=seed, spec="old", test_accuracy=0.1) for seed in (0, 1, 2)]
    new = [record(seed=seed, spec="new", finished="2026-02-01T00:00:00.000+00:00") for seed in (0, 1)]
    found = read_results(store(tmp_path, old + new))
    assert {entry["spec"] for entry in found.groups[0].records} == {"new"}
    assert any("was run with several settings" in note for note in found.notes)


def test_an_unfinished_plan_is_reported(tmp_path):
    """With the number of missing runs per method; experiments that were never started are named too."""
    write_plan(tmp_path, load_experiment("table-a1", data_sets=["heart"], methods=["nn"], seeds=1))
    found = read_results(store(tmp_path, [record()]))
    assert found.notes[0].startswith(
        "table-a1 (paper) is not finished: 0 of 10 runs are done (missing: nn 10)"
    )
    assert any("reproduce curves" in note for note in found.notes)
    assert not any("reproduce table-a1," in note for note in found.notes)
    assert found.groups[0].title.startswith("Table A1")


def test_folders_without_results_are_errors(tmp_path):
    """Both messages say what to do."""
    with pytest.raises(InvalidInputError, match=r"has no finished run. Run for example: peerloss reproduce"):
        read_results(tmp_path)
    with pytest.raises(InvalidInputError, match="must be a folder that peerloss reproduce -o wrote"):
        read_results(tmp_path / "none")


def test_order_does_not_depend_on_the_store(tmp_path):
    """Known names are sorted as in the paper, then the others by name."""
    assert method_order(["zzz", "nn", "pam", "peer", "aaa", "nn"]) == ["peer", "nn", "pam", "aaa", "zzz"]
    names = [("zzz", "fair"), ("curves", "paper"), ("table-a1", "fair"), ("table-a1", "paper")]
    found = read_results(store(tmp_path, [record(experiment=e, protocol=p) for e, p in names]))
    assert [(g.experiment, g.protocol) for g in found.groups] == [names[3], names[2], names[1], names[0]]
