"""The example of a credit table."""

import runpy

import pytest

from tests.docs.pages import ROOT, first_difference

SCRIPT = ROOT / "examples" / "credit_table.py"


@pytest.fixture(scope="module")
def names():
    """Return the names of the script; `compare` keeps its results, because each takes seconds."""
    found = runpy.run_path(str(SCRIPT))
    main_names, results = found["main"].__globals__, {}

    def compare(seed):
        if seed not in results:
            results[seed] = found["compare"](seed)
        return results[seed]

    main_names["compare"] = compare
    return main_names


def test_recall_of_bad_credits_and_precision_of_suspects(names):
    """On one split, more bad credits are found if that is the aim, and suspects are often wrong."""
    scores, found = names["compare"](200)
    plain, plug_in, peer, balanced = (scores.iloc[row] for row in range(4))
    assert min(plain["accuracy"], peer["accuracy"]) > balanced["accuracy"]
    for robust in (plug_in, balanced):
        assert robust["bad credits found"] > plain["bad credits found"]
        assert robust["balanced accuracy"] > plain["balanced accuracy"]
    assert found["wrong among the 50 most suspect"] > 2 * found["wrong among all labels"]


def test_the_readme_shows_what_the_script_prints(names, capsys):
    """Words are equal, and numbers are equal up to the rounding of other processors and versions."""
    names["main"]()
    page = (ROOT / "examples" / "README.md").read_text(encoding="utf-8")
    shown = page.split("## credit_table.py\n\n```\n")[1].split("```")[0]
    assert not first_difference(shown, capsys.readouterr().out)
