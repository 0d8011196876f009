"""From records to results: where a row chooses together, the choice is made here."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss.exceptions import InvalidInputError
from peerloss.experiments._cells import IDENTITY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from peerloss.experiments._store import Record


@dataclass(frozen=True)
class Result:
    """The figure of one cell."""

    experiment: str
    protocol: str
    data_set: str
    e_neg: float
    e_pos: float
    prior: str
    method: str
    seed: int
    test_accuracy: float | None
    """On clean labels; ``None`` where every trial diverged."""
    noisy_validation: float | None
    """Score of the chosen trial."""
    settings: dict[str, Any]
    """What was chosen, where there was a choice."""
    spec: str
    """Hash of the settings: differs between cells that were run with different ones."""


def final_results(records: Iterable[Record]) -> list[Result]:
    """Return the result of each of a store's ``records``.

    Where a recipe says that rows choose, it is that of the trial with the best noisy validation averaged over
    the row's seeds that are there, the first of equals; otherwise each seed's own choice.

    Raises
    ------
    InvalidInputError
        Records of one recipe contradict each other, which no run writes.
    """
    rows: dict[tuple[Any, ...], list[Record]] = defaultdict(list)
    for record in records:
        rows[*(record[name] for name in IDENTITY if name != "seed"), record["spec"]].append(record)
    results = []
    for members in rows.values():
        _check_consistent(members)
        common = _common_choice(members) if members[0]["choose"] == "row" else None
        results += [_result(record, record["chosen"] if common is None else common) for record in members]
    return results


def _check_consistent(members: list[Record]) -> None:
    """Refuse records of one recipe and row that choose differently or among different numbers of trials."""
    kinds = [(record["choose"], len(record["trials"]["noisy_validation"])) for record in members]
    if len(set(kinds)) > 1:
        rarest = min(kinds, key=kinds.count)
        odd = members[kinds.index(rarest)]["key"]
        raise InvalidInputError(
            f"Records contradict each other: the one with the key {odd!r} has {rarest[1]} trials and chooses "
            f"by {rarest[0]!r}, unlike others with the same settings. Remove its line from the folder of "
            "results; peerloss reproduce runs that cell again."
        )


def _common_choice(members: list[Record]) -> int:
    scores = np.array(
        [record["trials"]["noisy_validation"] for record in members], dtype=float
    )  # null is nan
    mean = np.where(np.isnan(scores).any(axis=0), -np.inf, scores.mean(axis=0))
    # Means of the same scores in another order differ by rounding, which must not decide between equals.
    return int(np.argmax(mean.round(12)))


def _result(record: Record, trial: int) -> Result:
    return Result(
        **{name: record[name] for name in IDENTITY},
        test_accuracy=record["trials"]["test_accuracy"][trial],
        noisy_validation=record["trials"]["noisy_validation"][trial],
        settings={name: values[trial] for name, values in record["trials"]["settings"].items()},
        spec=record["spec"],
    )
