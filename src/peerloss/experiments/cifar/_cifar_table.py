"""Records of the CIFAR experiments as a table in Markdown, with provenance and training time."""

from __future__ import annotations

import json
import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from peerloss.experiments._experiment import load_experiment
from peerloss.experiments.cifar._train_cifar import MIRRORED

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from peerloss.experiments.cifar._cifar_experiment import CifarExperiment

#: Column of the table → name of the weights in a record.
_ACCURACIES = {
    "last epoch": "last",
    "averaged weights": "average",
    "best on noisy validation": "best",
    "averaged, mirrored too": f"average{MIRRORED}",
    "settled, mirrored too": f"settled{MIRRORED}",
}
#: Settings that identify a run and do not change its training.
_IDENTITY = ("experiment", "noise", "method", "seed", "smoke", "closed")
_COLUMNS = ("noise", "method", "seeds", *_ACCURACIES, "seconds per run", "published")


def cifar_means(experiment: CifarExperiment, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return one row per noise, method and set of settings that has records, in the order of the file.

    Means are over seeds only. ``settings`` lists what differs from the file, as ``name=value`` with the names
    of the record.
    Accuracies are pairs in per cent: mean and standard deviation over seeds, ``None`` if a method has no such
    weights; on clean test labels or, if the experiment is closed, on held-out noisy ones. Seconds are the
    median.
    """
    usual = _as_in_file(experiment, records)
    methods = [*usual.methods, *(record["method"] for record in records)]  # earlier files may have had more
    rows: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for record in records:
        noise, method = record["noise"], record["method"]
        run = usual.templates.get((noise, method))
        expected = {} if run is None else json.loads(json.dumps(run.settings()))  # lists for tuples
        settings = ", ".join(_differences(record["run"], expected))
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
            "published": None if experiment.closed else usual.published.get(noise, {}).get(method),
        }
        for (noise, method, settings), found in sorted(
            rows.items(), key=lambda row: (usual.noise.index(row[0][0]), methods.index(row[0][1]), row[0][2])
        )
    ]


@dataclass(frozen=True)
class CifarTable:
    """A table of accuracies and the texts that belong to it."""

    title: str
    provenance: str
    explanation: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    means: tuple[dict[str, Any], ...]
    """The same rows as numbers, see :func:`cifar_means`; without methods that were only published."""

    def markdown(self) -> str:
        """Return the table as a page in Markdown."""
        rows = (self.columns, ("---",) * len(self.columns), *self.lines)
        table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
        return "\n\n".join([f"# {self.title}", self.provenance, self.explanation, table]) + "\n"


def summarise_cifar(experiment: CifarExperiment, records: Sequence[Mapping[str, Any]]) -> CifarTable:
    """Return the table of all records, with published test accuracies for comparison."""
    means = cifar_means(experiment, records)
    columns = _COLUMNS[:-1] if experiment.closed else _COLUMNS
    lines = []
    for noise in dict.fromkeys(row["noise"] for row in means):
        rows = [row for row in means if row["noise"] == noise]
        lines += [tuple(_cells(row)[: len(columns)]) for row in rows]
        others = {} if experiment.closed else experiment.published.get(noise, {})
        lines += [
            (noise, name, *[""] * (len(columns) - 3), f"{accuracy:.2f}")
            for name, accuracy in others.items()
            if name not in {row["method"] for row in rows}
        ]
    return CifarTable(
        title=experiment.title,
        provenance=_provenance(records),
        explanation=_explanation(experiment, records),
        columns=columns,
        lines=tuple(lines),
        means=tuple(means),
    )


def cifar_table(experiment: CifarExperiment, records: Sequence[Mapping[str, Any]]) -> str:
    """Return the page in Markdown: title, provenance, explanation and table."""
    return summarise_cifar(experiment, records).markdown()


def _provenance(records: Sequence[Mapping[str, Any]]) -> str:
    """Return where the results were computed, from how many runs and in how much time."""
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
        f"{minutes:.1f} {unit} in total."
    )


def _explanation(experiment: CifarExperiment, records: Sequence[Mapping[str, Any]]) -> str:
    """Return a paragraph that explains the columns."""
    held_out = f"{_distinct(record['run']['holdout'] for record in records)} held-out noisy labels"
    if experiment.closed:
        measured = f"{held_out}, which also chose the *best* epoch"
        end = "The test set was not read, so these results do not estimate test accuracy."
    else:
        measured = "the clean test labels"
        end = "No clean label is used before the end of a run, when the test set is read once."
        end += _published_sources(experiment, [record["noise"] for record in records])
    smoke = (
        "Few images, few epochs, a narrow network: these results mean nothing. " if experiment.smoke else ""
    )
    return (
        f"{smoke}Accuracy in per cent on {measured}, mean ± standard deviation over seeds. Settings after "
        "the name of a method differ from those of the experiment. *Averaged weights*: the running mean "
        "of the weights after the last epoch. *Best on noisy validation*: the averaged weights of the "
        f"epoch with the best peer score on {held_out}. *Mirrored too*: the mean of the outputs for an "
        "image and its mirror image. *Settled*: averaged weights after a sieve, with batch statistics "
        f"recomputed from images that are only moved and mirrored. {end}"
    )


def _published_sources(experiment: CifarExperiment, noises: Iterable[str]) -> str:
    """Return a sentence with the origin of the published accuracies, by noise if there are several."""
    by_source: dict[str, list[str]] = {}
    for noise in dict.fromkeys(noises):
        if noise in experiment.sources:
            by_source.setdefault(experiment.sources[noise], []).append(noise)
    if len(by_source) < 2:
        return "".join(f" *Published*: {source}." for source in by_source)
    parts = (f"{', '.join(found)}: {source}" for source, found in by_source.items())
    return f" *Published*: {'; '.join(parts)}."


def _as_in_file(experiment: CifarExperiment, records: Iterable[Mapping[str, Any]]) -> CifarExperiment:
    """Return the experiment as in its file, not as requested, with all noise that was recorded."""
    kind: Any = {"smoke": experiment.smoke, "closed": experiment.closed}
    planned = cast("CifarExperiment", load_experiment(experiment.name, **kind)).noise
    noise = list(dict.fromkeys([*planned, *(record["noise"] for record in records)]))
    return cast("CifarExperiment", load_experiment(experiment.name, noise=noise, **kind))


def _differences(settings: dict[str, Any], usual: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield ``name=value`` for settings that differ from the usual ones, apart from seeds."""
    for name in dict.fromkeys([*usual, *settings]):
        own, expected = settings.get(name), usual.get(name)
        if isinstance(own, dict):
            inside = "" if name == "recipe" else f"{prefix}{name}."
            yield from _differences(own, expected if isinstance(expected, dict) else {}, inside)
        elif name not in _IDENTITY and own != expected:
            yield f"{prefix}{name}={own!r}"


def _cells(row: dict[str, Any]) -> list[str]:
    accuracies = [row[name] or () for name in _ACCURACIES.values()]
    shown = 2 if row["seeds"] > 1 else 1  # one seed has no standard deviation
    return [
        row["noise"],
        f"{row['method']} ({row['settings']})" if row["settings"] else row["method"],
        str(row["seeds"]),
        *(" ± ".join(f"{value:.2f}" for value in pair[:shown]) for pair in accuracies),
        f"{row['seconds']:.0f}",
        "" if row["published"] is None else f"{row['published']:.2f}",
    ]


def _mean_and_spread(accuracies: Sequence[dict[str, float]], name: str) -> tuple[float, float] | None:
    values = [100.0 * by_name[name] for by_name in accuracies if name in by_name]
    if not values:
        return None
    return statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values))
