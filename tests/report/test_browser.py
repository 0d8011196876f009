"""The pages in a real browser, opened from a file."""

import pytest

from peerloss.experiments.demo import DemoRow
from peerloss.report import write_demo
from tests.report.made_up import HOSTILE


@pytest.fixture
def opened(browser, page):
    browser.get(page.as_uri())
    return browser


def column(browser, table, number):
    """Return what a column of a table shows, from the top down."""
    return browser.execute_script(
        "return Array.from(document.querySelectorAll('table')[arguments[0]].tBodies[0].rows)"
        ".map((row) => row.cells[arguments[1]].dataset.value || '')",
        table,
        number,
    )


def click(browser, table, number):
    browser.execute_script(
        "document.querySelectorAll('table')[arguments[0]].tHead.rows[0].cells[arguments[1]]"
        ".querySelector('button').click()",
        table,
        number,
    )


def test_no_error_in_the_console_and_every_picture_is_shown(opened):
    """Also with a data set called like a script; that the console is heard is checked last."""
    assert opened.title == "peerloss: results"
    widths = opened.execute_script("return Array.from(document.images).map((image) => image.naturalWidth)")
    assert len(widths) == 5
    assert min(widths) > 300
    assert opened.get_log("browser") == []
    opened.execute_script("console.error('heard')")
    assert "heard" in opened.get_log("browser")[0]["message"]


def test_a_click_on_a_heading_sorts(opened):
    """Up, then down; numbers as numbers, names as names; cells without a number stay at the end."""
    tables = opened.execute_script("return document.querySelectorAll('table').length")
    accuracies = opened.execute_script(
        "return Array.from(document.querySelectorAll('table')).findIndex((t) => t.matches('.accuracies'))"
    )
    assert tables >= 4
    assert column(opened, accuracies, 3) == ["0.79", "", "0.8500000000000001"]
    click(opened, accuracies, 3)
    assert column(opened, accuracies, 3) == ["0.79", "0.8500000000000001", ""]
    click(opened, accuracies, 3)
    assert column(opened, accuracies, 3) == ["0.8500000000000001", "0.79", ""]
    assert opened.execute_script(
        "return document.querySelectorAll('table')[arguments[0]].tHead.rows[0].cells[3].ariaSort", accuracies
    ) == "descending"  # fmt: skip
    click(opened, accuracies, 0)
    assert sorted(column(opened, accuracies, 0)) == sorted(["german", "heart", HOSTILE])
    assert column(opened, accuracies, 0)[-2:] == ["german", "heart"]


@pytest.mark.parametrize("width", [360, 1400])
def test_wide_tables_do_not_widen_the_page(opened, width):
    """On a telephone the tables scroll, the page does not."""
    opened.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    assert opened.execute_script("return document.documentElement.scrollWidth") <= width


def test_the_page_of_the_demonstration(browser, tmp_path):
    """Its picture is shown, its table sorts, its console is empty."""
    rows = [
        DemoRow("heart", 0.1, 0.3, 2, 0.7, 0.01, 0.8, 0.02),
        DemoRow("image", 0.2, 0.2, 2, 0.9, 0.01, 0.85, 0.0),
    ]
    write_demo(rows, tmp_path / "demo.html", steps=10)
    browser.get((tmp_path / "demo.html").as_uri())
    assert browser.execute_script("return document.images[0].naturalWidth") > 300
    click(browser, 0, 4)
    assert column(browser, 0, 0) == ["image", "heart"]
    assert browser.get_log("browser") == []
