"""The example of a credit table."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "credit_table.py"


def test_recall_of_bad_credits_and_precision_of_suspects():
    """On one split, recall is higher than with plain training, and suspects are wrong more often."""
    scores, found = runpy.run_path(str(SCRIPT))["compare"](200)
    plain, plug_in, peer = (scores.iloc[row] for row in range(3))
    for robust in (plug_in, peer):
        assert robust["bad credits found"] > plain["bad credits found"]
        assert robust["balanced accuracy"] > plain["balanced accuracy"]
    assert found["wrong among the 50 most suspect"] > 2 * found["wrong among all labels"]
