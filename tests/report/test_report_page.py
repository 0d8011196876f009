"""The page as text: escaped, self-contained, complete."""

from html.parser import HTMLParser

import pytest

from tests.report.made_up import HOSTILE


class Elements(HTMLParser):
    """Collects tags with their attributes, and the text between them."""

    def __init__(self):
        super().__init__()
        self.tags, self.text = [], []

    def handle_starttag(self, tag, attrs):  # noqa: D102 (html.parser's)
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):  # noqa: D102
        self.text.append(data)

    def of(self, name):
        """Return the attributes of every element of a name."""
        return [attributes for tag, attributes in self.tags if tag == name]


@pytest.fixture(scope="module")
def elements(page):
    parser = Elements()
    parser.feed(page.read_text(encoding="utf-8"))
    return parser


def test_hostile_names_are_text(elements):
    """A data set named like a script is shown, not executed: the page has only its own script."""
    assert len(elements.of("script")) == 1
    assert any(HOSTILE in text for text in elements.text)
    assert any(HOSTILE in image["alt"] for image in elements.of("img"))


def test_nothing_is_fetched(elements):
    """Every picture is embedded; links are anchors; the policy forbids everything else."""
    assert all(image["src"].startswith("data:image/png;base64,") for image in elements.of("img"))
    assert all(link["href"].startswith("#") for link in elements.of("a"))
    assert elements.of("link") == []
    assert "src" not in elements.of("script")[0]
    (policy,) = [meta["content"] for meta in elements.of("meta") if "http-equiv" in meta]
    assert "default-src 'none'" in policy
    assert "script-src 'sha256-" in policy


def test_pictures_are_described_and_sized(elements):
    """One comparison with the paper, a curve, two boundaries, one invariance; each with text and size."""
    images = elements.of("img")
    assert len(images) == 5
    assert all(
        len(image["alt"]) > 40 and int(image["width"]) > 300 and int(image["height"]) > 300
        for image in images
    )
    assert (
        sum("slope 0.700 on train rows, 0.600 on validation rows; expected 0.6" in i["alt"] for i in images)
        == 1
    )


def test_what_is_missing_is_visible(elements):
    """The grid was not run, and one row is incomplete."""
    text = " ".join(elements.text)
    assert "What is missing" in text
    assert "table-a1-grid has not been run" in text
    assert "1 row is incomplete" in text
    assert "diverged" in text


def test_bold_and_far_cells_are_marked(page):
    """Heart: only peer is within 2 points; the numbers of german are far from the paper."""
    text = page.read_text(encoding="utf-8")
    assert "<b>0.860 ± 0.010</b><small>paper 0.856</small>" in text
    assert ">0.790 ± 0.010<small>paper 0.802</small>" in text
    assert 'data-value="0.5" class="far">' in text
