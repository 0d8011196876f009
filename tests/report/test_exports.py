"""JSON, CSV and Markdown."""

import csv
import io
import json

import pytest

import peerloss.report
from peerloss.report import build_report, report_numbers
from peerloss.report._exports import section_markdown, table_csv
from tests.report.made_up import HOSTILE, everything, record, row, store


def test_json_does_not_depend_on_the_order_or_circumstances_of_the_run(report, tmp_path):
    """The same numbers, byte for byte, whatever the order, time and machine."""
    other = [
        entry | {"finished": f"2027-01-01T00:00:{i:02d}.000+00:00", "seconds": 9.0, "machine": {"cores": 99}}
        for i, entry in enumerate(reversed(everything()))
    ]
    again = build_report(store(tmp_path, other))
    assert json.dumps(report_numbers(again)) == json.dumps(report_numbers(report))
    assert "2026" not in json.dumps(report_numbers(report))


def test_json_contains_every_number(report):
    """A row with its methods, the summary, tests, and what the pictures show; valid JSON without NaN."""
    table, curves, boundary, invariance = json.loads(json.dumps(report_numbers(report), allow_nan=False))
    assert list(table) == [
        "experiment", "protocol", "rows", "summaries", "tests", "deviations", "curves",
        "invariance", "boundaries",
    ]  # fmt: skip
    assert table["rows"][0]["methods"][0] == {
        "method": "peer",
        "test_accuracy": 0.86,
        "error": 0.01,
        "seeds": 2,
        "diverged": 0,
        "n_test": 40,
        "near_best": True,
        "printed": 0.856,
        "difference": 0.004,
    }
    assert table["summaries"][0]["rows"] == 2
    assert [test["baseline"] for test in table["tests"]] == ["surrogate", "nn"]
    assert curves["curves"][0]["mean"] == [0.5, 0.65]
    assert [entry["slope"] for entry in invariance["invariance"]] == [0.7, 0.6]
    assert [entry["method"] for entry in boundary["boundaries"]] == ["nn", "peer"]


def test_tiny_p_values_survive(tmp_path):
    """Rounding keeps significant digits, not decimal places."""
    records = row({"peer": [0.9 + i / 1e4 for i in range(40)], "nn": [0.5] * 40})
    (section,) = report_numbers(build_report(store(tmp_path, records)))
    assert 0 < section["tests"][0]["p_pairs"] < 1e-9


def test_csv_has_one_line_per_row_and_method(report):
    """Names may contain any characters."""
    lines = list(csv.DictReader(io.StringIO(table_csv(report.sections[0].table))))
    assert len(lines) == 9
    peer = next(line for line in lines if line["data_set"] == HOSTILE and line["method"] == "peer")
    assert (peer["test_accuracy"], peer["near_best"], peer["printed"]) == ("0.65", "False", "")
    diverged = next(line for line in lines if line["data_set"] == "german" and line["method"] == "surrogate")
    assert (diverged["test_accuracy"], diverged["diverged"]) == ("", "1")


def test_markdown_is_a_table_with_its_provenance(report):
    """Bold face, printed numbers in parentheses; names cannot break a row or become tags."""
    text = section_markdown(report.sections[0])
    assert "versions" not in text
    assert "peerloss 0.1.0" in text
    assert (
        "| heart | 0.1, 0.3 | **0.860 ± 0.010** (0.856) | 0.790 ± 0.010 (0.802) | 0.760 ± 0.010 (0.750) |"
        in text
    )
    assert "<script" not in text
    lines = [line for line in text.splitlines() if line.startswith("| ") and "owned" in line]
    assert [line.replace("\\|", "").count("|") for line in lines] == [6]
    assert "| german | 0.1, 0.3 | **0.900** (0.680) | – (" in text


def test_a_section_without_a_table_has_no_markdown(tmp_path):
    """It has only pictures."""
    (section,) = build_report(store(tmp_path, [record()])).sections
    assert section_markdown(section) == ""


def test_the_old_name_of_report_numbers_warns():
    """It still works."""
    with pytest.warns(DeprecationWarning, match=r"Use `peerloss.report.report_numbers`"):
        assert peerloss.report.figures is report_numbers
