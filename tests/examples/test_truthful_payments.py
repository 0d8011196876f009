"""The example of truthful payments."""

import runpy
from pathlib import Path

import pandas as pd
import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "truthful_payments.py"


def test_honest_work_pays_best_only_by_truthful_scores(capsys):
    """By CA the honest earn most and who never varies exactly nothing; by agreement a constant earns most."""
    names = runpy.run_path(str(SCRIPT), run_name="__main__")
    printed = capsys.readouterr().out
    assert "Pairs who seem to copy: honest 0 and copier" in printed
    paid = pd.DataFrame({name: names["payments"](choice, 200) for name, choice in names["CHOICES"].items()}).T
    assert paid["correlated agreement"].idxmax() == "look and tell"
    assert paid["plain agreement"].idxmax() == "always say negative"
    assert (paid.loc[["always say negative", "always say positive"], "correlated agreement"] == 0).all()


def test_swapping_by_everybody_pays_as_truth_does():
    """The known limit: what all do alike cannot be told from truth."""
    names = runpy.run_path(str(SCRIPT))
    honest, swapped = (
        names["everybody"](names["permuted"](names["NOISE"], order), 200) for order in ([0, 1], [1, 0])
    )
    assert honest == pytest.approx(swapped, abs=1e-12)
