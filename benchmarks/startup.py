"""Start-up: processor time of commands that do not train, relative to ``python -c "import pandas"``.

Run with ``python benchmarks/startup.py [--rounds N] [--before SOURCE]``. Commands run alternately, each in
its own process, and medians of the user and system time are compared. SOURCE is the folder ``src`` of another
version, measured in the same run. It takes minutes.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from measure import provenance

from peerloss import find_label_issues
from peerloss.audit.folder import write_folder

#: After this many rounds, bytecode is compiled and files are in the cache.
WARM_UP = 1
PANDAS = 'python -c "import pandas"'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--before", type=Path, help="folder src of another version")
    options = parser.parse_args()
    sources = {"now": Path(__file__).parents[1] / "src"}
    if options.before is not None:
        sources["before"] = options.before
    with tempfile.TemporaryDirectory() as name:
        commands = prepare(Path(name))
        jobs = {(PANDAS, ""): ([sys.executable, "-c", "import pandas"], sources["now"])}
        for label, words in commands.items():
            for version, source in sources.items():
                jobs[label, version] = ([sys.executable, "-m", "peerloss", *words], source)
        times: dict[tuple[str, str], list[tuple[float, float]]] = {job: [] for job in jobs}
        for number in range(WARM_UP + options.rounds):
            for job, (command, source) in jobs.items():
                used = measure(command, source, Path(name))
                if number >= WARM_UP:
                    times[job].append(used)
    processor = {job: statistics.median(cpu for cpu, _ in values) for job, values in times.items()}
    wall = {job: min(elapsed for _, elapsed in values) for job, values in times.items()}
    report(list(commands), list(sources), processor, wall, options.rounds)


def prepare(folder: Path) -> dict[str, list[str]]:
    """Write a table and an audit of it; return the commands by what they are called in the table."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1000)
    table = pd.DataFrame({"x": x, "label": np.where((x > 0) ^ (rng.random(1000) < 0.1), "yes", "no")})
    table.to_csv(folder / "data.csv", index=False)
    yes = np.where(x > 0, 0.9, 0.1)
    found = find_label_issues(table[["x"]], table["label"], pred_proba=np.column_stack([1 - yes, yes]))
    write_folder(
        folder / "audit", found, folder / "data.csv", rows=np.arange(1000), labels=["label"], title="data"
    )
    (folder / "results").mkdir()
    full = folder / "full"
    full.mkdir()
    (full / "note.txt").touch()
    fit = ["--target", "label", "-o", "model"]
    return {
        "`--version`": ["--version"],
        "`--help`": ["--help"],
        "`doctor`": ["doctor"],
        "`status`": ["status", "results"],
        "`apply` (1,000 rows)": ["apply", "audit", "-o", "cleaned.csv"],
        "`audit`, file missing": ["audit", "absent.csv", "--target", "label", "-o", "out"],
        "`audit`, column missing": ["audit", "data.csv", "--target", "y", "-o", "out"],
        "`audit`, output exists": ["audit", "data.csv", "--target", "label", "-o", "full"],
        "`fit`, file missing": ["fit", "absent.csv", *fit],
        "`fit`, column missing": ["fit", "data.csv", "--target", "y", "-o", "model"],
        "`fit`, output exists": ["fit", "data.csv", "--target", "label", "-o", "full"],
        "`predict`, model missing": ["predict", "model", "data.csv", "-o", "out.csv"],
        "`annotators`, column missing": ["annotators", "data.csv", "-o", "scores.csv"],
    }


def measure(command: list[str], source: Path, folder: Path) -> tuple[float, float]:
    """Run a command; return its processor seconds (user and system) and elapsed seconds."""
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), os.times().elapsed
    subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return used, os.times().elapsed - start


def report(
    commands: list[str],
    versions: list[str],
    processor: dict[tuple[str, str], float],
    wall: dict[tuple[str, str], float],
    rounds: int,
) -> None:
    unit = processor[PANDAS, ""]
    print(f"`--rounds {rounds}`: {provenance('cpu')}.\n")
    print(f"`{PANDAS}` takes {unit:.2f} s of processor time and {wall[PANDAS, '']:.2f} s at least.\n")
    print(
        "| command | "
        + " | ".join(f"{version}: ratio, seconds (least elapsed)" for version in versions)
        + " |"
    )
    print("|---|" + "---|" * len(versions))
    for label in commands:
        cells = []
        for version in versions:
            used, elapsed = processor[label, version], wall[label, version]
            cells.append(f"{used / unit:.1f}, {used:.2f} ({elapsed:.2f})")
        print(f"| {label} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
