"""The code blocks of the pages run and print what the pages show."""

import pytest
from threadpoolctl import threadpool_limits

from peerloss.experiments import METHODS
from peerloss.functional import BASES
from tests.docs.pages import ROOT, blocks, first_difference, pages

PAGES = [page for page in pages() if blocks(page)]


@pytest.fixture(autouse=True)
def _registries_as_before():
    """Remove what a page adds to a registry, because other tests use all of its entries."""
    before = [(registry, dict(registry)) for registry in (METHODS, BASES)]
    yield
    for registry, entries in before:
        registry.clear()
        registry.update(entries)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_run_in_order(page, tmp_path, monkeypatch):
    """Blocks share a namespace and an empty folder; if an output is shown, it is what is printed."""
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "__main__"}
    skipped = []
    for block in blocks(page):
        if block.missing:
            skipped.append(f"line {block.line}: {', '.join(block.missing)}")
            continue
        with threadpool_limits(1):  # two pytest workers share two cores, so more threads would be slower
            printed = block.run(names, page.name)
        if block.output is not None:
            difference = first_difference(block.output, printed)
            assert not difference, f"{page.name}, line {block.line}: {difference}"
    if skipped:
        pytest.skip(f"all other blocks ran; these have unmet requirements: {'; '.join(skipped)}")


def test_a_shown_output_that_is_not_printed_is_found():
    """Words must be equal, numbers nearly equal; otherwise the comparison fails."""
    assert first_difference("accuracy 0.90", "accuracy 0.92\n") == ""
    assert "0.90" in first_difference("accuracy 0.90", "accuracy 0.80")
    assert "accuracy" in first_difference("accuracy 0.90", "error 0.90")
    assert "2 words" in first_difference("accuracy 0.90", "accuracy 0.90 and more")
