"""Build the wheel, install it into an empty environment, and use it there.

Dependencies are taken from the environment that runs this script, through a path file. The test is therefore
about the wheel: its files, its metadata, its entry point.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USE_IT = """
import peerloss, torch
assert "site-packages" in peerloss.__file__ and peerloss.__file__.startswith({home!r}), peerloss.__file__
assert peerloss.PeerLoss()(torch.randn(8, 3), torch.randint(3, (8,))).isfinite()
assert peerloss.load_dataset("heart").X.shape == (303, 13)
print("wheel", peerloss.__version__, "imported from", peerloss.__file__)
"""


def main() -> None:
    """Run the check; any failure ends with a non-zero exit code."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve()
        subprocess.run(
            [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", home / "dist", ROOT],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (wheel,) = (home / "dist").glob("*.whl")
        venv.create(home / "env", with_pip=False)
        python = home / "env" / "bin" / "python"
        site = subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", site, str(wheel)]
        subprocess.run(pip, check=True)
        # Searched after the wheel; the editable install of this checkout is not visible.
        Path(site, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
        subprocess.run([python, "-c", USE_IT.format(home=str(home))], check=True, cwd=home)
        subprocess.run([python, "-m", "peerloss", "--version"], check=True, cwd=home)


if __name__ == "__main__":
    main()
