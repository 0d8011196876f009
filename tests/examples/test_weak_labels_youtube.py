"""The example of weak labels: it runs with its data, and without them prints what to do."""

import runpy
from pathlib import Path

import pytest

from peerloss.datasets import load_real_noise
from tests.examples.needed_data import need

SCRIPT = Path(__file__).parents[2] / "examples" / "weak_labels_youtube.py"


def test_missing_data_are_reported(monkeypatch):
    """The script ends with a message that names the variable, without a traceback."""
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    with pytest.raises(SystemExit, match=r"set the environment variable PEERLOSS_DATA[^$]*Then: "):
        runpy.run_path(str(SCRIPT), run_name="__main__")


def test_peer_loss_finds_spam_that_the_rules_miss():
    """On one split, α = 1 is better than plain training and worse than training on true labels."""
    need("youtube")
    found = runpy.run_path(str(SCRIPT))["compare"](load_real_noise("youtube"), 200)
    plain, peer, _, clean = (found.iloc[row] for row in range(4))
    assert plain["spam found"] + 0.05 < peer["spam found"] < clean["spam found"]
    assert plain["accuracy"] < peer["accuracy"] < clean["accuracy"]
    assert plain["labels right"] < 0.9
