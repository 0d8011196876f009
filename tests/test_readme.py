"""What the README says is so. Its blocks of code run in tests/docs."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def row(text, start):
    """Return the cells of the first line of a table that begins so, without emphasis."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


def test_its_table_is_that_of_the_results():
    """Each figure is the mean in results/accuracy_peer_classifier.md."""
    results = (ROOT / "results" / "accuracy_peer_classifier.md").read_text(encoding="utf-8")
    original, equalized = (results.split(f"## {prior} prior")[1] for prior in ("original", "equalized"))
    columns = row(results, "data set")
    for words, column in (
        ("`PeerClassifier()`", "ours"),
        ("the same models without noise handling", "plain"),
        ("the same models trained on clean labels", "clean"),
        ("peer loss as printed in the paper", "paper's Peer"),
    ):
        shown = row(README, words)[1:]
        assert shown == [row(half, "**mean**")[columns.index(column)] for half in (original, equalized)]


def test_its_links_lead_somewhere():
    """Every file it names in the repository is there."""
    links = re.findall(r"\]\(([^)#]+)\)", README)
    local = [link for link in links if not link.startswith("http")]
    assert len(local) > 10
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_its_extras_are_those_of_the_project():
    """The install matrix names every extra and no other."""
    project = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project.optional-dependencies]")[1]
    )
    extras = set(re.findall(r"^(\w+) = \[", project.split("\n[")[0], re.MULTILINE))
    table = README.split("| extra,")[1].split("\n\n")[0].splitlines()[2:]
    assert {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])} == extras


def test_it_can_be_read_in_one_go():
    """A reader has ten minutes."""
    assert len(README.splitlines()) <= 150
