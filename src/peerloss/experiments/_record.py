"""The stored result of a run: its checks, its final choice, and where it was computed.

Files may come from anywhere and may be damaged, so every field that is read is checked.
"""

from __future__ import annotations

import json
import math
import os
import platform
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from peerloss._validation import FIRST_INEXACT
from peerloss.exceptions import InvalidInputError
from peerloss.experiments._image_noise import parse_noise

#: Part of every hash and record: raised when the meaning of a recipe or a record changes, so that runs in an
#: older format are run again.
FORMAT = 1
#: Width of the networks in a smoke test on images.
SMOKE_WIDTH = 4
#: Packages that can change results.
PACKAGES = ("peerloss", "numpy", "scipy", "scikit-learn", "torch", "numba")
#: Deepest nesting of a record, far from Python's recursion limit.
MAX_DEPTH = 8
_TEXTS = ("protocol", "data_set", "prior", "spec", "choose", "finished")
_COUNTS = ("seed", "n_test", "chosen")


@dataclass(frozen=True)
class TableIdentity:
    """The fields that identify a run on tables, its record and its result."""

    experiment: str
    protocol: str
    data_set: str
    e_neg: float
    e_pos: float
    prior: str
    method: str
    seed: int


IDENTITY = tuple(TableIdentity.__annotations__)


@dataclass(frozen=True, eq=False)
class Record(Mapping[str, Any]):
    """The stored result of one run: ``record["seconds"]`` is a field of its JSON object.

    Every record has the fields ``format``, ``key``, ``experiment``, ``method``, ``seed``, ``seconds``,
    ``finished`` (UTC, ISO), ``versions`` and ``machine``.

    Records of tables also have

    ``protocol``, ``data_set``, ``e_neg``, ``e_pos``, ``prior``
        With experiment, method and seed they identify the run.
    ``spec``, ``split``
        Hash of all settings; hash of rows, features and labels.
    ``n_train``, ``n_validation``, ``n_test``
        Numbers of rows.
    ``choose``, ``scoring_alpha``, ``settings``
        From the recipe; ``settings`` are those that all trials have in common.
    ``trials``
        ``settings`` {name: one value per trial}, empty without a search; ``noisy_validation`` and
        ``test_accuracy``, one number per trial, ``null`` if training diverged or, with ``choose`` "seed", if
        the trial was not tested.
    ``chosen``, ``noisy_validation``, ``test_accuracy``, ``test_balanced_accuracy``
        Index of the trial that is best on this seed's noisy validation labels, and its results (``null`` if
        every trial diverged).
    ``diverged``
        Number of trials that diverged.
    ``curve``
        ``null``, or lists over the training of the chosen trial: ``step`` and, as the recipe requires,
        ``noisy_validation``, ``test_accuracy``; ``train_noisy_peer_loss``, ``train_clean_peer_loss`` and the
        same for ``validation`` (α = 1, on the noisy and on the clean labels of the same rows).
    ``plane``
        ``null``, or the decision of the chosen trial over two standardised features: ``x``, ``y`` and
        ``probability[i][j]`` of class 1 at ``x[j]``, ``y[i]``; ``points`` and ``noisy_labels`` of training.

    Records of images also have

    ``noise``, ``run``
        The noise, and all settings of the run.
    ``test``, ``held_out``
        Accuracies {name of the weights: accuracy}. ``test`` is missing if the test set was closed.
    ``best_epoch``, ``last_score``, ``best_score``, ``noise_in_training``, ``history``
        Peer scores on the held-out noisy labels; share of wrong labels; one object per epoch.
    ``median_epoch``, ``memory_gib``, ``device``, ``commit``
        Seconds per epoch, GPU memory, device and commit of the sources.

    With ``choose`` "row" the result is not that of ``chosen`` but of the trial that is best on average over
    the seeds of a row: :func:`final_results` takes this into account.
    """

    fields: Mapping[str, Any]

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.fields)

    def __len__(self) -> int:
        return len(self.fields)

    @property
    def has_images(self) -> bool:
        """Whether it is the record of a run on images, not on tables."""
        return "run" in self.fields

    @property
    def protocol(self) -> str:
        """Protocol of the experiment."""
        if not self.has_images:
            return str(self["protocol"])
        settings = self["run"]
        # Early records do not state whether they are smoke tests, but those had a width of their own.
        smoke = settings.get("smoke", settings["width"] == SMOKE_WIDTH)
        return image_protocol(smoke=smoke, closed=settings.get("closed", False))

    @property
    def is_usable(self) -> bool:
        """Whether every field that is read exists and has the right type."""
        try:
            return (
                all(isinstance(self[name], str) for name in ("experiment", "method"))
                and 0 <= self["seconds"] < math.inf
                and (_has_image_fields(self) if self.has_images else _has_table_fields(self))
            )
        except (InvalidInputError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
            return False


@dataclass(frozen=True)
class Result(TableIdentity):
    """The result of one run on tables."""

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
        if "run" not in record:  # records of images have no row
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
    scores = np.array([record["trials"]["noisy_validation"] for record in members], dtype=float)
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


@cache
def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            found[package] = metadata.version(package)
    return found


@cache
def machine() -> dict[str, Any]:
    """Return system, architecture and number of cores."""
    return {"system": platform.system(), "architecture": platform.machine(), "cores": os.cpu_count()}


@cache
def commit() -> str:
    """Return the commit of the sources, followed by "with changes" if ``src`` differs from it.

    If git does not track the sources, return the environment variable ``PEERLOSS_COMMIT``, or "unknown".
    """
    git = shutil.which("git")
    folder = str(Path(__file__).parent)

    def call_git(*arguments: str) -> str:
        if git is None:
            return ""
        run = subprocess.run([git, "-C", folder, *arguments], capture_output=True, text=True, check=False)  # noqa: S603 (fixed words)
        return run.stdout.strip() if run.returncode == 0 else ""

    if not call_git("ls-files", "--", __file__):  # an installed package may be inside another repository
        return os.environ.get("PEERLOSS_COMMIT", "unknown")
    found = call_git("rev-parse", "--short", "HEAD")
    return f"{found} with changes" if call_git("status", "--porcelain", "--", ":/src") else found


def image_protocol(*, smoke: bool, closed: bool) -> str:
    """Return the protocol of runs on images: ``open`` or ``closed`` (the test set), or a smoke test."""
    return ("smoke, " if smoke else "") + ("closed" if closed else "open")


def run_key(identity: Mapping[str, Any], digest: str) -> str:
    """Return the unique name of a run on tables: what identifies it, then the hash of its recipe."""
    return "/".join(f"{identity[name]}" for name in IDENTITY) + "@" + digest


def parse_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; raise ``ValueError`` for anything that a store does not write.

    NaN, infinities, lone surrogates (which no file or terminal can encode) and deep nesting are rejected.
    """
    try:
        fields = json.loads(line, parse_constant=_reject)
    except RecursionError:
        fields = None
    if not isinstance(fields, dict) or not _is_shallow(fields, MAX_DEPTH):
        raise ValueError("not a record")
    if b"\\ud" in line.lower():
        json.dumps(fields, ensure_ascii=False).encode()
    return fields


def _reject(constant: str) -> None:
    raise ValueError(constant)


def _is_shallow(value: Any, depth: int) -> bool:
    if not isinstance(value, list | dict):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return depth > 0 and all(_is_shallow(entry, depth - 1) for entry in inner)


def _has_table_fields(record: Record) -> bool:
    trials = record["trials"]
    accuracy, validation = (_numbers(trials[name]) for name in ("test_accuracy", "noisy_validation"))
    return (
        all(isinstance(record[name], str) for name in _TEXTS)
        and all(0 <= record[name] <= 1 for name in ("e_neg", "e_pos"))
        and all(type(record[name]) is int and 0 <= record[name] <= FIRST_INEXACT for name in _COUNTS)
        and record["n_test"] > 0
        and record["key"] == run_key(record, record["spec"])
        and record["chosen"] < len(accuracy) == len(validation)
        and all(isinstance(v, list) and len(v) == len(accuracy) for v in trials["settings"].values())
        and not bool(((accuracy < 0) | (accuracy > 1)).any())
        and (record["curve"] is None or _is_curve(record["curve"]))
        and (record["plane"] is None or _is_plane(record["plane"]))
    )


def _has_image_fields(record: Record) -> bool:
    parse_noise(record["noise"])
    run = record["run"]
    accuracies = record["held_out" if run.get("closed", False) else "test"]
    return (
        all(isinstance(record[name], str) for name in ("device", "commit"))
        and all(type(run[name]) is int for name in ("width", "holdout"))
        and type(record["seed"]) is int
        and isinstance(record["versions"], dict)
        and all(0 <= accuracy < math.inf for accuracy in accuracies.values())
    )


def _numbers(values: Any, *, gaps: bool = True) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a list of numbers as an array; ``None`` is a gap."""
    if not isinstance(values, list) or any(isinstance(value, str | bool) for value in values):
        raise TypeError(values)
    array = np.array([np.nan if value is None else float(value) for value in values])
    if np.isinf(array).any() or (not gaps and np.isnan(array).any()):
        raise ValueError(values)
    return array


def _is_curve(curve: Mapping[str, Any]) -> bool:
    lengths = {len(_numbers(values, gaps=False)) for values in curve.values()}
    return "step" in curve and len(lengths) == 1


def _is_plane(plane: Mapping[str, Any]) -> bool:
    x, y, labels = (_numbers(plane[name], gaps=False) for name in ("x", "y", "noisy_labels"))
    inside, points = (
        np.stack([_numbers(line, gaps=False) for line in plane[name]]) for name in ("probability", "points")
    )
    shapes = (inside.shape, points.shape)
    return shapes == ((len(y), len(x)), (len(labels), 2)) and min(inside.shape) > 1
