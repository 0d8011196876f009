"""Planted errors: files with known wrong labels, audited from the table alone.

``python benchmarks/planted_errors.py --seeds 3 --output FILE`` audits tables of several kinds in which some
labels were replaced by another class, and compares the result with the errors that were planted. Nothing is
chosen with clean labels. ``--cases`` selects tables; the one of 30,000 rows takes minutes. YouTube comments
are read from the folder in PEERLOSS_DATA and left out if it is not set.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from measure import provenance, publish
from sklearn.datasets import load_digits, make_classification
from sklearn.metrics import roc_auc_score

from peerloss import find_label_issues
from peerloss.datasets import load_real_noise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Words of four kinds of messages to a shop, and words that occur in all of them.
TOPICS = {
    "delivery": "delivery parcel courier late tracking address shipped arrived driver doorstep",
    "payment": "refund card charged invoice payment price bank paid voucher receipt",
    "device": "screen battery crash update broken restart button sound charger camera",
    "account": "account password login email locked reset profile username code settings",
}
COMMON = (
    "the a my i it was is and please can you have not with for this that again today very really after "
    "before still when order product service customer thanks help"
)
#: Shares of the words of a message that belong to its topic, and to any topic.
OWN_WORDS, OTHER_WORDS = 0.18, 0.06


@dataclass(frozen=True)
class Case:
    """A kind of table: how it is made, the share of planted errors, and the least AUROC that is wanted."""

    make: Callable[[int], tuple[pd.DataFrame, np.ndarray]]
    """Seed → features and clean labels."""
    share: float
    wanted: float | None
    what: str


def digits(seed: int) -> tuple[pd.DataFrame, np.ndarray]:  # noqa: ARG001 - the errors depend on the seed
    """Return handwritten digits as 64 numbers."""
    found = load_digits(as_frame=True)
    return found.data, found.target.to_numpy().astype(str)


def imbalanced(seed: int, rows: int = 3000) -> tuple[pd.DataFrame, np.ndarray]:
    """Return two classes, one of them with 5 % of the rows, that overlap a little."""
    X, y = make_classification(
        rows, 10, n_informative=6, weights=[0.95], class_sep=1.0, flip_y=0.0, random_state=seed
    )
    return pd.DataFrame(X).add_prefix("x"), np.array(["usual", "rare"])[y]


def large(seed: int, rows: int = 30_000) -> tuple[pd.DataFrame, np.ndarray]:
    """Return numbers with gaps and two columns of categories; three classes."""
    rng = np.random.default_rng(seed)
    X, y = make_classification(
        rows, 12, n_informative=8, n_classes=3, class_sep=2.0, flip_y=0.0, random_state=seed
    )
    X[rng.random(X.shape) < 0.03] = np.nan
    region = np.where(rng.random(rows) < 0.4, y, rng.integers(3, size=rows))
    table = pd.DataFrame(X).add_prefix("x").assign(region=np.array(["north", "south", "west"])[region])
    return table.assign(shop=rng.choice([f"shop {i}" for i in range(50)], rows)), np.array(list("abc"))[y]


def sentences(seed: int, rows: int = 2000) -> tuple[pd.DataFrame, np.ndarray]:
    """Return messages of 8 to 15 words about four topics."""
    rng = np.random.default_rng(seed)
    names, words = list(TOPICS), {name: text.split() for name, text in TOPICS.items()}
    common, every = COMMON.split(), " ".join(TOPICS.values()).split()

    def word(topic: str) -> str:
        kind = rng.random()
        pool = words[topic] if kind < OWN_WORDS else every if kind < OWN_WORDS + OTHER_WORDS else common
        return str(rng.choice(pool))

    labels = rng.choice(names, rows)
    texts = [" ".join(word(topic) for _ in range(rng.integers(8, 16))) for topic in labels]
    return pd.DataFrame({"message": texts}), labels


def comments(seed: int) -> tuple[pd.DataFrame, np.ndarray]:  # noqa: ARG001 - the errors depend on the seed
    """Return the YouTube comments with their clean labels."""
    found = load_real_noise("youtube")
    assert found.features is not None  # noqa: S101 - for mypy
    return found.features, found.gold.to_numpy().astype(str)


CASES = {
    "digits": Case(digits, 0.1, 0.99, "1,797 digits, 64 numbers, 10 classes"),
    "imbalanced": Case(imbalanced, 0.05, 0.88, "3,000 rows, 10 numbers, classes of 95 and 5 %"),
    "sentences": Case(sentences, 0.1, 0.91, "2,000 messages, one column of text, 4 classes"),
    "large": Case(large, 0.1, 0.98, "30,000 rows, numbers with gaps and categories, 3 classes"),
    "comments": Case(comments, 0.1, None, "YouTube comments, one column of text, 2 classes"),
}


def plant(clean: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Replace a share of the labels by another class, drawn at random."""
    rng = np.random.default_rng(seed + 1)
    classes, codes = np.unique(clean, return_inverse=True)
    other = (codes + rng.integers(1, len(classes), len(codes))) % len(classes)
    return classes[np.where(rng.random(len(codes)) < share, other, codes)]


def audit_case(name: str, seed: int) -> dict[str, Any]:
    """Return the results of one audit."""
    case = CASES[name]
    X, clean = case.make(seed)
    noisy = plant(clean, case.share, seed)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = find_label_issues(X, pd.Series(noisy, index=X.index), random_state=seed)
    wrong, table = noisy != clean, found.table
    flagged = table["flagged"].to_numpy()
    hits = flagged & wrong
    low, high = found.expected_errors_interval or (np.nan, np.nan)
    return {
        "case": name,
        "seed": seed,
        "auroc": roc_auc_score(wrong, table["p_error"]),
        "precision": hits.sum() / max(1, flagged.sum()),
        "recall": hits.sum() / wrong.sum(),
        "suggestions": (table["suggested"].to_numpy() == clean)[hits].mean(),
        "errors": int(wrong.sum()),
        "expected": found.expected_errors,
        "low": low,
        "high": high,
        "seconds": time.perf_counter() - start,
    }


def report(lines: pd.DataFrame) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"Seeds {lines['seed'].min()} to {lines['seed'].max()}; {provenance('cpu')}.\n"
    yield (
        "| table | AUROC | wanted | precision | recall | suggestions right | planted | expected | ratio | "
        "90 % interval holds | seconds |"
    )
    yield "|---" * 11 + "|"
    for name, part in lines.groupby("case", sort=False):
        mean, case = part.mean(numeric_only=True), CASES[str(name)]
        holds = ((part["low"] <= part["errors"]) & (part["errors"] <= part["high"])).sum()
        cells = [case.what, f"{mean['auroc']:.3f}", "" if case.wanted is None else f"{case.wanted:.2f}"]
        cells += [f"{mean[column]:.3f}" for column in ("precision", "recall", "suggestions")]
        cells += [f"{mean['errors']:,.0f}", f"{mean['expected']:,.0f}"]
        ratio = part["expected"] / part["errors"]
        cells += [
            f"{ratio.min():.2f} to {ratio.max():.2f}",
            f"{holds} of {len(part)}",
            f"{mean['seconds']:.0f}",
        ]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--seeds", type=int, default=3, help="number of audits of each table")
    parser.add_argument("--output", type=Path, help="file for the table; by default it is printed")
    options = parser.parse_args()
    names = [name for name in options.cases if name != "comments" or os.environ.get("PEERLOSS_DATA")]
    lines = pd.DataFrame([audit_case(name, seed) for name in names for seed in range(options.seeds)])
    publish("\n".join(report(lines)) + "\n", options.output)
    if options.output:
        lines.to_csv(options.output.with_suffix(".csv"), index=False)


if __name__ == "__main__":
    main()
