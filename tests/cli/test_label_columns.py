"""`fit`, `audit` and `datasets` accept the same label columns, with the same messages."""

import pytest
from typer.testing import CliRunner

from peerloss.cli import app


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (
            ["0.5", "1", "2"],
            "column 'label' must hold classes; it holds measurements such as 0.5. Convert them",
        ),
        (["1e17", "1", "2"], "column 'label' must hold class labels; found 1e+17. Floats cannot represent"),
        (["inf", "1", "2"], "column 'label' must hold class labels; found inf."),
    ],
)
def test_every_command_refuses_the_same_columns(tmp_path, labels, message):
    """Exit code 2 and one message, before anything is trained."""
    data = tmp_path / "data.csv"
    data.write_text("\n".join(["x,label", *(f"{i},{label}" for i, label in enumerate(labels))]) + "\n")
    messages = set()
    for command in ("fit", "audit", "datasets"):
        output = [] if command == "datasets" else ["-o", str(tmp_path / command)]
        done = CliRunner().invoke(app, [command, str(data), "--target", "label", *output])
        assert done.exit_code == 2, done.output
        messages.add(done.stderr)
    assert len(messages) == 1
    assert message in messages.pop()
