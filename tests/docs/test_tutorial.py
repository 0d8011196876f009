"""The tutorial notebook runs, and its stored outputs are complete."""

import contextlib
import io
import json
import re

import pytest

from tests.docs.pages import DOCS

NOTEBOOK = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
CODE = [cell for cell in NOTEBOOK["cells"] if cell["cell_type"] == "code"]


def printed_in(cell):
    """Return the text that a cell printed when the notebook was executed."""
    streams = [output for output in cell["outputs"] if output.get("name") == "stdout"]
    return "".join("".join(output["text"]) for output in streams)


def test_the_notebook_was_executed_from_top_to_bottom():
    """Cells are numbered in order, none failed, and each that shows something has an output."""
    assert [cell["execution_count"] for cell in CODE] == list(range(1, len(CODE) + 1))
    kinds = {output["output_type"] for cell in CODE for output in cell["outputs"]}
    assert kinds == {"stream", "execute_result", "display_data"}
    assert all(cell["outputs"] for cell in CODE)
    shown = [output["data"] for cell in CODE for output in cell["outputs"] if "data" in output]
    assert sum("image/png" in data for data in shown) == 1
    for title in ("Label audit", "PeerClassifier", "Label noise of 2 classes", "9 annotators"):
        assert sum(f"<strong>{title}</strong>" in "".join(data.get("text/html", "")) for data in shown) == 1


def test_the_code_runs_and_prints_the_same_sentences(tmp_path, monkeypatch):
    """Plain Python runs the cells; sentences are those stored, numbers may differ between versions."""
    matplotlib = pytest.importorskip("matplotlib", reason="the tutorial draws a picture")
    matplotlib.use("Agg")
    monkeypatch.chdir(tmp_path)
    names = {}
    for cell in CODE:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            exec(compile("".join(cell["source"]), "tutorial.ipynb", "exec"), names)  # noqa: S102 (our own)
        numbers = re.compile(r"[\d.]+\d|\d")
        assert numbers.sub("#", printed.getvalue()) == numbers.sub("#", printed_in(cell))
    audit, scores = names["audit"], names["scores"]
    assert audit.table["p_error"][names["flipped"]].mean() > 2 * audit.table["p_error"].mean()
    assert scores.loc["copier", "payment"] < 0.5 * scores.loc["doctor 1", "payment"]
    assert scores.index[scores["uninformative"]].tolist() == ["always disease"]
