"""Data sets with real label noise and gold labels, read from a local folder.

LabelMe (59 annotators, image features), YouTube comments (ten labelling rules, text) and four crowdsourced
data sets (dog, product, weather_sentiment, web). The package does not contain the data.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from peerloss._validation import check_choice
from peerloss.datasets._open_limited import read_array
from peerloss.datasets.tables import read_table
from peerloss.exceptions import InvalidInputError

_CROWDS = ("dog", "product", "weather_sentiment", "web")
_SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class RealNoise:
    """Labels reported by several workers, and gold labels."""

    name: str
    reports: pd.DataFrame
    """Columns ``task``, ``worker``, ``label``, one row per report, as published. In weather_sentiment five
    pairs of task and worker occur twice."""
    gold: pd.Series
    """Gold labels 0..K-1; the index is the task. Twelve tasks of web have none."""
    n_classes: int
    features: pd.DataFrame | None
    """Features of each task in the order of ``gold``: numbers (LabelMe), a column ``text`` (YouTube), or
    ``None``."""
    split: pd.Series | None
    """``"train"``, ``"valid"`` or ``"test"`` for each task, if the source has a split."""
    citation: str


def list_real_noise() -> list[str]:
    """Return the names that :func:`load_real_noise` accepts."""
    return sorted([*_CROWDS, "labelme", "youtube"])


def load_real_noise(name: str, *, data_dir: str | Path | None = None) -> RealNoise:
    """Read a data set with real label noise from a folder.

    Parameters
    ----------
    name
        One of :func:`list_real_noise`.
    data_dir
        The folder ``real_noise`` or one that contains it; ``None`` uses the environment variable
        ``PEERLOSS_DATA``.

    Raises
    ------
    InvalidInputError
        If the name is unknown, the folder does not exist, or its files are inconsistent.
    """
    check_choice(name, "name", tuple(list_real_noise()))
    folder = find_real_noise(name, data_dir)
    try:
        if name == "labelme":
            return _labelme(folder)
        return _youtube(folder) if name == "youtube" else _crowd(folder)
    except InvalidInputError:
        raise
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(
            f"{folder} does not contain the files of {name!r} as published: {type(error).__name__} {error}."
        ) from error


def find_real_noise(name: str, data_dir: str | Path | None) -> Path:
    """Return the folder of a data set."""
    relative = f"crowd/{name}" if name in _CROWDS else name
    root = data_dir or os.environ.get("PEERLOSS_DATA")
    if not root:
        raise InvalidInputError(
            "`data_dir` must be the folder that contains 'real_noise', which is not in the package. Pass "
            "it, or set the environment variable PEERLOSS_DATA."
        )
    for folder in (Path(root, "real_noise", relative), Path(root, relative)):
        if folder.is_dir():
            return folder
    raise InvalidInputError(f"`data_dir` must contain the folder real_noise/{relative}; {root} does not.")


def _crowd(folder: Path) -> RealNoise:
    labels, truth = (read_table(folder / f"{part}.csv").astype(np.int64) for part in ("label", "truth"))
    reports = labels.rename(columns={"item": "task"})[["task", "worker", "label"]]
    citation = f"Crowdsourced labels of {folder.name!r} with gold labels."
    return _checked(folder.name, reports, truth.set_index("item")["truth"], citation)


def _labelme(folder: Path) -> RealNoise:
    answers = np.loadtxt(folder / "answers.txt", dtype=np.int64, ndmin=2)  # training images only
    gold = [np.loadtxt(folder / f"LabelMe_Z_{part}.txt", dtype=np.int64) for part in _SPLITS]
    features = [read_array(folder / f"LabelMe_VGG_avg_{part}.npy") for part in _SPLITS]
    return _checked(
        name="labelme",
        reports=_reports(answers),
        gold=pd.Series(np.concatenate(gold)),
        features=pd.DataFrame(np.concatenate(features)).add_prefix("vgg"),
        split=pd.Series(np.repeat(_SPLITS, [len(part) for part in gold])),
        citation="F. Rodrigues and F. Pereira, Deep learning from crowds, 2017; LabelMe.",
    )


def _youtube(folder: Path) -> RealNoise:
    parts = [json.loads((folder / f"{part}.json").read_text(encoding="utf-8")) for part in _SPLITS]
    rows = [row for part in parts for row in part.values()]
    return _checked(
        name="youtube",
        reports=_reports(np.array([row["weak_labels"] for row in rows], dtype=np.int64)),
        gold=pd.Series([row["label"] for row in rows]),
        features=pd.DataFrame({"text": [str(row["data"]["text"]) for row in rows]}),
        split=pd.Series(np.repeat(_SPLITS, [len(part) for part in parts])),
        citation="YouTube Spam Collection with ten labelling rules; class 1 is spam.",
    )


def _reports(answers: np.ndarray[Any, Any]) -> pd.DataFrame:
    """Return one row per answer of a matrix tasks × workers, in which −1 means no answer."""
    task, worker = np.nonzero(answers >= 0)
    return pd.DataFrame({"task": task, "worker": worker, "label": answers[task, worker]})


def _checked(
    name: str,
    reports: pd.DataFrame,
    gold: pd.Series,
    citation: str,
    features: pd.DataFrame | None = None,
    split: pd.Series | None = None,
) -> RealNoise:
    """Build the record, after checking that its parts are consistent."""
    gold = gold.astype(np.int64).rename("label").rename_axis("task")
    if features is not None and len(features) != len(gold):
        raise InvalidInputError(f"{name}: {len(features)} rows of features for {len(gold)} gold labels.")
    repeated = gold.index[gold.index.duplicated()]
    if len(repeated):
        raise InvalidInputError(f"{name}: task {repeated[0]} has more than one gold label.")
    if min(gold.min(), reports["label"].min()) < 0:
        raise InvalidInputError(f"{name}: labels must be 0, 1, ...; found a negative label.")
    n_classes = int(max(gold.max(), reports["label"].max())) + 1
    return RealNoise(name, reports.reset_index(drop=True), gold, n_classes, features, split, citation)
