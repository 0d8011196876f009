"""Simulated workers, truthful and untruthful, to measure what a mechanism pays them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from peerloss._random import RandomState, as_generator
from peerloss._validation import IntArray, as_labels, as_prior, check_count
from peerloss.exceptions import InvalidInputError
from peerloss.noise import NoiseModel, as_noise_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Returns the reports of a worker for the clean labels of its tasks.
Strategy = Callable[[IntArray, np.random.Generator], IntArray]


def truthful(noise: NoiseModel | ArrayLike) -> Strategy:
    """Report the signal that the worker sees: the clean label after ``noise``."""
    model = as_noise_model(noise)
    return lambda clean, rng: model.apply(clean, random_state=rng)


def constant(label: int) -> Strategy:
    """Report the same ``label`` for every task."""
    code = check_count(label, "label", minimum=0)
    return lambda clean, _rng: np.full_like(clean, code)


def random_guess(probabilities: ArrayLike | None = None) -> Strategy:
    """Report at random with these ``probabilities``; by default labels 0 and 1 with equal probability."""
    prior = as_prior(0.5 if probabilities is None else probabilities, "probabilities")
    return lambda clean, rng: rng.choice(len(prior), size=len(clean), p=prior).astype(np.int64)


def majority_guess(noise: NoiseModel | ArrayLike, clean_prior: ArrayLike) -> Strategy:
    """Report the most frequent label of the other workers for every task, argmax_k (π T)_k.

    π is ``clean_prior`` and T is the ``noise`` of the others.
    """
    return constant(int(as_noise_model(noise).noisy_prior(clean_prior).argmax()))


def permuted(noise: NoiseModel | ArrayLike, permutation: Sequence[int]) -> Strategy:
    """Report ``permutation[signal]``, where the signal is the clean label after ``noise``."""
    model = as_noise_model(noise)
    swap = as_labels(permutation, "permutation", n_classes=model.n_classes)
    if sorted(swap.tolist()) != list(range(model.n_classes)):
        raise InvalidInputError(
            f"`permutation` must hold each of 0..{model.n_classes - 1} once; got {swap.tolist()}."
        )
    return lambda clean, rng: swap[model.apply(clean, random_state=rng)]


def simulate_reports(
    n_tasks: int,
    workers: Mapping[str, Strategy],
    *,
    clean_prior: ArrayLike,
    tasks_per_worker: int | None = None,
    random_state: RandomState = None,
) -> pd.DataFrame:
    """Draw tasks and the reports of workers on them.

    Parameters
    ----------
    n_tasks
        The number of tasks; their clean labels are drawn from ``clean_prior``.
    workers
        The name and the strategy of each worker: :func:`truthful`, :func:`constant`, :func:`random_guess`,
        :func:`majority_guess`, :func:`permuted`, or any function of (clean labels, generator).
    clean_prior
        P(Y = 1), or the probabilities of K classes.
    tasks_per_worker
        The number of tasks of each worker, drawn without replacement; by default all.
    random_state
        Seed, generator or ``None``.

    Returns
    -------
    A frame with columns task, worker, label.

    Raises
    ------
    InvalidInputError
        If there are no workers or too few tasks, or if a strategy does not return one label per task.

    Examples
    --------
    >>> workers = {"ann": truthful([[0.9, 0.1], [0.2, 0.8]]), "bob": constant(1)}
    >>> simulate_reports(100, workers, clean_prior=0.5, tasks_per_worker=30, random_state=0).shape
    (60, 3)
    """
    n = check_count(n_tasks, "n_tasks")
    if not isinstance(workers, Mapping) or not workers:
        raise InvalidInputError(
            f"`workers` must map at least one name to a strategy; got {workers!r}. "
            "For example {'ann': truthful(NoiseModel.binary(0.1, 0.2))}."
        )
    prior = as_prior(clean_prior, "clean_prior")
    each = n if tasks_per_worker is None else check_count(tasks_per_worker, "tasks_per_worker")
    if each > n:
        raise InvalidInputError(f"`tasks_per_worker` must be at most `n_tasks` = {n}; got {each}.")
    rng = as_generator(random_state)
    clean = rng.choice(len(prior), size=n, p=prior).astype(np.int64)
    tasks = [np.arange(n) if each == n else np.sort(rng.choice(n, each, replace=False)) for _ in workers]
    labels = [
        _draw_labels(name, workers[name], clean[own], rng) for name, own in zip(workers, tasks, strict=True)
    ]
    names = np.repeat(np.array(list(workers), dtype=object), each)
    return pd.DataFrame({"task": np.concatenate(tasks), "worker": names, "label": np.concatenate(labels)})


def _draw_labels(name: str, strategy: Strategy, clean: IntArray, rng: np.random.Generator) -> IntArray:
    if not callable(strategy):
        raise InvalidInputError(
            f"`workers` must map names to strategies; {name!r} has {strategy!r}. "
            "Use, for example, truthful(noise)."
        )
    labels = as_labels(strategy(clean.copy(), rng), f"workers[{name!r}]")
    if len(labels) != len(clean):
        raise InvalidInputError(
            f"`workers` must map names to strategies that return one label per task; {name!r} returned "
            f"{len(labels)} for {len(clean)} tasks."
        )
    return labels
