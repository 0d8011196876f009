"""Check the statements of the README. Its code blocks run in tests/docs."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def row(text, start):
    """Return the cells of the first table row that begins with ``start``, without emphasis."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip(" *") for cell in line.strip("|").split("|")]


def test_the_table_matches_the_results():
    """Each number is the mean in results/accuracy_peer_classifier.md."""
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


def test_the_links_exist():
    """Every linked file of the repository exists."""
    links = re.findall(r"\]\(([^)#]+)\)", README)
    local = [link for link in links if not link.startswith("http")]
    assert len(local) > 10
    assert [link for link in local if not (ROOT / link).exists()] == []


def test_the_extras_match_the_project():
    """The table of extras has every extra of the project and no other."""
    project = (
        (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project.optional-dependencies]")[1]
    )
    extras = set(re.findall(r"^(\w+) = \[", project.split("\n[")[0], re.MULTILINE))
    table = README.split("| extra,")[1].split("\n\n")[0].splitlines()[2:]
    assert {name for line in table for name in re.findall(r"`(\w+)`", line.split("|")[1])} == extras


def test_it_is_short():
    """It has at most 150 lines, and about two screens before the first table."""
    lines = README.splitlines()
    assert len(lines) <= 150
    assert next(number for number, line in enumerate(lines) if line.startswith("|")) <= 110
