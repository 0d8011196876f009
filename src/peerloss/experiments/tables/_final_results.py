"""From records to results: if the seeds of a row choose together, the choice is made here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.exceptions import InvalidInputError
from peerloss.experiments._record import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True)
class Result:
    """The result of one run on tables."""

    experiment: str
    protocol: str
    data_set: str
    e_neg: float
    e_pos: float
    prior: str
    method: str
    seed: int
    test_accuracy: float | None
    """On clean labels; ``None`` if every trial diverged."""
    noisy_validation: float | None
    """Score of the chosen trial."""
    settings: dict[str, Any]
    """The chosen settings, if there was a choice."""
    spec: str
    """Hash of all settings: runs with different settings have different hashes."""


def final_results(records: Iterable[Mapping[str, Any]]) -> list[Result]:
    """Return the results of those of a store's ``records`` that belong to experiments on tables.

    If the recipe chooses by row, the result is that of the trial with the best score on noisy validation
    labels, averaged over the seeds of the row that are done; the first one in case of a tie. Otherwise each
    seed chooses for itself.

    Raises
    ------
    InvalidInputError
        If records of one recipe contradict each other, for example after an edit by hand.
    """
    rows: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for record in records:
        if "run" in record:  # of images
            continue
        rows[*(record[name] for name in IDENTITY if name != "seed"), record["spec"]].append(record)
    results = []
    for members in rows.values():
        _check_consistent(members)
        common = _common_choice(members) if members[0]["choose"] == "row" else None
        results += [_result(record, record["chosen"] if common is None else common) for record in members]
    return results


def _check_consistent(members: list[Mapping[str, Any]]) -> None:
    """Reject records of one recipe and row that choose differently or from different numbers of trials."""
    kinds = [(record["choose"], len(record["trials"]["noisy_validation"])) for record in members]
    if len(set(kinds)) > 1:
        rarest = min(kinds, key=kinds.count)
        odd = members[kinds.index(rarest)]["key"]
        raise InvalidInputError(
            f"Records contradict each other: the one with the key {odd!r} has {rarest[1]} trials and chooses "
            f"by {rarest[0]!r}, unlike others with the same settings. Remove its line from the folder of "
            "results; peerloss reproduce repeats that run."
        )


def _common_choice(members: list[Mapping[str, Any]]) -> int:
    scores = np.array(
        [record["trials"]["noisy_validation"] for record in members], dtype=float
    )  # null is nan
    mean = np.where(np.isnan(scores).any(axis=0), -np.inf, scores.mean(axis=0))
    # Means of the same scores in another order differ by rounding, which must not break ties.
    return int(np.argmax(mean.round(12)))


def _result(record: Mapping[str, Any], trial: int) -> Result:
    return Result(
        **{name: record[name] for name in IDENTITY},
        test_accuracy=record["trials"]["test_accuracy"][trial],
        noisy_validation=record["trials"]["noisy_validation"][trial],
        settings={name: values[trial] for name, values in record["trials"]["settings"].items()},
        spec=record["spec"],
    )
