"""What the README shows, works."""

import re
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_the_examples_run_and_learn(capsys):
    """The blocks copied from the README, one after the other, reach high clean accuracy on noisy labels."""
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)  # noqa: S102 (our own README)
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("clean accuracy")]
    assert len(lines) == len(blocks) == 2
    assert all(float(line.split()[-1]) > 0.9 for line in lines)
