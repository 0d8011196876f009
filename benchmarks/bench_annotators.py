"""Annotators: combined labels, spammers in real crowds, a comparison with crowd-kit, and ten million reports.

Run ``python benchmarks/bench_annotators.py [labels] [intervals] [spammers] [accuracy] [copiers] [rates]
[scale] [--data-dir FOLDER] [--output FILE]``; by default all parts run. Real crowds are read from the folder
of --data-dir or PEERLOSS_DATA. crowd-kit is compared if it is installed (it needs transformers, so it is not
among the development tools). Times are processor seconds, which other processes hardly affect. ``--reports``
sets the size of the large table, ``--rounds`` the number of crowds drawn for each setting.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from crowd_labels import SIMULATED, SLOW, evaluate, methods
from crowd_scale import scale_rows
from measure import provenance
from scipy.stats import spearmanr

from peerloss.crowd import aggregate_labels, dawid_skene, find_copiers, score_annotators
from peerloss.crowd._uninformative import consensus
from peerloss.datasets import load_real_noise
from peerloss.peer_prediction import (
    Reports,
    correlated_agreement,
    logarithmic_score,
    plain_agreement,
    quadratic_score,
)
from peerloss.peer_prediction.shared_reports import SharedReports

if TYPE_CHECKING:
    from collections.abc import Callable

CROWDS = ("dog", "weather_sentiment", "web", "product")
KINDS = ("constant", "majority", "random")
#: Workers with fewer tasks are not compared.
MIN_TASKS = 20


def load(name: str, folder: str | None) -> tuple[pd.DataFrame, pd.Series, int]:
    """Return reports (the first of repeated answers), gold labels and the number of classes."""
    data = load_real_noise(name, data_dir=folder)
    frame = data.reports.drop_duplicates(["task", "worker"]).astype({"worker": str})
    return frame, data.gold, data.n_classes


def accuracy_scores(reports: pd.DataFrame) -> pd.Series:
    model = dawid_skene(reports)
    return pd.Series(model.accuracy, index=model.reports.workers)


SCORES: dict[str, Callable[[pd.DataFrame], pd.Series]] = {
    "CA": lambda reports: correlated_agreement(reports)["score"],
    "quadratic": lambda reports: quadratic_score(reports)["score"],
    "log": lambda reports: logarithmic_score(reports)["score"],
    "plain agreement": lambda reports: plain_agreement(reports)["score"],
    "Dawid–Skene": accuracy_scores,
}


def add_spammers(
    frame: pd.DataFrame, kind: str, n_classes: int, rng: np.random.Generator, *, count: int = 10
) -> pd.DataFrame:
    """Add workers who do not look at the tasks, each with the number of tasks of some real worker."""
    size = frame["worker"].value_counts()
    tasks, top = frame["task"].unique(), frame["label"].mode()[0]
    frames = [frame]
    for i in range(count):
        n = min(len(tasks), int(rng.choice(size[size >= MIN_TASKS])))
        label = {
            "constant": np.full(n, rng.integers(n_classes)),
            "majority": np.full(n, top),
            "random": rng.integers(n_classes, size=n),
        }[kind]
        chosen = rng.choice(tasks, n, replace=False)
        frames.append(pd.DataFrame({"task": chosen, "worker": f"spam{i}", "label": label}))
    return pd.concat(frames, ignore_index=True)


def auroc(score: pd.Series) -> float:
    spam = score.index.str.startswith("spam")
    honest, bad = score[~spam].to_numpy()[:, None], score[spam].to_numpy()
    return float((honest > bad).mean() + (honest == bad).mean() / 2)


def spammer_rows(folder: str | None, rounds: int) -> list[str]:
    """Return AUROCs of each score against added spammers: mean and 95 % interval over the rounds."""
    title = (
        f"AUROC against ten added spammers, workers with {MIN_TASKS} tasks or more, {rounds} rounds. "
        "Flagged: share of spammers and of the crowd's own workers that `uninformative` flags."
    )
    rows = [
        title,
        "",
        "| crowd | spammers | " + " | ".join(SCORES) + " | flagged spammers | flagged others |",
        "|" + "---|" * (len(SCORES) + 4),
    ]
    for name in CROWDS:
        frame, _, n_classes = load(name, folder)
        for kind in KINDS:
            rng = np.random.default_rng(0)
            found: dict[str, list[float]] = {score: [] for score in SCORES}
            flags: list[tuple[float, float]] = []
            for done in range(rounds):
                mixed = add_spammers(frame, kind, n_classes, rng)
                size = mixed["worker"].value_counts()
                enough = size.index[size >= MIN_TASKS]
                for score, function in SCORES.items():
                    found[score].append(auroc(function(mixed)[enough]))
                if done < 10:
                    flag = score_annotators(mixed, n_bootstrap=20, random_state=0)["uninformative"][enough]
                    spam = flag.index.str.startswith("spam")
                    flags.append((flag[spam].mean(), flag[~spam].mean()))
            cells = " | ".join(_with_interval(values) for values in found.values())
            shares = " | ".join(f"{share:.2f}" for share in np.mean(flags, axis=0))
            rows.append(f"| {name} | {kind} | {cells} | {shares} |")
    return rows


def _with_interval(values: list[float]) -> str:
    low, high = np.quantile(values, [0.025, 0.975])
    return f"{np.mean(values):.3f} ({low:.3f}–{high:.3f})"


def accuracy_rows(folder: str | None) -> list[str]:
    """Compare labels with gold labels, ranks with true accuracies, and times with crowd-kit."""
    theirs = _crowdkit()
    title = (
        "Share of tasks with the gold label; rank correlation with the true accuracy of workers with "
        f"{MIN_TASKS} tasks or more."
    )
    rows = [
        title,
        "",
        "| crowd | majority | Dawid–Skene | crowd-kit's | s | crowd-kit's | CA | agreement | accuracy |",
        "|" + "---|" * 9,
    ]
    for name in (*CROWDS, "labelme"):
        frame, gold, _ = load(name, folder)
        seconds, model = _timed(lambda: dawid_skene(frame))  # noqa: B023 (called immediately)
        labels = aggregate_labels(model)
        known = gold.reindex(labels.index).dropna()
        right = labels.loc[known.index, ["majority", "label"]].eq(known, axis=0).mean()
        other, other_seconds = "–", "–"
        if theirs is not None:
            took, answer = _timed(lambda: theirs(100).fit_predict(frame))  # noqa: B023
            other, other_seconds = f"{(answer.loc[known.index] == known).mean():.4f}", f"{took:.2f}"
        checked = frame.assign(gold=frame["task"].map(gold)).dropna()
        exact = (checked["label"] == checked["gold"]).groupby(checked["worker"]).mean()
        size = frame["worker"].value_counts()
        enough = [worker for worker in exact.index if size[worker] >= MIN_TASKS]
        table = score_annotators(model, n_bootstrap=20, random_state=0).loc[enough]
        ranks = " | ".join(
            f"{spearmanr(table[column], exact[enough], nan_policy='omit')[0]:.2f}"
            for column in ("score", "agreement", "accuracy")
        )
        rows.append(
            f"| {name} | {right['majority']:.4f} | {right['label']:.4f} | {other} | {seconds:.2f} "
            f"| {other_seconds} | {ranks} |"
        )
    return rows


def _crowdkit() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from crowdkit.aggregation import DawidSkene  # noqa: PLC0415 (not a development tool)
    except ImportError:
        return None
    return DawidSkene


def _timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the CPU time of a call and its result."""
    start = time.process_time()
    result = function()
    return time.process_time() - start, result


def label_rows(folder: str | None, rounds: int) -> list[str]:
    """Compare methods that combine labels: accuracy and log loss on real and simulated crowds."""
    compared = methods()
    title = (
        "Percentage of tasks with the gold label, and log loss in brackets (probabilities of at least 1e-6). "
        "The shares of the majority contain one more vote, divided among all labels. Simulated crowds: means "
        f"of {rounds} crowds, seeds 1000 to {999 + rounds}."
    )
    rows = [title, "", f"| crowd | {' | '.join(compared)} |", "|" + "---|" * (len(compared) + 1)]
    for kind, names in (("real", (*CROWDS, "labelme")), ("simulated", tuple(SIMULATED))):
        table = []
        for name in names:
            crowds = (
                [load(name, folder)[:2]]
                if kind == "real"
                else [SIMULATED[name].draw(1000 + i) for i in range(rounds)]
            )
            used = [name != SLOW or kind == "real" for name in compared]
            scores = [
                [
                    evaluate(fit(frame), gold) if run else (np.nan, np.nan)
                    for fit, run in zip(compared.values(), used, strict=True)
                ]
                for frame, gold in crowds
            ]
            table.append(np.mean(scores, axis=0))
            rows.append(_label_row(name, table[-1]))
        rows.append(_label_row(f"**mean, {kind}**", np.mean(table, axis=0)))
        gaps = np.min([scores[:, 0] - scores[0, 0] for scores in table], axis=0)
        rows.append(f"| worst minus majority | {' | '.join(_number(100 * gap, '+.1f') for gap in gaps)} |")
    return rows


def _label_row(name: str, scores: np.ndarray[Any, Any]) -> str:
    return f"| {name} | {' | '.join(_pair(right, loss) for right, loss in scores)} |"


def _pair(right: float, loss: float) -> str:
    return "–" if np.isnan(right) else f"{100 * right:.1f} ({loss:.2f})"


def _number(value: float, form: str) -> str:
    return "–" if np.isnan(value) else format(value, form)


def interval_rows(folder: str | None) -> list[str]:
    """Compare accuracies of workers with those on gold labels: mean error and coverage of the intervals."""
    title = "Workers with 10 tasks or more: error of `accuracy`, and share of the 95 % intervals that hold."
    rows = [title, "", "| crowd | workers | mean absolute error | coverage | mean width |", "|" + "---|" * 5]
    for name in (*CROWDS, "labelme"):
        frame, gold, _ = load(name, folder)
        checked = frame.assign(gold=frame["task"].map(gold)).dropna()
        counted = (checked["label"] == checked["gold"]).groupby(checked["worker"]).agg(["mean", "size"])
        exact = counted.loc[counted["size"] >= 10, "mean"]
        table = score_annotators(frame, n_bootstrap=20, random_state=0).loc[exact.index]
        error = (table["accuracy"] - exact).abs().mean()
        low, high = table["accuracy_low"], table["accuracy_high"]
        holds = ((low <= exact) & (exact <= high)).mean()
        rows.append(f"| {name} | {len(exact)} | {error:.3f} | {holds:.2f} | {(high - low).mean():.2f} |")
    return rows


def copier_rows(folder: str | None) -> list[str]:
    """Count which of ten added copiers the pairwise test reports, and other reported pairs."""
    title = (
        "Copiers of workers with 50 tasks or more: each answer is copied from the source with the given "
        "probability, else from a random worker on the task."
    )
    rows = [
        title,
        "",
        "| crowd | pairs reported before | copied: 100 % | 80 % | 60 % | other pairs |",
        "|" + "---|" * 6,
    ]
    for name in CROWDS:
        frame, _, _ = load(name, folder)
        rng = np.random.default_rng(0)
        size = frame["worker"].value_counts()
        sources = rng.choice(size.index[size >= 50], 10, replace=False)
        answers = frame.groupby("task")["label"].agg(list)
        cells, others = [], 0
        for rate in (1.0, 0.8, 0.6):
            frames = [frame]
            for source in sources:
                copy = frame[frame["worker"] == source].assign(worker=f"copy {source}")
                own = rng.random(len(copy)) < rate
                instead = [rng.choice(answers[task]) for task in copy["task"]]
                frames.append(copy.assign(label=np.where(own, copy["label"], instead)))
            pairs = set(map(tuple, find_copiers(pd.concat(frames))[["worker", "other"]].to_numpy()))
            hits = sum((source, f"copy {source}") in pairs for source in sources)
            cells.append(f"{hits} of 10")
            others += len(pairs) - hits
        rows.append(f"| {name} | {len(find_copiers(frame))} | {' | '.join(cells)} | {others} |")
    return rows


SETTINGS = (
    ("two even classes", (0.5, 0.5), 0.8),
    ("nine to one", (0.9, 0.1), 0.85),
    ("five even classes", (0.2,) * 5, 0.6),
    ("five uneven classes", (0.6, 0.1, 0.1, 0.1, 0.1), 0.7),
)


def rate_rows(crowds: int) -> list[str]:
    """Simulate crowds: false alarms and power of the flag, coverage of the intervals."""
    title = (
        "A quarter of the workers guess half of their answers (the weakest workers who must not be flagged), "
        "a tenth are spammers. False discoveries: mean share of other workers among those flagged. Coverage: "
        "share of honest workers whose 95 % interval contains the expected score of honest workers."
    )
    heads = ["crowd", "reports per task", "per worker", "guess half: p ≤ .05", "flagged", "spammers flagged"]
    heads += ["false discoveries", "coverage"]
    rows = [title, "", f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for name, prior, accuracy in SETTINGS:
        for per_task, per_worker in ((3, 10), (3, 30), (5, 100), (10, 20), (10, 300)):
            setting = (np.array(prior), accuracy, per_task, per_worker)
            found = [_simulate(np.random.default_rng(seed), *setting) for seed in range(crowds)]
            shares = " | ".join(f"{share:.3f}" for share in np.mean(found, axis=0))
            rows.append(f"| {name} | {per_task} | {per_worker} | {shares} |")
    return rows


def draw_crowd(
    rng: np.random.Generator, prior: np.ndarray[Any, Any], accuracy: float, per_task: int, per_worker: int
) -> tuple[Callable[[], pd.DataFrame], int, int]:
    """Return a function that draws answers, and the ends of the half-guessing workers and spammers."""
    k, n_tasks = len(prior), 2000
    transition = np.full((k, k), (1 - accuracy) / (k - 1))
    np.fill_diagonal(transition, accuracy)
    truth, noisy = rng.choice(k, n_tasks, p=prior), prior @ transition
    slots = np.concatenate([rng.permutation(n_tasks) for _ in range(per_task)])
    n_workers = len(slots) // per_worker
    frame = pd.DataFrame({"task": slots, "worker": np.arange(len(slots)) // per_worker})
    frame = frame[frame["worker"] < n_workers].drop_duplicates(ignore_index=True)
    half, spam = n_workers // 4, n_workers // 4 + max(3, n_workers // 10)
    worker, n = frame["worker"].to_numpy(), len(frame)
    fixed = np.where(np.arange(n_workers) % 3 == 0, rng.integers(k, size=n_workers), noisy.argmax())[worker]

    def answers() -> pd.DataFrame:
        honest = (transition[truth[frame["task"]]].cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        label = np.where((worker < half) & (rng.random(n) < 0.5), rng.choice(k, n, p=noisy), honest)
        spammed = np.where(worker % 3 == 2, rng.integers(k, size=n), fixed)
        return frame.assign(label=np.where((worker >= half) & (worker < spam), spammed, label))

    return answers, half, spam


def _simulate(rng: np.random.Generator, *setting: Any) -> np.ndarray[Any, Any]:
    answers, half, spam = draw_crowd(rng, *setting)
    reports = Reports.from_table(answers())
    model, shared = dawid_skene(reports), SharedReports(reports)
    order = np.argsort(reports.workers)
    p = consensus(shared, model).p_values(constant=shared.is_constant())[order]
    table = score_annotators(model, random_state=0)
    flag = table["uninformative"].to_numpy()[order]
    false = (flag.sum() - flag[half:spam].sum()) / max(1, flag.sum())
    honest = np.mean([correlated_agreement(answers())["score"].sort_index()[spam:].mean() for _ in range(5)])
    scored = table.sort_index()[spam:].dropna(subset="low")
    covered = (scored["low"] <= honest) & (honest <= scored["high"])
    return np.array(
        [(p[:half] <= 0.05).mean(), flag[:half].mean(), flag[half:spam].mean(), false, covered.mean()]
    )


def main() -> None:
    """Run the requested parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "parts", nargs="*", help="labels, intervals, spammers, accuracy, copiers, rates, scale"
    )
    parser.add_argument("--data-dir")
    parser.add_argument("--reports", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    parts: dict[str, Callable[[], list[str]]] = {
        "labels": lambda: label_rows(options.data_dir, options.rounds),
        "intervals": lambda: interval_rows(options.data_dir),
        "spammers": lambda: spammer_rows(options.data_dir, options.rounds),
        "accuracy": lambda: accuracy_rows(options.data_dir),
        "copiers": lambda: copier_rows(options.data_dir),
        "rates": lambda: rate_rows(options.rounds),
        "scale": lambda: scale_rows(options.reports),
    }
    lines = ["# Annotators"]
    for name in options.parts or parts:
        command = f"{name} --rounds {options.rounds}" if name in {"labels", "spammers", "rates"} else name
        lines += ["", f"## {name}", "", f"`{command}`: {provenance('cpu')}.", "", *parts[name]()]
        if options.output:
            options.output.write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
