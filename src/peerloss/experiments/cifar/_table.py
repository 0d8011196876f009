"""Records of the CIFAR experiments as a table in Markdown, with where and in how much time it was made."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerloss.experiments.cifar._spec import CifarExperiment

Record = dict[str, Any]
_COLUMNS = (
    "noise",
    "method",
    "seeds",
    "last epoch",
    "best on noisy validation",
    "seconds a run",
    "published",
)


def cifar_means(experiment: CifarExperiment, records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row for each noise and method that has records: means over seeds, accuracies in per cent."""
    rows = []
    by_place: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_place.setdefault((record["noise"], record["method"]), []).append(record)
    for noise in experiment.noise:
        for method in experiment.methods:
            found = by_place.get((noise, method), [])
            if found:
                rows.append(
                    {
                        "noise": noise,
                        "method": method,
                        "seeds": len(found),
                        "last": _mean_and_spread([100.0 * record["last"] for record in found]),
                        "best": _mean_and_spread([100.0 * record["best"] for record in found]),
                        "seconds": statistics.median(record["seconds"] for record in found),
                        "published": experiment.published.get(noise, {}).get(method),
                    }
                )
    return rows


def cifar_table(experiment: CifarExperiment, records: Sequence[Record]) -> str:
    """Return the page: title, provenance, table, published figures beside ours."""
    lines = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    means = cifar_means(experiment, records)
    for noise in experiment.noise:
        lines += [_row(_cells(row)) for row in means if row["noise"] == noise]
        others = experiment.published.get(noise, {})
        lines += [
            _row([noise, name, "", "", "", "", f"{accuracy:.2f}"])
            for name, accuracy in others.items()
            if name not in experiment.methods
        ]
    page = [f"# {experiment.title}", provenance(records), _explanation(experiment, records), "\n".join(lines)]
    return "\n\n".join(page) + "\n"


def provenance(records: Sequence[Record]) -> str:
    """Say where the figures were made, from how many runs and in how much time."""
    if not records:
        return "No run is done."
    minutes = sum(record["seconds"] for record in records) / 60.0
    unit = "CPU-minutes" if all(record["device"] == "CPU" for record in records) else "GPU-minutes"
    named = [
        _distinct(record["versions"].get(name) for record in records)
        for name in ("peerloss", "torch", "python")
    ]
    return (
        f"commit {_distinct(record['commit'] for record in records)}, peerloss {named[0]}, torch {named[1]}, "
        f"Python {named[2]}, {_distinct(record['device'] for record in records)}; {len(records)} runs, "
        f"{minutes:.1f} {unit} in all."
    )


def _explanation(experiment: CifarExperiment, records: Sequence[Record]) -> str:
    holdout = _distinct(record["run"]["holdout"] for record in records)
    text = (
        "Accuracy in per cent on the clean test labels, mean ± standard deviation over seeds. *Last epoch*: "
        "of the running mean of the weights where the method keeps one. *Best on noisy validation*: of the "
        f"epoch with the best peer score on {holdout} held-out noisy labels. No clean label is used before "
        "the end of a run, where the test set is opened once."
    )
    return f"{text} *Published*: {experiment.source}." if experiment.source else text


def _cells(row: dict[str, Any]) -> list[str]:
    (last, spread), (best, best_spread) = row["last"], row["best"]
    return [
        row["noise"],
        row["method"],
        str(row["seeds"]),
        f"{last:.2f} ± {spread:.2f}",
        f"{best:.2f} ± {best_spread:.2f}",
        f"{row['seconds']:.0f}",
        "" if row["published"] is None else f"{row['published']:.2f}",
    ]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mean_and_spread(values: list[float]) -> tuple[float, float]:
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values))
