"""Records of the CIFAR experiments as a table in Markdown, with where and in how much time it was made."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any

from peerloss.experiments.cifar._work import MIRRORED

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from peerloss.experiments.cifar._spec import CifarExperiment

Record = dict[str, Any]
#: Column of the table → name of the weights in a record.
_ACCURACIES = {
    "last epoch": "last",
    "averaged weights": "average",
    "best on noisy validation": "best",
    "averaged, mirrored too": f"average{MIRRORED}",
    "settled, mirrored too": f"settled{MIRRORED}",
}
_COLUMNS = ("noise", "method", "seeds", *_ACCURACIES, "seconds a run", "published")


def cifar_means(experiment: CifarExperiment, records: Iterable[Record]) -> list[dict[str, Any]]:
    """Return one row for each noise and method that has records.

    Accuracies are pairs in per cent: mean and standard deviation over seeds, ``None`` where a method keeps no
    such weights. Seconds are the median.
    """
    by_place: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        by_place.setdefault((record["noise"], record["method"]), []).append(record)
    return [
        {
            "noise": noise,
            "method": method,
            "seeds": len(found),
            **{name: _mean_and_spread(found, name) for name in _ACCURACIES.values()},
            "seconds": statistics.median(record["seconds"] for record in found),
            "published": experiment.published.get(noise, {}).get(method),
        }
        for noise in experiment.noise
        for method in experiment.methods
        if (found := by_place.get((noise, method)))
    ]


def cifar_table(experiment: CifarExperiment, records: Sequence[Record]) -> str:
    """Return the page: title, provenance, table, published figures beside ours."""
    lines = [_row(_COLUMNS), _row(["---"] * len(_COLUMNS))]
    means = cifar_means(experiment, records)
    for noise in experiment.noise:
        lines += [_row(_cells(row)) for row in means if row["noise"] == noise]
        others = experiment.published.get(noise, {})
        lines += [
            _row([noise, name, *[""] * (len(_COLUMNS) - 3), f"{accuracy:.2f}"])
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
        "Accuracy in per cent on the clean test labels, mean ± standard deviation over seeds. *Averaged "
        "weights*: their running mean after the last epoch. *Best on noisy validation*: the averaged weights "
        f"of the epoch with the best peer score on {holdout} held-out noisy labels. *Mirrored too*: the mean "
        "of the outputs for an image and its mirror image. *Settled*: averaged weights after a sieve, their "
        "batch statistics taken anew from images that are moved and mirrored only. No clean label is used "
        "before the end of a run, where the test set is opened once."
    )
    return f"{text} *Published*: {experiment.source}." if experiment.source else text


def _cells(row: dict[str, Any]) -> list[str]:
    accuracies = [row[name] for name in _ACCURACIES.values()]
    return [
        row["noise"],
        row["method"],
        str(row["seeds"]),
        *("" if pair is None else f"{pair[0]:.2f} ± {pair[1]:.2f}" for pair in accuracies),
        f"{row['seconds']:.0f}",
        "" if row["published"] is None else f"{row['published']:.2f}",
    ]


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mean_and_spread(records: Sequence[Record], name: str) -> tuple[float, float] | None:
    values = [100.0 * record["test"][name] for record in records if name in record["test"]]
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values))
