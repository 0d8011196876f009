"""Text from files cannot control the terminal and is printed in every encoding."""

import json
import warnings
from types import SimpleNamespace
from typing import Annotated

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner

from peerloss._deprecation import RenamedWarning
from peerloss.cli import app
from peerloss.cli._terminal import counted, say, user_errors, visible
from peerloss.exceptions import IdentifiabilityWarning
from peerloss.experiments._record import FORMAT

ESCAPE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2028"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2028"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (ESCAPE, SHOWN),
        ("line\nend\r\ttab\0", r"line\nend\r\ttab\x00"),
        ("\udc80", r"\udc80"),
        ("plain é 日本 α·π̃ 🙂 \xa0", "plain é 日本 α·π̃ 🙂 \xa0"),
        (7, "7"),
    ],
    ids=["escape sequences", "line ends", "surrogate", "letters", "number"],
)
def test_control_characters_are_written_as_escapes(text, shown):
    """Escape sequences, line ends, direction marks and lone surrogates are escaped; other text is kept."""
    assert visible(text) == shown


def test_a_line_is_one_line(capsys):
    """Line ends in the text are escaped, on standard output and standard error."""
    say("a\nb\x1b")
    say("c\rd", err=True)
    assert capsys.readouterr() == ("a\\nb\\x1b\n", "c\\rd\n")


def audit(folder, *options, label="no", charset="utf-8", name="r{i}"):
    """Audit a table with the given names and labels."""
    clean = np.arange(40) % 2
    given = np.where(np.arange(40) % 10 == 0, 1 - clean, clean)
    table = pd.DataFrame({"id": [name.format(i=i) for i in range(40)], "x": clean})
    table["label"] = np.array([label, "yes"])[given]
    table.to_csv(folder / "data.csv", index=False)
    proba = pd.DataFrame({label: 0.9 - 0.8 * clean, "yes": 0.1 + 0.8 * clean})
    proba.to_csv(folder / "proba.csv", index=False)
    arguments = ["audit", folder / "data.csv", "--target", "label", "--id", "id", "-o", folder / "out"]
    arguments += ["--probabilities", folder / "proba.csv", *options]
    return CliRunner(charset=charset).invoke(app, [str(argument) for argument in arguments])


def test_names_and_labels_cannot_control_the_terminal(tmp_path):
    """An audit prints hostile text as escapes, also in JSON; the files keep the text."""
    label = ESCAPE.replace("\u2028", "")
    for option in ([], ["--json"]):
        done = audit(tmp_path, *option, label=label, name="\x1b[2J{i}")
        assert done.exit_code == 0, done.output
        assert not any(character in done.output for character in "\x1b\x07\x9b\u202e")
    assert json.loads(done.stdout)["classes"][0] == label
    done = audit(tmp_path, label=label, name="\x1b[2J{i}")
    assert r"\x1b[2J0" in done.stdout
    assert label in (tmp_path / "out" / "labels.csv").read_text(encoding="utf-8")


def test_errors_cannot_control_the_terminal(tmp_path):
    """Names of files are escaped too."""
    done = CliRunner().invoke(
        app, ["audit", str(tmp_path / "\x1b[2J.csv"), "--target", "x", "-o", str(tmp_path / "o")]
    )
    assert done.exit_code == 2
    assert r"\x1b[2J.csv does not exist" in done.stderr


def is_harmless(text):
    """Return whether a text has no control characters."""
    return not any(
        character in text for character in ESCAPE if not character.isprintable() and character != "\n"
    )


def test_the_description_of_a_file_cannot_control_the_terminal(tmp_path):
    """Its name and its labels are escaped."""
    (tmp_path / "\x1b[2J.csv").write_text("x,label\n1,\x1b[31mred\n2,b\n3,b\n")
    done = CliRunner(env={"COLUMNS": "200"}).invoke(
        app, ["datasets", "\x1b[2J.csv", "--target", "label", "--data-dir", str(tmp_path)]
    )
    assert done.exit_code == 0, done.output
    assert is_harmless(done.output)
    assert r"\x1b[31mred: 1 (33.3%)" in done.stdout
    assert done.stdout.splitlines()[-1].startswith(r"\x1b[2J.csv: 3 rows")


def test_a_plan_cannot_control_the_terminal(tmp_path):
    """Names of methods and experiments are escaped, and not interpreted as markup."""
    plan = {"format": FORMAT, "experiment": ESCAPE, "protocol": "paper", "title": f"[/x]{ESCAPE}"}
    plan |= {"rows": [["heart", 0.1, 0.3]], "seeds": [0], "specs": [[f"[/x]{ESCAPE}", "equalized", "abc"]]}
    (tmp_path / "plan-1.json").write_text(json.dumps(plan))
    done = CliRunner(env={"COLUMNS": "200"}).invoke(app, ["status", str(tmp_path)])
    assert done.exit_code == 0, done.exception
    assert is_harmless(done.output)
    assert done.stdout.splitlines()[0] == f"{SHOWN}, protocol paper: [/x]{SHOWN}"
    assert f"[/x]{SHOWN}" in done.stdout.splitlines()[4]


def test_warnings_and_notes_cannot_control_the_terminal(tmp_path, monkeypatch):
    """Names of files and notes in a results folder are escaped."""
    (tmp_path / "records-\x1b[2J.jsonl").write_text("nonsense\n")
    done = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert done.stderr.startswith(r"Warning: records-\x1b[2J.jsonl: 1 of its 1 lines")
    assert is_harmless(done.output)
    found = SimpleNamespace(notes=[ESCAPE], sections=[SimpleNamespace(name=ESCAPE)])
    monkeypatch.setattr("peerloss.report.build_report", lambda _: found)
    monkeypatch.setattr("peerloss.report.write_report", lambda *_: ["page"])
    done = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert done.stderr == f"Note: {SHOWN}\n"
    assert is_harmless(done.output)


@pytest.mark.parametrize("charset", ["ascii", "latin-1", "cp1252"])
@pytest.mark.parametrize("option", [[], ["--json"]])
def test_no_encoding_makes_an_audit_fail(tmp_path, charset, option):
    """Characters outside the encoding are written as escapes; JSON stays valid."""
    done = audit(tmp_path, *option, label="nein 日本 π̃", charset=charset)
    assert done.exit_code == 0, done.exception
    assert (tmp_path / "out" / "labels.csv").exists()
    if option:
        assert "nein 日本 π̃" in json.loads(done.stdout)["classes"]
    else:
        assert r"\u65e5" in done.stdout


def test_warnings_of_the_library_are_one_line_each(capsys):
    """In the words of the command, once; warnings of other libraries are shown as usual."""

    def command(*, jobs: Annotated[int, typer.Option(help="Threads.")] = 1) -> None:
        for _ in range(2):
            warnings.warn(f"`n_jobs` is {jobs}.", IdentifiabilityWarning, stacklevel=1)
        warnings.warn("old", RenamedWarning, stacklevel=1)
        warnings.warn("of another library", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="of another library") as caught:
        user_errors(command)(command)(jobs=3)
    assert len(caught) == 1
    assert capsys.readouterr().err == "Warning: --jobs is 3.\nWarning: old\n"


def test_numbers_agree_with_their_nouns():
    """One is singular; thousands are separated."""
    assert [counted(n, "row") for n in (0, 1, 2, 12345)] == ["0 rows", "1 row", "2 rows", "12,345 rows"]
    assert counted(2, "class", "classes") == "2 classes"
