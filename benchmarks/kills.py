"""Kill processes that save models or run commands at random times, and check that nothing is lost.

After each kill the old output is intact or the new one is complete, the next run succeeds, and no hidden
folder is left. Commands are killed alternately at a random time, and shortly after they begin to write.

    python benchmarks/kills.py --saves 300 --commands 20
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import select
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import numpy as np
import pandas as pd
from sklearn.pipeline import Pipeline, make_pipeline

from peerloss import MarginPerceptron, _files, load_model, save_model
from peerloss.audit.folder import read_folder
from peerloss.audit.review import DecisionsFile, Review, read_decisions
from peerloss.cli import _fit, app
from peerloss.estimators import TableEncoder

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

ROWS = 400
COMMANDS = ("audit", "fit", "apply", "predict", "annotators", "review")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--saves", type=int, default=300)
    parser.add_argument("--commands", type=int, default=20)
    parser.add_argument("--only", choices=COMMANDS, action="append")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-exchange", action="store_true", help="as on a system without renameat2")
    options = parser.parse_args()
    rng = random.Random(options.seed)  # noqa: S311 - not used for security
    if options.no_exchange:
        mock.patch.object(_files, "exchange", return_value=False).start()
    mock.patch.object(_fit, "_train", cached_training(_fit._train)).start()  # noqa: SLF001
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        prepare(home)
        print(json.dumps({"saves": kill_saves(home, options.saves, rng)}), flush=True)
        for command in options.only or COMMANDS:
            kill = kill_reviews if command == "review" else kill_command
            print(json.dumps({command: kill(home, command, options.commands, rng)}), flush=True)


def cached_training(train_once: Callable[..., Pipeline]) -> Callable[..., Pipeline]:
    """Train once: training writes nothing, so it need not be killed."""
    kept: list[Pipeline] = []

    def trained(*task: Any, **options: Any) -> Pipeline:
        if not kept:
            kept.append(train_once(*task, **options))
        return kept[0]

    return trained


def prepare(home: Path) -> None:
    """Write a table, probabilities, reports, a model and an audit."""
    clean = np.arange(ROWS) % 2
    given = np.where(np.arange(ROWS) % 10 == 0, 1 - clean, clean)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": clean + rng.normal(size=ROWS), "z": rng.normal(size=ROWS)})
    table["label"] = np.array(["no", "yes"])[given]
    table.to_csv(home / "data.csv", index=False)
    proba = pd.DataFrame({"yes": 0.1 + 0.8 * clean, "no": 0.9 - 0.8 * clean})
    proba.to_csv(home / "proba.csv", index=False)
    reports = pd.DataFrame(
        [(t, w, t % 2 if rng.random() < 0.8 else 1 - t % 2) for t in range(ROWS) for w in range(5)],
        columns=["task", "worker", "label"],
    )
    reports.to_csv(home / "reports.csv", index=False)
    save_model(train(table), home / "model")


def train(table: pd.DataFrame) -> Pipeline:
    pipeline = make_pipeline(TableEncoder(), MarginPerceptron(margin_grid=[1.0], random_state=0))
    return pipeline.fit(table[["x", "z"]], table["label"].to_numpy(dtype=str))


def forked(work: Callable[[], None], rng: random.Random, *, longest: float, begun: int | None = None) -> bool:
    """Run ``work`` in a child process and kill it within ``longest`` seconds, or soon after ``begun``."""
    child = os.fork()
    if child == 0:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        try:
            work()
        finally:
            os._exit(0)
    if begun is not None:
        select.select([begun], [], [], 600)
        longest = 0.02
    time.sleep(longest * rng.random())
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def kill_saves(home: Path, times: int, rng: random.Random) -> dict[str, int]:
    """Kill a process that saves two models alternately; after each kill one of them must be complete."""
    folder, frame = home / "saved", pd.read_csv(home / "data.csv")
    models = [train(frame), train(frame.assign(x=-frame["x"], label=frame["label"]))]
    expected = [model.predict_proba(frame[["x", "z"]]) for model in models]
    save_model(models[0], folder)

    def save_for_ever() -> None:
        while True:
            for model in models:
                save_model(model, folder)

    killed = renamed = 0
    while killed < times:
        killed += forked(save_for_ever, rng, longest=0.05)
        renamed += not folder.exists()
        found = load_model(folder)  # restores a folder if the kill came between two renames
        if not any(np.array_equal(found.predict_proba(frame[["x", "z"]]), proba) for proba in expected):
            sys.exit("lost: the saved model is neither of the two")
    save_model(models[0], folder)
    no_left_overs(home)
    return {"killed": killed, "lost": 0, "names_restored": renamed}


def arguments(home: Path, command: str, output: Path) -> list[str]:
    table = [home / "data.csv", "--target", "label"]
    parts = {
        "audit": [*table, "--probabilities", home / "proba.csv", "-o", output],
        "fit": [*table, "-o", output],
        "apply": [home / "audit-source", "-o", output, "--rest", "relabel"],
        "predict": [home / "model", home / "data.csv", "-o", output],
        "annotators": [home / "reports.csv", "-o", output],
    }[command]
    return [command, *map(str, parts)]


def run(home: Path, command: str, output: Path) -> None:
    try:
        app(arguments(home, command, output), standalone_mode=False)
    except SystemExit as error:
        if error.code:
            raise


def quietly(work: Callable[[], None]) -> None:
    """Run in this process and discard its output."""
    saved, silence = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    os.dup2(silence, 1)
    try:
        work()
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)
        os.close(silence)


def kill_command(home: Path, command: str, times: int, rng: random.Random) -> dict[str, int]:
    output = home / (f"out-{command}" if command in {"audit", "fit"} else f"out-{command}.csv")
    if command == "apply" and not (home / "audit-source").exists():
        quietly(lambda: run(home, "audit", home / "audit-source"))
    quietly(lambda: run(home, command, output))
    start = time.perf_counter()
    quietly(lambda: run(home, command, output))
    longest = 1.1 * (time.perf_counter() - start)
    complete = state(home, output)
    killed = number = 0
    while killed < times:
        number += 1
        reading, writing = os.pipe()

        def work(writing: int = writing) -> None:
            begin = _files._hidden_folder  # noqa: SLF001

            def signal_begin(place: Path) -> AbstractContextManager[Path]:
                os.write(writing, b".")
                return begin(place)

            with mock.patch.object(_files, "_hidden_folder", signal_begin):
                run(home, command, output)

        killed += forked(work, rng, longest=longest, begun=reading if number % 2 else None)
        os.close(reading)
        os.close(writing)
        _files.restore_folder(output)
        if state(home, output) != complete:
            sys.exit(f"lost: the output of {command} is neither the old nor the new one")
    quietly(lambda: run(home, command, output))
    if state(home, output) != complete:
        sys.exit(f"lost: the output of {command} is different after kills")
    no_left_overs(home)
    return {"killed": killed, "lost": 0}


def state(home: Path, output: Path) -> list[Any]:
    """Return names and digests of output files, or the predictions of a model."""
    if (output / "manifest.json").exists():
        return list(load_model(output).predict_proba(pd.read_csv(home / "data.csv")[["x", "z"]]).ravel())
    files = sorted(output.iterdir()) if output.is_dir() else [output]
    return [(path.name, hashlib.sha256(path.read_bytes()).hexdigest()) for path in files]


def kill_reviews(home: Path, _command: str, times: int, rng: random.Random) -> dict[str, int]:
    """Kill a review while it records decisions; every acknowledged decision must be on disk."""
    folder = home / "audit-review"
    quietly(lambda: run(home, "audit", folder))
    acknowledged = killed = 0
    while killed < times:
        (folder / "decisions.jsonl").unlink(missing_ok=True)
        reading, writing = os.pipe()

        def work(writing: int = writing) -> None:
            review = Review(read_folder(folder))
            for place in range(len(review)):
                review.decide("keep", place, None)
                os.write(writing, b".")
            time.sleep(60)

        killed += forked(work, rng, longest=0.5)
        os.close(writing)
        confirmed = len(os.read(reading, 1 << 16))
        os.close(reading)
        acknowledged += confirmed
        DecisionsFile(folder / "decisions.jsonl").close()  # repairs a line that was cut off
        found = len(read_decisions(folder / "decisions.jsonl"))
        if found < confirmed:
            sys.exit(f"lost: {confirmed} decisions were acknowledged, {found} are on the disk")
    no_left_overs(home)
    shutil.rmtree(folder)
    return {"killed": killed, "acknowledged": acknowledged, "lost": 0}


def no_left_overs(home: Path) -> None:
    left = [path.name for path in home.iterdir() if path.name.startswith(".")]
    if left:
        sys.exit(f"left over: {left}")


if __name__ == "__main__":
    main()
