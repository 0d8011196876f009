"""Means, spreads, bold face and which rows can be compared."""

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.report import build_report
from tests.report.made_up import plane, record, row, store


def table_of(folder, records):
    return build_report(store(folder, records)).sections[0].table


def test_a_cell_by_hand(tmp_path):
    """Mean, standard deviation and error over seeds, and the difference from the paper (.856)."""
    table = table_of(tmp_path, row({"peer": [0.8, 0.9, 0.7], "nn": [0.75, 0.75, 0.75]}))
    cell = table.rows[0].cells["peer"]
    assert cell.mean == pytest.approx(0.8)
    assert cell.spread == pytest.approx(0.1)
    assert cell.error == pytest.approx(0.1 / 3**0.5)
    assert cell.difference == pytest.approx(0.8 - 0.856)
    assert cell.far
    assert cell.within_spread
    assert table.rows[0].cells["nn"].within_spread, "printed .750, here .750 without spread"


def test_bold_marks_the_methods_within_two_points(tmp_path):
    """By the means here, not by the printed ones."""
    table = table_of(tmp_path, row({"peer": [0.80, 0.80], "dmi": [0.70, 0.86], "nn": [0.7, 0.81]}))
    assert table.rows[0].bold == {"peer", "dmi"}


def test_one_seed_has_no_spread(tmp_path):
    """So it is unknown whether the printed number is within it."""
    cell = table_of(tmp_path, row({"peer": [0.8], "nn": [0.7]})).rows[0].cells["peer"]
    assert (cell.spread, cell.error, cell.within_spread) == (None, None, None)


def test_only_rows_with_the_same_seeds_for_all_methods_are_complete(tmp_path):
    """A missing method, a missing seed or a training that diverged makes a row incomplete, not invisible."""
    records = row({"peer": [0.8, 0.8], "nn": [0.7, 0.7]})
    records += row({"peer": [0.8, 0.8], "nn": [0.7]}, e_pos=0.4)
    records += row({"peer": [0.8]}, e_neg=0.2)
    records += row({"peer": [0.8, None], "nn": [0.7, 0.6]}, e_neg=0.4)
    records += row({"peer": [None], "nn": [0.6]}, e_neg=0.3)
    table = table_of(tmp_path, records)
    assert len(table.rows) == 5
    assert [entry.row.noise for entry in table.complete("original")] == ["0.1, 0.3"]
    assert table.rows[-1].cells["peer"].diverged == 1
    assert next(entry for entry in table.rows if entry.row.e_neg == 0.3).cells["peer"].mean is None


def test_rows_that_choose_together_are_read_so(tmp_path):
    """The trial that is best on average over the row's seeds counts, not each seed's own."""
    trials = [([0.9, 0.1], [0.5, 0.6]), ([0.2, 0.8], [0.7, 0.8]), ([0.1, 0.9], [0.5, 0.4])]
    records = row({"nn": [0.5, 0.5, 0.5]})
    for seed, (validation, test) in enumerate(trials):
        made = record(seed=seed, choose="row", test_accuracy=test)
        made["trials"]["noisy_validation"] = validation
        records.append(made)
    cell = table_of(tmp_path, records).rows[0].cells["peer"]
    assert cell.accuracies == {0: 0.6, 1: 0.8, 2: 0.4}


def test_pictures_and_single_methods_have_no_table(tmp_path):
    """There is nothing to compare."""
    assert table_of(tmp_path / "a", [record()]) is None
    assert table_of(tmp_path / "b", [record(plane=plane()), record(method="nn")]) is None


def test_records_that_contradict_each_other_are_an_error(tmp_path):
    """Two seeds of one recipe with different numbers of trials: a message, not a traceback."""
    records = [
        record(choose="row", test_accuracy=[0.5, 0.5]),
        record(choose="row", seed=1),
        record(method="nn"),
    ]
    with pytest.raises(InvalidInputError, match="contradict each other"):
        build_report(store(tmp_path, records))
