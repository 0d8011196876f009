"""What the README shows, works."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_ten_lines_run_and_learn(capsys):
    """The example copied from the README trains to high clean accuracy on noisy labels."""
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(block, "README.md", "exec"), {})  # noqa: S102 (our own README)
    accuracy = float(capsys.readouterr().out.split()[-1])
    assert accuracy > 0.9
