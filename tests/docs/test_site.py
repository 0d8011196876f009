"""The built site, opened from disk in a real browser."""

import os
import subprocess
import sys
from html.parser import HTMLParser
from urllib.parse import unquote, urldefrag, urlsplit

import pytest
from filelock import FileLock

from tests.docs.pages import DOCS

for package in ("sphinx", "furo", "myst_parser"):
    pytest.importorskip(package, reason='needs the extra docs: pip install ".[docs]"')


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """Build the site like `make docs`, in another folder and once for all workers; a warning is a failure."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    with FileLock(folder / "site.lock"):
        if not (folder / "site").exists():
            command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", folder / "doctrees"]
            built = subprocess.run(
                [*command, DOCS, folder / "half"], capture_output=True, text=True, check=False
            )
            assert built.returncode == 0, built.stderr
            (folder / "half").rename(folder / "site")
    return folder / "site"


class Links(HTMLParser):
    """Collect the links and the anchors of a page."""

    def __init__(self, text):
        super().__init__()
        self.targets, self.anchors = set(), {""}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        """Read `href` and `src`, `id` and `name`."""
        for key, value in attrs:
            if key in {"href", "src"} and value:
                self.targets.add((tag, value))
            elif key in {"id", "name"} and value:
                self.anchors.add(value)


@pytest.fixture(scope="module")
def links(site):
    return {page.resolve(): Links(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}


def test_every_internal_link_exists(links, site):
    """Linked files and anchors exist; only links that a reader clicks may leave the site."""
    assert len(links) > 20
    broken = []
    for page, found in links.items():
        for tag, target in found.targets:
            address, anchor = urldefrag(target)
            if urlsplit(address).scheme:
                if tag != "a" and not target.startswith("data:"):
                    broken.append(f"{page.name}: <{tag}> loads {target}")
                continue
            there = (page.parent / unquote(urlsplit(address).path)).resolve() if address else page
            if not there.is_file():
                broken.append(f"{page.relative_to(site.resolve())} → {target}")
            elif there in links and unquote(anchor) not in links[there].anchors:
                broken.append(f"{page.relative_to(site.resolve())} → {target} (no such anchor)")
    assert not broken, "\n".join(sorted(broken))


def test_every_page_opens_without_console_messages(browser, site, links):
    """No script fails, every picture is shown, and on a phone no page is wider than the screen."""
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": True},
    )
    for page in sorted(links):
        browser.get(page.as_uri())
        name = page.relative_to(site.resolve())
        assert browser.get_log("browser") == [], name
        pictures = browser.execute_script("return Array.from(document.images).map((i) => i.naturalWidth)")
        assert all(pictures), name
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 400, name
    browser.execute_script("console.error('test message')")
    assert "test message" in browser.get_log("browser")[0]["message"]


def test_the_search_works_from_disk(browser, site):
    """It needs no server, because the index is a script of the site."""
    browser.get((site / "search.html").as_uri() + "?q=PeerLoss")
    browser.implicitly_wait(20)
    browser.find_element("css selector", "#search-results li a")
    assert browser.get_log("browser") == []
