"""Questions before the work: only at a terminal, and only if something in the table is serious."""

import pytest

from peerloss.cli import _table_options
from tests.cli.messy import audit, make_table, misspell

pytestmark = pytest.mark.usefixtures("quick_models")


class Terminal:
    """Standard input at a terminal, or not."""

    def __init__(self, at_terminal):
        self.at_terminal = at_terminal

    def isatty(self):
        """Return whether a person can answer."""
        return self.at_terminal


@pytest.mark.parametrize(
    ("at_terminal", "options", "answer", "asked"),
    [
        (True, (), False, True),
        (True, (), True, True),
        (True, ("--yes",), False, False),
        (True, ("--json",), False, False),
        (False, (), False, False),
    ],
)
def test_the_command_asks_only_at_a_terminal(tmp_path, monkeypatch, at_terminal, options, answer, asked):
    """If something is serious: No ends the command with code 1, and nothing is written."""
    misspell(make_table()).to_csv(tmp_path / "data.csv", index=False)
    questions = []
    terminal = type("sys", (), {"stdin": Terminal(at_terminal)})
    monkeypatch.setattr(_table_options, "sys", terminal)
    monkeypatch.setattr(_table_options.typer, "confirm", lambda text, **_: questions.append(text) or answer)
    done = audit(tmp_path, *options)
    assert questions == (["Continue?"] if asked else [])
    refused = asked and not answer
    assert done.exit_code == int(refused)
    assert (tmp_path / "out").exists() is not refused
    if refused:
        assert "Nothing was written." in done.stderr


def test_clean_tables_are_never_asked_about(tmp_path, monkeypatch):
    """Nothing serious, no question."""
    make_table().to_csv(tmp_path / "data.csv", index=False)
    monkeypatch.setattr(_table_options, "sys", type("sys", (), {"stdin": Terminal(True)}))
    monkeypatch.setattr(_table_options.typer, "confirm", lambda *_, **__: pytest.fail("asked"))
    assert audit(tmp_path).exit_code == 0
