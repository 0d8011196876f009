"""The example of crowd labels: runs with its data, and says what to do without them."""

import runpy
from pathlib import Path

import pytest

from peerloss.datasets import load_real_noise
from tests.examples.needed_data import need

SCRIPT = Path(__file__).parents[2] / "examples" / "crowd_labels_labelme.py"


def test_without_the_data_it_says_what_to_do(monkeypatch):
    """One message that names the variable, no traceback."""
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"set the environment variable PEERLOSS_DATA[^$]*Then: "):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_annotators_and_pictures_together_give_better_labels():
    """Labels of the audit beat the majority's, and so does what is trained on them."""
    need("labelme")
    found = runpy.run_path(str(SCRIPT))["compare"](load_real_noise("labelme"), 200)
    majority, audited = found.loc["majority's label"], found.loc["find_label_issues"]
    assert audited.loc["plain", "labels right"] > majority.loc["plain", "labels right"] + 0.03
    assert (audited["accuracy"] > majority["accuracy"] + 0.03).all()
