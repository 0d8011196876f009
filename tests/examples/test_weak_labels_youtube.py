"""The example of weak labels: runs with its data, and says what to do without them."""

import runpy
from pathlib import Path

import pytest

from peerloss.datasets import load_real_noise
from tests.examples.needed_data import need

SCRIPT = Path(__file__).parents[2] / "examples" / "weak_labels_youtube.py"


def test_without_the_data_it_says_what_to_do(monkeypatch):
    """One message that names the variable, no traceback."""
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"set the environment variable PEERLOSS_DATA[^$]*Then: "):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_peer_loss_finds_spam_that_the_rules_miss():
    """On one split: more spam and more right at α = 1 than plainly, less than with true labels."""
    need("youtube")
    found = runpy.run_path(str(SCRIPT))["compare"](load_real_noise("youtube"), 200)
    plain, peer, _, clean = (found.iloc[row] for row in range(4))
    assert plain["spam found"] + 0.05 < peer["spam found"] < clean["spam found"]
    assert plain["accuracy"] < peer["accuracy"] < clean["accuracy"]
    assert plain["labels right"] < 0.9
