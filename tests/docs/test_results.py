"""The committed tables of results."""

import pytest

from peerloss.report._compare import CHOSEN_ON_TEST, DIFFERENCES, ONLY_PEER_SEARCHES_ITS_BASE
from tests.docs.pages import ROOT


@pytest.mark.parametrize("name", ["table_a1_paper", "table_a1_fair", "heart_as_released"])
def test_differences_from_the_paper_are_stated_as_in_a_report(name):
    """The sentences are those that `peerloss report` writes today, so a new report changes numbers only."""
    page = (ROOT / "results" / f"{name}.md").read_text(encoding="utf-8").replace("\\|", "|")
    for difference in (CHOSEN_ON_TEST, *DIFFERENCES.values()):
        assert f"- Known difference from the paper: {difference}.\n" in page
    assert (ONLY_PEER_SEARCHES_ITS_BASE in page) == (name == "table_a1_fair")
