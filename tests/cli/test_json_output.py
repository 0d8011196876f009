"""The JSON that commands print is valid."""

import json

import pytest

from peerloss.cli._terminal import say_json
from tests.cli.audits import run


def refuse(constant):
    raise ValueError(f"{constant} is not JSON")


def test_numbers_that_json_lacks_are_null(capsys):
    """NaN and infinity are printed as null, also inside lists, tuples and objects."""
    say_json({"a": float("nan"), "b": [float("inf"), 1.5, (-float("inf"),)], "c": True, "d": 7})
    found = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert found == {"a": None, "b": [None, 1.5, [None]], "c": True, "d": 7}


def test_an_infinite_bound_is_null():
    """A bound that overflows is null in the JSON of ``peerloss bound``."""
    result = run(
        "bound", "--samples", "100", "--e-neg", "0.1", "--e-pos", "0.3", "--alpha", "1e308", "--json"
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout, parse_constant=refuse)
    assert [row["value"] for row in rows if row["quantity"] == "excess error of 0-1 minimisation"] == [None]


@pytest.mark.parametrize(("target", "status"), [("3e-12", 0), ("1e-300", 2)])
def test_tiny_targets_end_at_once(target, status):
    """A tiny target gives a number of labels, or a message if the number is too large."""
    result = run("bound", "--samples", "100", "--e-neg", "0.1", "--e-pos", "0.3", "--target-excess", target)
    assert result.exit_code == status
    if status:
        assert "--target-excess must be at least" in result.output
