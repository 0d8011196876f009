"""The five flows on the page about design."""

import re
from pathlib import Path

import pytest

from tests.docs.flows import files_of, flows

PAGE = Path(__file__).parents[2] / "docs" / "design.md"
#: A reader of one flow opens at most so many files.
MOST_FILES = {
    "A loss call": 5,
    "`PeerClassifier.fit`": 28,
    "An audit": 62,
    "A reproduction": 32,
    "`train_deep`": 23,
}


@pytest.mark.parametrize("heading", MOST_FILES)
def test_a_flow_passes_through_the_listed_files(heading, tmp_path):
    """The page lists exactly the files in which a function runs, and they are few."""
    section = PAGE.read_text(encoding="utf-8").partition("## Five flows")[2].partition("\n## ")[0]
    (listed,) = [part for part in section.split("\n**")[1:] if part.startswith(heading)]
    files = files_of(flows(tmp_path)[heading])
    assert set(re.findall(r"`([\w/]+\.py)`", listed)) == set(files)
    assert len(files) <= MOST_FILES[heading]
