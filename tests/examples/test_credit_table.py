"""The example of a credit table."""

import runpy
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "examples" / "credit_table.py"


def test_more_bad_credits_are_found_and_suspects_are_worth_a_look():
    """On one split: a higher recall of bad credits than plain training, suspects wrong far beyond average."""
    figures, found = runpy.run_path(str(SCRIPT))["compare"](200)
    plain, plug_in, peer = (figures.iloc[row] for row in range(3))
    for robust in (plug_in, peer):
        assert robust["bad credits found"] > plain["bad credits found"]
        assert robust["balanced accuracy"] > plain["balanced accuracy"]
    assert found["wrong among the 50 most suspect"] > 2 * found["wrong among all labels"]
