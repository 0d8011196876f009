"""The views of an audit in a notebook."""

import re
import sys
from dataclasses import replace

import pytest

from peerloss._installing import install_command
from peerloss.audit._audit_view import MAX_SUSPECTS
from peerloss.exceptions import InvalidInputError
from tests.audit.made_up import HOSTILE, made_audit


@pytest.fixture(scope="module")
def audit():
    found, _, _ = made_audit()
    return found


@pytest.fixture
def pyplot():
    pytest.importorskip("matplotlib", reason="pictures need the extra report").use("Agg")
    drawing = pytest.importorskip("matplotlib.pyplot")
    yield drawing
    drawing.close("all")


def test_the_view_has_headline_suspects_and_noise(audit):
    """Labels are escaped; theory is shown after a click only."""
    view = audit._repr_html_()
    assert audit.headline.replace("'", "&#x27;") in view
    assert HOSTILE not in view
    assert view.count("<tr>") >= 1 + min(MAX_SUSPECTS, len(audit.suspects)) + 1
    before, _, theory = view.partition("<details>")
    assert "Σ" not in before
    assert "What to expect from training" in theory


def test_an_audit_without_noise_says_why(audit):
    """The reason replaces the table of the noise."""
    view = replace(audit, noise=None, reason="<too few rows>")._repr_html_()
    assert "The noise rates cannot be estimated: &lt;too few rows&gt;." in view
    assert "How rows of each class are labelled" not in view


def test_the_ranking_is_drawn(audit, pyplot):
    """P(wrong) decreases, and the suspects and the expected number of errors are in the legend."""
    axes = audit.plot()
    curve = axes.lines[0].get_ydata()
    assert (curve[:-1] >= curve[1:] - 1e-9).all()
    texts = [text.get_text() for text in axes.get_legend().get_texts()]
    assert texts[0] == f"suspect: {len(audit.suspects):,} labels"
    assert texts[1] == f"expected to be wrong: {audit.expected_errors:,.0f}"
    assert axes.get_xlabel() == "label, most suspicious first"
    assert pyplot.get_fignums()


def test_the_noise_is_drawn_on_given_axes(audit, pyplot):
    """Each entry of the matrix has its number; the axes are those of the caller."""
    _, ax = pyplot.subplots()
    assert audit.plot("noise", ax=ax) is ax
    assert len(ax.texts) == len(audit.classes) ** 2
    assert ax.texts[0].get_text() == f"{audit.noise.transition[0, 0]:.0%}"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("given label", "true class")


def test_unknown_and_impossible_pictures_are_refused(audit, monkeypatch):
    """The message names the kinds, or what is missing."""
    with pytest.raises(InvalidInputError, match="`kind` must be one of 'ranking', 'noise'; got 'bar'"):
        audit.plot("bar")
    with pytest.raises(InvalidInputError, match="`kind` 'noise' needs estimated noise rates"):
        replace(audit, noise=None, reason="few rows").plot("noise")
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(InvalidInputError, match=f"Pictures need .*{re.escape(install_command('report'))}"):
        audit.plot()
