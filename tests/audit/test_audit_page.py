"""The audit page in a real browser: search, filters, download, screens."""

import csv
import io
import time

import numpy as np
import pandas as pd
import pytest

from peerloss.audit import find_label_issues
from peerloss.audit._audit_page import PageContext, audit_page
from peerloss.datasets.tables import RowNumbers
from tests.audit.made_up import GIF, HOSTILE, made_audit, table, write_audit
from tests.browsers import SCREENS, console_errors, show_on


@pytest.fixture
def page(browser, tmp_path):
    """Open the page of an audit; return its folder."""
    write_audit(tmp_path)
    browser.get((tmp_path / "audit" / "index.html").as_uri())
    return tmp_path / "audit"


def shown(browser):
    """Return the texts of the cells of the rows that are shown."""
    return browser.execute_script(
        "return Array.from(document.querySelector('#table').tBodies[0].rows).filter((row) => !row.hidden)"
        ".map((row) => Array.from(row.cells).map((cell) => cell.textContent))"
    )


def enter(browser, name, value):
    browser.execute_script(
        "const [name, value] = arguments, field = document.getElementById(name); field.value = value;"
        "field.dispatchEvent(new Event('input', {bubbles: true}));",
        name,
        value,
    )


def test_the_audit_page_sorts_by_any_column(browser, tmp_path):
    """A click on a heading sorts numbers as numbers; a second click reverses the order."""
    write_audit(tmp_path)
    browser.get((tmp_path / "audit" / "index.html").as_uri())
    click = "document.querySelectorAll('table.sortable th button')[arguments[0]].click()"
    values = (
        "return Array.from(document.querySelector('table.sortable').tBodies[0].rows)"
        ".map((row) => Number(row.cells[arguments[0]].dataset.value))"
    )
    for column in (0, 3, 5):
        browser.execute_script(click, column)
        ascending = browser.execute_script(values, column)
        browser.execute_script(click, column)
        assert ascending == sorted(ascending)
        assert browser.execute_script(values, column) == ascending[::-1]
    assert browser.title == "Animals"


def test_search_and_filters_choose_rows(browser, page):
    """Words are searched in all cells, also those that are cut off; labels are chosen by name."""
    everything = shown(browser)
    enter(browser, "search", f"{HOSTILE} 10")
    assert [row[0] for row in shown(browser)] == ["12"]
    assert browser.execute_script("return document.getElementById('found').textContent").startswith("1 of")
    enter(browser, "search", "")
    enter(browser, "given", "1")
    assert 0 < len(shown(browser)) < len(everything)
    assert {row[1] for row in shown(browser)} == {HOSTILE}
    enter(browser, "suggested", "1")
    assert shown(browser) == []
    assert page.exists()
    assert console_errors(browser) == []


def downloaded(browser, folder):
    """Return the lines of the CSV file that the page offers."""
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    browser.execute_script("document.getElementById('download').click()")
    file = folder / "suspects.csv"
    for _ in range(3000):  # up to a minute on a busy machine
        if file.exists() and file.stat().st_size:
            break
        time.sleep(0.02)
    return list(csv.reader(io.StringIO(file.read_text(encoding="utf-8"))))


def test_the_rows_shown_can_be_downloaded(browser, page, tmp_path):
    """The CSV file has the rows that are shown, with whole texts; formulas are made harmless."""
    enter(browser, "given", "0")
    rows = shown(browser)
    head, *lines = downloaded(browser, tmp_path)
    assert head[:5] == ["row", "given", "suggested", "P(wrong)", "P(suggested)"]
    assert [line[0] for line in lines] == [row[0] for row in rows]
    assert all(line[-1].startswith(HOSTILE) for line in lines)
    assert page.exists()
    assert console_errors(browser) == []


def test_the_download_has_a_column_called_picture_and_whole_names(browser, tmp_path):
    """Only the column of images is left out; names of rows that the page cuts off are whole."""
    data, proba, _ = table()
    y = pd.Categorical(data["label"], categories=["cat", HOSTILE, "bird & co"])
    names = [f"{'folder/' * 20}{i}.gif" for i in range(60)]
    for i in range(60):
        (tmp_path / f"{i}.gif").write_bytes(GIF)
    X = pd.DataFrame({"picture": np.arange(60)}, index=names)
    audit = find_label_issues(X, pd.Series(y, index=names), pred_proba=proba)
    context = PageContext(
        "audit", np.arange(60), RowNumbers.usual("t.csv"), [tmp_path / f"{i}.gif" for i in range(60)]
    )
    page = tmp_path / "page.html"
    page.write_text(audit_page(audit, title="Animals", context=context), encoding="utf-8")
    browser.get(page.as_uri())
    head, *lines = downloaded(browser, tmp_path)
    assert head == ["row", "given", "suggested", "P(wrong)", "P(suggested)", "rank", "why", "picture"]
    assert [line[-1] for line in lines] == [str(names.index(name)) for name in audit.suspects.index]
    assert all(name in line[0] for name, line in zip(audit.suspects.index, lines, strict=True))
    assert console_errors(browser) == []


@pytest.fixture(scope="module")
def wide_page(tmp_path_factory):
    """Write the page of an audit of twenty classes."""
    rng = np.random.default_rng(0)
    codes = np.arange(600) % 20
    given = np.where(rng.random(600) < 0.1, (codes + 1) % 20, codes)
    proba = np.full((600, 20), 0.3 / 19)
    proba[np.arange(600), codes] = 0.7
    proba = proba * rng.uniform(0.5, 1.5, size=proba.shape)
    proba /= proba.sum(axis=1, keepdims=True)
    names = np.array([f"a class with a long name {chr(97 + i)}" for i in range(20)])
    path = tmp_path_factory.mktemp("wide") / "page.html"
    find_label_issues(labels=names[given], pred_proba=proba).to_html(path)
    return path


@pytest.mark.parametrize("screen", SCREENS)
def test_every_screen_shows_the_page(browser, wide_page, screen):
    """Wide and narrow, light and dark: a wide matrix scrolls in its frame, and there is no error."""
    with show_on(browser, screen):
        browser.get(wide_page.as_uri())
        width, inner = browser.execute_script(
            "return [document.documentElement.scrollWidth, window.innerWidth]"
        )
        assert width <= inner
        scrolls = "const box = document.querySelector('table.matrix').parentElement; return box.scrollWidth"
        assert browser.execute_script(f"{scrolls} > box.clientWidth")
        background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") != screen.is_dark
    assert console_errors(browser) == []


def test_the_theory_is_one_click_away(browser, page):
    """The page has no symbols of the paper before the details are opened; the commands name the folder."""
    visible = browser.execute_script("return document.body.innerText")
    assert not any(symbol in visible for symbol in ("Σe", "Sgn", "xcess error"))
    assert f"peerloss review {page}" in visible
    assert "Suspects are the flagged rows" not in visible
    browser.execute_script("document.querySelectorAll('summary').forEach((summary) => summary.click())")
    visible = browser.execute_script("return document.body.innerText")
    assert "Σe" in visible
    assert "Suspects are the flagged rows" in visible


def test_an_audit_without_suspects_has_a_page(tmp_path):
    """The filters are left out."""
    audit, _, _ = made_audit()
    object.__setattr__(audit, "table", audit.table.assign(flagged=False))
    audit.to_html(tmp_path / "page.html")
    assert 'id="search"' not in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_long_text_wraps_and_stands_first(browser, tmp_path):
    """Sentences come before numbers and are shown in full on several lines, wide and narrow."""
    data, proba, _ = table()
    sentence = "The parcel arrived two days late and the courier left it at the wrong door. " * 2
    X = data[["size"]].assign(story=[f"{sentence}{i}" for i in range(len(data))])
    y = pd.Series(pd.Categorical(data["label"], categories=["cat", HOSTILE, "bird & co"]))
    find_label_issues(X, y, pred_proba=proba).to_html(tmp_path / "page.html")
    browser.get((tmp_path / "page.html").as_uri())
    heads = browser.execute_script(
        "return Array.from(document.querySelectorAll('#table th')).map((cell) => cell.textContent.trim())"
    )
    assert heads[-2:] == ["story", "size"]
    for screen in SCREENS:
        with show_on(browser, screen):
            words, height, line = browser.execute_script(
                "const cell = document.querySelector('td.long'), style = getComputedStyle(cell);"
                "return [cell.textContent, cell.scrollHeight - cell.clientHeight, cell.clientHeight];"
            )
            assert words.startswith(sentence)
            assert height <= 1, "nothing is hidden"
            assert line > 40, "there are several lines"
