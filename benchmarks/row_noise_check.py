"""How often ``check_row_noise`` refuses class-conditional noise, if it holds and if it does not.

Run ``python benchmarks/row_noise_check.py FOLDER [--parts made development] [--seeds 5] [--runs RUNS.jsonl]
[--output TABLE.md]``. FOLDER has the tables of ``accuracy_tables.py``; ``PEERLOSS_DATA`` has the real crowds.
Finished cells are stored in RUNS and skipped in later runs.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pandas as pd
from accuracy_tables import make_noise, read_table
from measure import provenance, publish
from sklearn.decomposition import TruncatedSVD
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import NearestNeighbors

from peerloss import NoiseModel, flip_labels
from peerloss.datasets.real_noise import load_real_noise
from peerloss.estimators import TableEncoder
from peerloss.noise import InstanceNoise
from peerloss.posterior import check_row_noise

if TYPE_CHECKING:
    from collections.abc import Iterator

    Array = np.ndarray[Any, Any]

DEVELOPMENT = (
    *("bupa", "chess", "crx", "led7digit", "marketing", "mushroom", "segment", "vowel", "breast_cancer"),
    *("paper: twonorm", "paper: image", "paper: heart", "paper: german", "paper: splice"),
)
CLOSED = ("letter", "contraceptive", "saheart", "digits")
#: Noise for which the hypothesis holds: in all rows of a class the labels have the same distribution.
BY_CLASS = ("none", "uniform .3", "pair .3", "asymmetric", "unequal annotators")
BY_ROW = ("boundary", "region", "features")
#: Kinds of made data: number of classes and distance of their means.
MADE = {"2 classes, overlap": (2, 0.6), "2 classes, separate": (2, 1.2), "4 classes": (4, 1.2)}
MADE_ROWS, TABLE_ROWS = (500, 2000, 10_000), 10_000
#: What the test sees: two labels and the features; two labels and out-of-fold probabilities, as in an audit;
#: or one label, with the label of the nearest neighbour in place of a second one.
SOURCES = ("features", "probabilities", "neighbours")
PARTS = ("made", "development", "closed", "crowds")
HEADER = """# Does the noise depend on the row? Size and power of the test

Measured with `benchmarks/row_noise_check.py`: {versions}; {seeds} seeds per cell (tables and 10,000
rows: {few}).
`check_row_noise` tests class-conditional noise from two labels per row; no clean label takes part.

**Data.** *made*: normal distributions in six dimensions around random means. *development*:
{development}, with their clean labels and at most {rows:,} rows. *closed*: {closed}, which
took no part in the design of the test.

**Noise.** Two labels per row are drawn independently. *class-conditional*: none; uniform .3; pair .3 (each
class to the next); asymmetric (another rate for each class); three labels per row by ten annotators with
rates from 0 to .4. *boundary*: .2 on average, decreasing with the distance from the boundary. *region*: .4 in
the half of each class with the larger first principal component, else .1. *features*: rates do not depend on
the features, but the wrong class does (`InstanceNoise.from_features`); for two classes this is
class-conditional noise, and counted there.

**Columns.** Share of the runs in which class-conditional noise is refused at the level .05 and at .01
(`refused`), and the number of runs. For class-conditional noise it should be at most the level.

{table}

*probabilities*: the same test with the out-of-fold probabilities of a forest in place of the features, as in
an audit. *neighbours*: **one** label per row, and that of the nearest other row in place of the second. It
refuses clean labels of classes that overlap, so it is not a test of the noise, and it is not in the library.
Development tables, without *pair* and *unequal annotators*:

{sources}

Real crowds: LabelMe (images, 59 annotators) and YouTube comments (ten keyword rules). Which rules label a
comment depends on its words, so the assumption of the test does not hold there. For LabelMe it is not known
how images were assigned.

{crowds}
"""


def made_data(name: str, rows: int, seed: int) -> tuple[Array, Array, Array]:
    """Return features, clean labels and log-probabilities of the classes."""
    k, distance = MADE[name]
    rng = np.random.default_rng(seed)
    means = distance * np.random.default_rng(5).normal(size=(k, 6))
    y = rng.integers(k, size=rows)
    X = rng.normal(size=(rows, 6)) + means[y]
    return X, y, -((X[:, None, :] - means) ** 2).sum(axis=2) / 2.0


def table_data(name: str, folder: Path, seed: int) -> tuple[Array, Array]:
    """Return encoded features and clean labels of at most ``TABLE_ROWS`` random rows."""
    frame, y = read_table(name, folder)
    rows = np.random.default_rng(seed).permutation(len(y))[:TABLE_ROWS]
    encoded = TableEncoder().fit(frame).transform(frame.iloc[rows])
    return np.nan_to_num(np.asarray(encoded, dtype=float)), y[rows]


def draw_reports(kind: str, X: Array, y: Array, seed: int, scores: Array | None) -> Array:
    """Return two labels per row, or three for annotators of unequal quality."""
    k = int(y.max()) + 1
    if kind == "unequal annotators":
        rng = np.random.default_rng(seed)
        models = [NoiseModel.uniform(k, rate) for rate in np.linspace(0.0, 0.4, 10)]
        drawn = np.stack([flip_labels(y, model, random_state=seed + i) for i, model in enumerate(models)])
        chosen = rng.permuted(np.tile(np.arange(10), (len(y), 1)), axis=1)[:, :3]
        return np.asarray(np.take_along_axis(drawn.T, chosen, axis=1))
    noise: NoiseModel | InstanceNoise
    if kind == "region":
        centred = X - X.mean(axis=0)
        first = centred @ np.linalg.svd(centred / np.maximum(X.std(axis=0), 1e-9), full_matrices=False)[2][0]
        middle = np.array([np.median(first[y == label]) for label in range(k)])
        rates = np.where(first > middle[y], 0.4, 0.1)
        table = np.where(np.eye(k, dtype=bool)[y], 1.0 - rates[:, None], rates[:, None] / (k - 1))
        noise = InstanceNoise(table, y)
    elif kind == "boundary" and scores is not None:
        noise = InstanceNoise.from_margins(y, scores, rate=0.2, temperature=2.0)
    else:
        noise = make_noise(kind, X, y, seed)
    return np.stack([flip_labels(y, noise, random_state=seed + i) for i in range(2)], axis=1)


def neighbour_pairs(X: Array, labels: Array) -> tuple[Array, Array]:
    """Return features and both labels of disjoint pairs of rows that are nearest to each other."""
    standard = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-9)
    nearest = NearestNeighbors(n_neighbors=2).fit(standard).kneighbors(return_distance=False)[:, 0]
    first = np.flatnonzero((nearest[nearest] == np.arange(len(X))) & (np.arange(len(X)) < nearest))
    return X[first], np.stack([labels[first], labels[nearest[first]]], axis=1)


def p_value(source: str, X: Array, reports: Array, k: int, seed: int) -> float:
    """Return the p-value of the test, NaN if there are too few rows."""
    if source == "neighbours":
        X, reports = neighbour_pairs(X, reports[:, 0])
    elif source == "probabilities":
        forest = RandomForestClassifier(100, min_samples_leaf=5, random_state=seed)
        X = cross_val_predict(forest, X, reports[:, 0], method="predict_proba")
    if len(X) < 100:
        return float("nan")
    return check_row_noise(X, reports, n_classes=k, random_state=seed).p_value


def cells(
    parts: list[str], folder: Path, seeds: int
) -> Iterator[tuple[dict[str, Any], tuple[Array, Array, Array | None]]]:
    """Yield the description and the data of each cell, without the noise."""
    if "made" in parts:
        for rows, name in product(MADE_ROWS, MADE):
            for seed in range(seeds if rows < 10_000 else few(seeds)):
                where = {"part": "made", "data": name, "rows": rows, "classes": MADE[name][0], "seed": seed}
                yield where, made_data(name, rows, seed)
    for part, names in (("development", DEVELOPMENT), ("closed", CLOSED)):
        for name in names if part in parts else ():
            for seed in range(few(seeds)):
                X, y = table_data(name, folder, seed)
                where = {
                    "part": part,
                    "data": name,
                    "rows": len(y),
                    "classes": int(y.max()) + 1,
                    "seed": seed,
                }
                yield where, (X, y, None)


def few(seeds: int) -> int:
    """Return the number of seeds of large cells and of tables."""
    return max(1, seeds // 4)


def run_cells(options: argparse.Namespace, records: list[dict[str, Any]], here: str) -> None:
    """Execute the missing cells."""
    cells_done = (r for r in records if r["part"] != "crowds")
    done = {(r["data"], r["rows"], r["seed"], r["noise"], r["source"]) for r in cells_done}
    for where, (X, y, scores) in cells(options.parts, options.folder, options.seeds):
        for kind, source in product((*BY_CLASS, *BY_ROW), options.sources):
            key = (where["data"], where["rows"], where["seed"], kind, source)
            if key in done or (source != "features" and kind in ("unequal annotators", "pair .3")):
                continue
            seed = crc32(f"{where['data']} {kind} {where['seed']}".encode())
            reports = draw_reports(kind, X, y, seed, scores)
            started = time.perf_counter()
            p = p_value(source, X, reports, where["classes"], where["seed"])
            record = where | {"noise": kind, "source": source, "p": p, "provenance": here}
            store(record | {"seconds": round(time.perf_counter() - started, 2)}, records, options.runs)


def run_crowds(options: argparse.Namespace, records: list[dict[str, Any]], here: str) -> None:
    """Test the crowds that have features."""
    for name in ("labelme", "youtube"):
        if any(r["data"] == name for r in records):
            continue
        crowd = load_real_noise(name)
        assert crowd.features is not None  # noqa: S101 (these two have features)
        table = crowd.reports.pivot_table(index="task", columns="worker", values="label", aggfunc="first")
        X = crowd.features.loc[table.index]
        if name == "youtube":
            words = TfidfVectorizer(min_df=3).fit_transform(X["text"])
            X = TruncatedSVD(50, random_state=0).fit_transform(words)
        found = check_row_noise(
            np.asarray(X, dtype=float), table.fillna(-1).to_numpy(), n_classes=crowd.n_classes, random_state=0
        )
        record = {
            "part": "crowds",
            "data": name,
            "rows": found.n_rows,
            "p": found.p_value,
            "provenance": here,
        }
        store(record | {"disagreement": found.disagreement}, records, options.runs)


def store(record: dict[str, Any], records: list[dict[str, Any]], path: Path | None) -> None:
    """Keep a record, also in the file."""
    records.append(record)
    if path is not None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")


def refusals(frame: pd.DataFrame) -> str:
    """Return the shares of runs that refuse, at two levels, and the number of runs."""
    p = frame["p"].dropna()
    return f"{(p < 0.05).mean():.2f}, {(p < 0.01).mean():.2f} ({len(p)})" if len(p) else ""


def make_tables(records: list[dict[str, Any]]) -> dict[str, str]:
    """Return the Markdown tables."""
    frame = pd.DataFrame([r for r in records if r["part"] != "crowds"])
    by_class = frame["noise"].isin(BY_CLASS) | ((frame["noise"] == "features") & (frame["classes"] == 2))
    frame["kind"] = np.where(by_class, "class-conditional", frame["noise"])
    kinds = [kind for kind in ("class-conditional", *BY_ROW) if (frame["kind"] == kind).any()]
    with_features = frame[frame["source"] == "features"]
    lines = [f"| data | rows | {' | '.join(kinds)} |", "|" + "---|" * (2 + len(kinds))]
    for part in ("made", "development", "closed"):
        here = with_features[with_features["part"] == part]
        size = here["rows"] if part == "made" else np.where(here["rows"] < 1500, "150 to 1,500", "over 1,500")
        for (data, rows), group in here.assign(
            size=size, name=here["data"] if part == "made" else f"{part} tables"
        ).groupby(["name", "size"], sort=True):
            shown = f"{rows:,}" if part == "made" else rows
            found = [refusals(group[group["kind"] == kind]) for kind in kinds]
            lines.append(f"| {data} | {shown} | {' | '.join(found)} |")
    for kind in (*BY_CLASS, *BY_ROW):
        group = with_features[with_features["noise"] == kind]
        if kind in BY_CLASS:
            lines.append(f"| all: {kind} | | {refusals(group)} |{' |' * (len(kinds) - 1)}")
    others = [source for source in SOURCES if (frame["source"] == source).any()]
    compared = [f"| test with | {' | '.join(('none', *kinds))} |", "|" + "---|" * (2 + len(kinds))]
    both = frame[frame["part"] == "development"]
    both = both[~both["noise"].isin(("unequal annotators", "pair .3"))]
    for source in others:
        group = both[both["source"] == source]
        found = [
            refusals(group[group["noise"] == "none"]),
            *(refusals(group[group["kind"] == k]) for k in kinds),
        ]
        compared.append(f"| {source} | {' | '.join(found)} |")
    crowds = [r for r in records if r["part"] == "crowds"]
    real = ["| crowd | rows with two labels | pairs that differ | p-value |", "|---|---|---|---|"]
    real += [f"| {r['data']} | {r['rows']:,} | {r['disagreement']:.2f} | {r['p']:.2g} |" for r in crowds]
    tables = {"table": lines, "sources": compared, "crowds": real if crowds else []}
    return {name: "\n".join(rows) for name, rows in tables.items()}


def main() -> None:
    """Run what is missing and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--sources", nargs="+", default=["features"], choices=SOURCES)
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    text = options.runs.read_text(encoding="utf-8") if options.runs and options.runs.exists() else ""
    records = [json.loads(line) for line in text.splitlines()]
    here = provenance("cpu")
    run_cells(options, records, here)
    if "crowds" in options.parts:
        run_crowds(options, records, here)
    page = HEADER.format(
        versions="; ".join(dict.fromkeys(r["provenance"] for r in records)),
        seeds=options.seeds,
        few=few(options.seeds),
        development=", ".join(DEVELOPMENT),
        closed=", ".join(CLOSED),
        rows=TABLE_ROWS,
        **make_tables(records),
    )
    publish(page, options.output)


if __name__ == "__main__":
    main()
