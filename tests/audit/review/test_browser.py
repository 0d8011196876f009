"""The review page and the audit page in a real browser, with the keyboard only."""

import errno
import os
import statistics
import subprocess
import sys
import threading

import numpy as np
import pandas as pd
import pytest

from peerloss.audit import find_label_issues
from peerloss.audit.folder import read_folder, write_folder
from peerloss.audit.review import DecisionsFile, Review, ReviewServer, read_decisions
from tests.audit.made_up import HOSTILE, write_audit, write_pictures, write_texts
from tests.browsers import SCREENS, console_errors, keys, show_on


@pytest.fixture
def serve():
    """Return a function that serves an audit folder until the test ends."""
    running = []

    def start(folder, **settings):
        server = ReviewServer(Review(folder, **settings))
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        running.append(server)
        return server

    yield start
    for server in running:
        server.shutdown()
        server.server_close()
        server.review.close()


#: Press a key and wait until the page shows another suspect or the end; return the milliseconds.
PRESS = """
const done = arguments[arguments.length - 1], key = arguments[0];
const place = () => document.body.dataset.place;
const before = place(), start = performance.now();
document.dispatchEvent(new KeyboardEvent("keydown", {key: key, bubbles: true}));
(function wait() {
  if (place() !== before) requestAnimationFrame(() => done(performance.now() - start));
  else setTimeout(wait, 1);
})();
"""


def text(browser, name):
    return browser.execute_script("return document.getElementById(arguments[0]).textContent", name)


def opened(browser, url):
    """Open the page and wait until it shows a suspect."""
    browser.get(url)
    browser.execute_async_script(
        "const done = arguments[0];"
        "(function wait() { if (document.body.dataset.place) done(); else setTimeout(wait, 5); })();"
    )


def press(browser, key):
    return browser.execute_async_script(PRESS, key)


def test_a_full_disk_is_shown(browser, serve, tmp_path, monkeypatch):
    """The page shows that the decision was not saved and stays at the suspect; the next attempt works."""
    write_audit(tmp_path)
    server = serve(read_folder(tmp_path / "audit"))
    opened(browser, server.url)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full_disk)
        browser.execute_script(
            "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'k', bubbles: true}))"
        )
        browser.execute_async_script(
            "const done = arguments[0], error = document.getElementById('error');"
            "(function wait() { if (!error.hidden) done(); else setTimeout(wait, 5); })();"
        )
    assert "No space left on device. This decision was not saved" in text(browser, "error")
    assert server.review.state()["keep"] == 0
    press(browser, "k")
    assert browser.execute_script("return document.getElementById('error').hidden")
    assert server.review.state()["keep"] == 1


def full_disk(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_person_steps_through_with_keys(browser, serve, tmp_path):
    """Keep, change by number, accept, skip and undo work with keys, and each decision is on disk."""
    write_audit(tmp_path)
    folder = read_folder(tmp_path / "audit")
    rows = folder.suspects()["row"].tolist()
    opened(browser, serve(folder).url)
    assert text(browser, "name") == f"Row {rows[0] + 2}"
    press(browser, "k")
    assert text(browser, "name") == f"Row {rows[1] + 2}"
    given = text(browser, "given")
    number = next(i for i, label in enumerate(folder.classes) if label != given)
    press(browser, str(number + 1))
    suggested = text(browser, "suggested")
    press(browser, "a")
    press(browser, "s")
    press(browser, "u")
    assert text(browser, "name") == f"Row {rows[3] + 2}"
    saved = [(d.row, d.action, d.label) for d in read_decisions(folder.decisions_path)]
    assert saved == [
        (rows[0], "keep", None),
        (rows[1], "change", folder.classes[number]),
        (rows[2], "change", suggested),
    ]


def test_markup_in_cells_is_text(browser, serve, tmp_path):
    """Labels and features that contain a script are shown, not run; the page logs no error."""
    write_audit(tmp_path)
    browser.get_log("browser")
    opened(browser, serve(read_folder(tmp_path / "audit")).url)
    assert browser.title == "Review of animals.csv"
    assert HOSTILE in text(browser, "features")
    assert HOSTILE in text(browser, "choices")
    assert browser.execute_script("return document.querySelectorAll('td script, button script').length") == 0
    assert console_errors(browser) == []


def test_the_end_is_shown(browser, serve, tmp_path):
    """After the last suspect the page shows the end; undo goes back."""
    write_audit(tmp_path)
    folder = read_folder(tmp_path / "audit")
    opened(browser, serve(folder).url)
    for _ in range(len(folder.suspects())):
        press(browser, "s")
    assert browser.execute_script("return document.getElementById('done').hidden") is False
    press(browser, "u")
    assert browser.execute_script("return document.getElementById('suspect').hidden") is False


FETCH = """
const [url, body, done] = arguments;
const options = body && {method: "POST", mode: "no-cors", body: body};
fetch(url, options).then((response) => response.text()).then(done, () => done(null));
"""


def test_a_page_of_another_origin_reads_and_decides_nothing(browser, serve, tmp_path):
    """A page of another origin gets nothing and cannot decide, even if it knows the token."""
    write_audit(tmp_path)
    folder = read_folder(tmp_path / "audit")
    server = serve(folder)
    browser.get("data:text/html,<title>elsewhere</title>")
    assert not browser.execute_async_script(FETCH, server.url + "suspects/0", None)
    browser.execute_async_script(FETCH, server.url + "decide", '{"action": "keep", "place": 0}')
    assert read_decisions(folder.decisions_path) == []
    opened(browser, server.url)
    assert HOSTILE in browser.execute_async_script(FETCH, server.url + "suspects/0", None)


def test_a_killed_server_loses_no_decision(browser, tmp_path):
    """All decisions made on the page survive a killed server, and a new server continues from them."""
    write_audit(tmp_path)
    command = [sys.executable, "-m", "peerloss", "review", str(tmp_path / "audit"), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = process.stdout.readline().split()[-1]
        opened(browser, url)
        for _ in range(3):
            press(browser, "k")
        process.kill()
    folder = read_folder(tmp_path / "audit")
    assert len(read_decisions(folder.decisions_path)) == 3
    review = Review(folder)
    assert review.state()["next"] == 3
    review.close()


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("kind", ["table", "text", "pictures"])
def test_every_screen_shows_the_row_and_the_buttons(browser, serve, tmp_path, screen, kind):
    """Wide and narrow, light and dark: nothing is cut off at the right, and there is no error."""
    console_errors(browser)  # of earlier tests
    {"table": write_audit, "text": write_texts, "pictures": write_pictures}[kind](tmp_path)
    with show_on(browser, screen):
        opened(browser, serve(read_folder(tmp_path / "audit")).url)
        width, inner = browser.execute_script(
            "return [document.documentElement.scrollWidth, window.innerWidth]"
        )
        assert width <= inner
        lead, panel = browser.execute_script(
            "return ['lead', 'panel'].map((id) => document.getElementById(id).getBoundingClientRect().left)"
        )
        assert (panel > lead) == screen.is_wide
        background = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert (background == "rgb(255, 255, 255)") != screen.is_dark
    assert console_errors(browser) == []


def test_text_stands_first_and_wraps(browser, serve, tmp_path):
    """Long text is above the labels, larger than other text, with similar texts of both labels."""
    write_texts(tmp_path)
    opened(browser, serve(read_folder(tmp_path / "audit")).url)
    assert "word" in text(browser, "texts")
    sizes = browser.execute_script(
        "return ['#texts p', '#features td'].map("
        "(where) => parseFloat(getComputedStyle(document.querySelector(where)).fontSize))"
    )
    assert sizes[0] > sizes[1]
    for cards in ("givenCards", "suggestedCards"):
        assert browser.execute_script(f"return document.querySelectorAll('#{cards} figure').length") == 2


def test_pictures_are_shown_with_examples(browser, serve, tmp_path):
    """The picture of the row and those of four similar rows are loaded from the server."""
    write_pictures(tmp_path, names=lambda i: f"<b> '{i}' &.gif")
    opened(browser, serve(read_folder(tmp_path / "audit")).url)
    browser.execute_async_script(
        "const done = arguments[0];"
        "(function wait() { const all = Array.from(document.images);"
        "  if (all.length === 5 && all.every((i) => i.complete && i.naturalWidth === 1)) done();"
        "  else setTimeout(wait, 5); })();"
    )
    assert console_errors(browser) == []


def test_notes_drops_and_filters_with_the_keyboard_alone(browser, serve, tmp_path):
    """A note is typed, a row dropped, a skipped row revisited and a confusion chosen, without a mouse."""
    write_audit(tmp_path)
    folder = read_folder(tmp_path / "audit")
    rows = folder.suspects()["row"].tolist()
    server = serve(folder, reviewer="Ada")
    opened(browser, server.url)
    keys(browser, "n", "too dark, keep 2", "\ue007", "d")  # Enter leaves the note
    wait_for(browser, 1)
    keys(browser, "s")
    wait_for(browser, 2)
    keys(browser, "k")
    wait_for(browser, 3)
    keys(browser, "r")
    wait_for(browser, 1)  # the skipped one
    assert "1 in this view" in text(browser, "progress")
    assert "skipped by Ada" in text(browser, "before")
    keys(browser, "k")
    wait_for(browser, "finished")
    assert text(browser, "doneTitle") == "No more suspects in this view."
    assert "too dark, keep 2" in text(browser, "decisions")
    assert text(browser, "command") == f"peerloss apply {folder.path} -o cleaned.csv"
    keys(browser, "f", "\ue013", "\ue013", "\ue00c")  # two up: without a decision; Escape
    wait_for(browser, 3)
    keys(browser, "f", "\ue004", "\ue004", "\ue010")  # Tab to the confusions, End
    given, suggested, number = server.review.settings()["confusions"][-1]
    left = folder.suspects().iloc[3:]
    pair = (left["given"] == given) & (left["suggested"] == suggested)
    assert pair.any()
    wait_for(browser, 3 + int(pair.to_numpy().argmax()))
    assert f"{pair.sum()} in this view" in text(browser, "progress")
    assert (text(browser, "given"), text(browser, "suggested")) == (given, suggested)
    assert number >= pair.sum()
    saved = [(d.row, d.action, d.note, d.reviewer) for d in read_decisions(folder.decisions_path)]
    assert saved == [
        (rows[0], "drop", "too dark, keep 2", "Ada"),
        (rows[1], "skip", None, "Ada"),
        (rows[2], "keep", None, "Ada"),
        (rows[1], "keep", None, "Ada"),
    ]
    assert console_errors(browser) == []


@pytest.mark.parametrize("reviewer", ["Ada", "Bo", None])
def test_only_own_notes_are_offered_again(browser, serve, tmp_path, reviewer):
    """The note of another reviewer is shown with the decision, and is not saved with one's own decision."""
    write_audit(tmp_path)
    folder = read_folder(tmp_path / "audit")
    with DecisionsFile(folder.decisions_path) as file:
        row = int(folder.suspects()["row"].iloc[0])
        file.append(row, "keep", note="seen <b>twice</b>", reviewer="Ada")
    opened(browser, serve(folder, reviewer=reviewer).url)
    keys(browser, "f", "\ue015", "\ue015", "\ue00c")  # two down: decided rows; Escape
    wait_for(browser, 0)
    note = browser.execute_script("return document.getElementById('note').value")
    if reviewer == "Ada":
        assert (text(browser, "before"), note) == ("· kept by Ada", "seen <b>twice</b>")
    else:
        assert (text(browser, "before"), note) == ("· kept by Ada: seen <b>twice</b>", "")


def wait_for(browser, place):
    """Wait until the page shows the suspect at this place."""
    browser.execute_async_script(
        "const [place, done] = arguments;"
        "(function wait() {"
        "  if (document.body.dataset.place === place && !document.body.dataset.busy) setTimeout(done, 20);"
        "  else setTimeout(wait, 5); })();",
        str(place),
    )


@pytest.mark.slow
def test_ten_thousand_suspects_are_fast(browser, serve, tmp_path):
    """The page steps through 10,000 suspects; the median time per key is printed."""
    write_audit(tmp_path, n=100_000)
    folder = read_folder(tmp_path / "audit")
    total = len(folder.suspects())
    assert total >= 10_000
    opened(browser, serve(folder).url)
    times = [press(browser, "k") for _ in range(60)]
    sys.stderr.write(f"{total} suspects: median {statistics.median(times):.1f} ms from key to next suspect\n")
    assert text(browser, "progress").startswith("61 of")


def write_plain(folder, labels, proba):
    """Write an audit of a table with one column of numbers; return what the review needs."""
    path = folder / "data.csv"
    table = pd.DataFrame({"x": np.arange(len(labels)), "label": labels})
    table.to_csv(path, index=False)
    proba = pd.DataFrame(proba, columns=["no", "yes "])
    found = find_label_issues(table[["x"]], table["label"], pred_proba=proba)
    write_folder(folder / "audit", found, path, rows=np.arange(len(labels)), labels=["label"], title="Plain")
    return read_folder(folder / "audit")


def test_spaces_around_labels_are_visible(browser, serve, tmp_path):
    """Quotes show them wherever a label stands; the decision has the label itself."""
    clean = np.arange(60) % 2
    labels = np.array(["no", "yes "])[np.where(np.arange(60) % 10 == 0, 1 - clean, clean)]
    proba = np.where(clean[:, None] == np.array([0, 1]), 0.95, 0.05)
    folder = write_plain(tmp_path, labels, proba)
    opened(browser, serve(folder).url)
    assert {text(browser, "given"), text(browser, "suggested")} == {"no", "'yes '"}
    assert "'yes '" in text(browser, "choices")
    press(browser, "2" if text(browser, "given") == "no" else "1")
    (decision,) = read_decisions(folder.decisions_path)
    assert decision.label == ("yes " if labels[decision.row] == "no" else "no")


@pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning")
def test_an_audit_without_suspects_says_so(browser, serve, tmp_path):
    """Nothing was reviewed, so the page does not say that everything was."""
    rng = np.random.default_rng(0)
    folder = write_plain(tmp_path, np.array(["no", "yes "])[rng.integers(2, size=60)], np.full((60, 2), 0.5))
    opened(browser, serve(folder).url)
    assert text(browser, "doneTitle") == "This audit has no suspects."
    assert text(browser, "progress").startswith("0 of 0 suspects reviewed")
    assert not console_errors(browser)
