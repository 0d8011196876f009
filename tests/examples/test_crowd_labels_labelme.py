"""The example of crowd labels: it runs with its data, and without them prints what to do."""

import runpy
from pathlib import Path

import pytest

from peerloss.datasets import load_real_noise
from tests.examples.needed_data import need

SCRIPT = Path(__file__).parents[2] / "examples" / "crowd_labels_labelme.py"


def test_missing_data_are_reported(monkeypatch):
    """The script ends with a message that names the variable, without a traceback."""
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"set the environment variable PEERLOSS_DATA[^$]*Then: "):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_annotators_and_features_together_give_better_labels():
    """Labels of the audit are better than majority labels, and so are models trained on them."""
    need("labelme")
    found = runpy.run_path(str(SCRIPT))["compare"](load_real_noise("labelme"), 200)
    majority, audited = found.loc["majority's label"], found.loc["find_label_issues"]
    assert audited.loc["plain", "labels right"] > majority.loc["plain", "labels right"] + 0.03
    assert (audited["accuracy"] > majority["accuracy"] + 0.03).all()
