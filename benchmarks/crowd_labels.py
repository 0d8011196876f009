"""Methods that combine the labels of a crowd, and simulated crowds, for ``bench_annotators.py labels``."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.crowd import LabelAggregator

if TYPE_CHECKING:
    from collections.abc import Callable

#: A method that takes more than ten seconds per crowd, for real crowds only.
SLOW = "crowd-kit MACE"
#: Smallest probability in the log loss.
LEAST_PROBABILITY = 1e-6


def majority(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the shares of the votes, with one more vote that is divided equally among the labels."""
    votes = pd.crosstab(frame["task"], frame["label"]) + 1 / frame["label"].nunique()
    return votes.div(votes.sum(axis=1), axis=0)


def _ours(method: str) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def fit(frame: pd.DataFrame) -> pd.DataFrame:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # drift of the compared methods is what the table shows
            return LabelAggregator(method=method).fit_predict_proba(frame)

    return fit


def methods() -> dict[str, Callable[[pd.DataFrame], pd.DataFrame]]:
    """Return the methods by name: frame of reports → frame of probabilities."""
    found = {
        "majority": majority,
        "one-coin": _ours("one_coin"),
        "Dawid–Skene": _ours("dawid_skene"),
        "shrunken": _ours("shrunken"),
    }
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from crowdkit import aggregation as kit  # noqa: PLC0415 (not a development tool)
    except ImportError:
        return found
    return found | {
        "crowd-kit DS": lambda frame: kit.DawidSkene(100).fit_predict_proba(frame),
        SLOW: lambda frame: kit.MACE(random_state=0).fit_predict_proba(frame),
    }


def evaluate(probabilities: pd.DataFrame, gold: pd.Series) -> tuple[float, float]:
    """Return the share of tasks whose most probable label is the gold label, and the log loss."""
    known = gold.reindex(probabilities.index).dropna()
    table = probabilities.loc[known.index].fillna(0.0)
    right = (table.idxmax(axis=1) == known).mean()
    place = table.columns.get_indexer(pd.Index(known))
    of_gold = np.where(place >= 0, table.to_numpy()[np.arange(len(known)), place], 0.0)
    return float(right), float(-np.log(np.clip(of_gold, LEAST_PROBABILITY, 1.0)).mean())


@dataclass(frozen=True)
class SimulatedCrowd:
    """A kind of crowd; workers have different accuracies and very different numbers of reports."""

    n_labels: int
    per_task: int
    n_tasks: int = 500
    n_workers: int = 60
    prior: tuple[float, ...] = ()
    full_confusion: bool = False
    """Whether each worker has a random confusion matrix instead of one accuracy."""
    hard: float = 0.0
    """Share of hard tasks, on which three quarters of the answers are guesses."""
    confused: float = 0.0
    """Share of tasks that look like the neighbouring class half of the time."""
    followers: float = 0.0
    """Share of workers who mostly repeat a common opinion, which is often wrong."""
    spammers: float = 0.0
    """Share of workers who guess or give a constant label."""

    def draw(self, seed: int) -> tuple[pd.DataFrame, pd.Series]:
        """Return reports and true labels."""
        rng = np.random.default_rng(seed)
        k, n = self.n_labels, self.n_tasks
        truth = rng.choice(k, n, p=np.array(self.prior) if self.prior else np.full(k, 1 / k))
        task = np.repeat(np.arange(n), self.per_task)
        activity = rng.pareto(1.2, self.n_workers) + 0.05
        activity /= activity.sum()
        worker = np.concatenate(
            [rng.choice(self.n_workers, self.per_task, replace=False, p=activity) for _ in range(n)]
        )
        confusion = np.stack([self._confusion(rng, w) for w in range(self.n_workers)])
        chance = confusion[worker, truth[task]]
        hard = (rng.random(n) < self.hard)[task, None]
        chance = np.where(hard, 0.25 * chance + 0.75 * confusion[worker].mean(axis=1), chance)
        twin = np.where(truth % 2 == 1, truth - 1, np.minimum(truth + 1, k - 1))
        alike = (rng.random(n) < self.confused)[task, None]
        chance = np.where(alike, (chance + confusion[worker, twin[task]]) / 2, chance)
        label = (chance.cumsum(axis=1) > rng.random((len(task), 1))).argmax(axis=1)
        opinion = np.where(rng.random(n) < 0.55, truth, rng.integers(k, size=n))
        follows = (worker < self.followers * self.n_workers) & (rng.random(len(task)) < 0.85)
        label = np.where(follows, opinion[task], label)
        frame = pd.DataFrame({"task": task, "worker": [f"w{w}" for w in worker], "label": label})
        return frame, pd.Series(truth)

    def _confusion(self, rng: np.random.Generator, worker: int) -> np.ndarray[Any, Any]:
        k = self.n_labels
        if worker >= (1 - self.spammers) * self.n_workers:
            return np.full((k, k), 1 / k) if worker % 2 else np.tile(np.eye(k)[rng.integers(k)], (k, 1))
        accuracy = np.clip(rng.beta(7, 3, k if self.full_confusion else 1), 0.05, 0.98) * np.ones(k)
        table = rng.dirichlet(np.full(k, 0.7 if self.full_confusion else 1e6), k)
        np.fill_diagonal(table, 0.0)
        table *= ((1 - accuracy) / table.sum(axis=1))[:, None]
        return table + np.diag(accuracy)


SIMULATED = {
    "one-coin, 3 labels": SimulatedCrowd(3, 4),
    "one-coin, 2 labels, few reports": SimulatedCrowd(2, 3, n_workers=200),
    "two reports per task": SimulatedCrowd(3, 2, n_tasks=800, n_workers=150),
    "confusion matrices, 2 labels": SimulatedCrowd(2, 5, n_tasks=600, n_workers=40, full_confusion=True),
    "confusion matrices, 5 labels": SimulatedCrowd(5, 5, n_tasks=800, full_confusion=True),
    "confusion matrices, 10 labels": SimulatedCrowd(10, 3, n_workers=120, full_confusion=True),
    "one-coin, 20 labels": SimulatedCrowd(20, 4, n_tasks=800, n_workers=150),
    "95 % in one of 2 classes": SimulatedCrowd(2, 3, prior=(0.95, 0.05)),
    "93 % in one of 4 classes": SimulatedCrowd(4, 4, prior=(0.93, 0.04, 0.02, 0.01)),
    "a quarter of the tasks hard": SimulatedCrowd(4, 6, hard=0.25),
    "pairs of similar classes": SimulatedCrowd(6, 6, n_tasks=600, confused=0.35),
    "a third follows an opinion": SimulatedCrowd(3, 7, followers=1 / 3),
    "a third guesses": SimulatedCrowd(3, 5, spammers=1 / 3),
}
