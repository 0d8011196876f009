"""Records of the CIFAR experiments as a table in Markdown, with where and in how much time it was made."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from peerloss.experiments.cifar._spec import load_cifar
from peerloss.experiments.cifar._work import MIRRORED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from peerloss.experiments.cifar._spec import CifarExperiment, CifarRun

Record = dict[str, Any]
#: Column of the table → name of the weights in a record.
_ACCURACIES = {
    "last epoch": "last",
    "averaged weights": "average",
    "best on noisy validation": "best",
    "averaged, mirrored too": f"average{MIRRORED}",
    "settled, mirrored too": f"settled{MIRRORED}",
}
#: Say which run it is, not how it was trained.
_WHO = ("experiment", "noise", "method", "seed", "smoke", "closed")
_COLUMNS = ("noise", "method", "seeds", *_ACCURACIES, "seconds a run", "published")


def cifar_means(experiment: CifarExperiment, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return one row for each noise, method and choice of settings that has records, in the spec's order.

    Means are over seeds alone. ``settings`` says what differs from the spec, in the notation of ``--set``.
    Accuracies are pairs in per cent: mean and standard deviation over seeds, ``None`` where a method keeps no
    such weights; on clean test labels or, where the experiment is closed, on held-out noisy ones. Seconds are
    the median.
    """
    spec = _spec_of(experiment, records)
    methods = [*spec.methods, *(record["method"] for record in records)]  # an older spec may have had more
    rows: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        noise, method = record["noise"], record["method"]
        settings = ", ".join(_differences(record["run"], _plain(spec.templates.get((noise, method)))))
        rows.setdefault((noise, method, settings), []).append(record)
    labels = "held_out" if experiment.closed else "test"
    return [
        {
            "noise": noise,
            "method": method,
            "settings": settings,
            "seeds": len(found),
            **{name: _mean_and_spread([r[labels] for r in found], name) for name in _ACCURACIES.values()},
            "seconds": statistics.median(record["seconds"] for record in found),
            "published": None if experiment.closed else spec.published.get(noise, {}).get(method),
        }
        for (noise, method, settings), found in sorted(
            rows.items(), key=lambda row: (spec.noise.index(row[0][0]), methods.index(row[0][1]), row[0][2])
        )
    ]


def cifar_table(experiment: CifarExperiment, records: Sequence[Record]) -> str:
    """Return the page: title, provenance, table, published figures (of test accuracy) beside ours."""
    means = cifar_means(experiment, records)
    columns = _COLUMNS[:-1] if experiment.closed else _COLUMNS
    lines = [_row(columns), _row(["---"] * len(columns))]
    for noise in dict.fromkeys(row["noise"] for row in means):
        rows = [row for row in means if row["noise"] == noise]
        lines += [_row(_cells(row)[: len(columns)]) for row in rows]
        others = {} if experiment.closed else experiment.published.get(noise, {})
        lines += [
            _row([noise, name, *[""] * (len(columns) - 3), f"{accuracy:.2f}"])
            for name, accuracy in others.items()
            if name not in {row["method"] for row in rows}
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
    held_out = f"{_distinct(record['run']['holdout'] for record in records)} held-out noisy labels"
    if experiment.closed:
        measured = f"{held_out}, which also chose the *best* epoch"
        end = "The test set was not read, and nothing here says how it would come out."
    else:
        measured = "the clean test labels"
        end = "No clean label is used before the end of a run, where the test set is opened once."
        if experiment.source:
            end += f" *Published*: {experiment.source}."
    smoke = "Few images, few epochs, a thin network: these figures mean nothing. " if experiment.smoke else ""
    return (
        f"{smoke}Accuracy in per cent on {measured}, mean ± standard deviation over seeds. Behind a method "
        "stand settings that are not the spec's. *Averaged weights*: their running mean after the last epoch."
        " *Best on noisy validation*: the averaged weights of the epoch with the best peer score on "
        f"{held_out}. *Mirrored too*: the mean of the outputs for an image and its mirror image. *Settled*: "
        "averaged weights after a sieve, their batch statistics taken anew from images that are moved and "
        f"mirrored only. {end}"
    )


def _spec_of(experiment: CifarExperiment, records: Iterable[Record]) -> CifarExperiment:
    """Return the experiment as its spec has it, whatever was asked for, with all noise that was recorded."""
    noise = [*load_cifar(experiment.name).noise, *(record["noise"] for record in records)]
    return load_cifar(
        experiment.name,
        noise=list(dict.fromkeys(noise)),
        smoke=experiment.smoke,
        closed=experiment.closed,
    )


def _plain(run: CifarRun | None) -> dict[str, Any]:
    """Return the settings of a run as its record has them, after a way through JSON."""
    settings: dict[str, Any] = {} if run is None else json.loads(json.dumps(run.settings()))
    return settings


def _differences(settings: dict[str, Any], spec: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield ``name=value`` for settings that are not the spec's; seeds are no settings here."""
    for name in dict.fromkeys([*spec, *settings]):
        own, usual = settings.get(name), spec.get(name)
        if isinstance(own, dict):
            inside = "" if name == "recipe" else f"{prefix}{name}."
            yield from _differences(own, usual if isinstance(usual, dict) else {}, inside)
        elif name not in _WHO and own != usual:
            yield f"{prefix}{name}={own!r}"


def _cells(row: dict[str, Any]) -> list[str]:
    accuracies = [row[name] for name in _ACCURACIES.values()]
    return [
        row["noise"],
        f"{row['method']} ({row['settings']})" if row["settings"] else row["method"],
        str(row["seeds"]),
        *("" if pair is None else _told(pair, seeds=row["seeds"]) for pair in accuracies),
        f"{row['seconds']:.0f}",
        "" if row["published"] is None else f"{row['published']:.2f}",
    ]


def _told(mean_and_spread: tuple[float, float], *, seeds: int) -> str:
    mean, spread = mean_and_spread
    return f"{mean:.2f} ± {spread:.2f}" if seeds > 1 else f"{mean:.2f}"  # one seed spreads nowhere


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mean_and_spread(accuracies: Sequence[dict[str, float]], name: str) -> tuple[float, float] | None:
    values = [100.0 * by_name[name] for by_name in accuracies if name in by_name]
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values))
