import runpy
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "truthful_scores.py"


def test_example_shows_that_truth_pays_best(capsys):
    """The example runs; truth has the highest score of each truthful mechanism, not of plain agreement."""
    names = runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert "CA, Δ given" in printed
    assert "everybody swaps" in printed
    table = names["score_table"]()
    best = table.idxmax()
    assert (best.drop("plain agreement") == "truth").all()
    assert best["plain agreement"] == "majority guess"
    assert table.loc["majority guess", "CA, Δ given"] == 0.0
    noise = names["NOISE"]
    honest, swapped = (names["all_alike"](names["permuted"](noise, order)) for order in ([0, 1], [1, 0]))
    assert honest == pytest.approx(swapped, abs=1e-12)
