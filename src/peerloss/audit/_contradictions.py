"""Rows with the same features and different labels: noise that can be counted without any model.

If the clean class is a function of the features, rows with equal features have one clean class. Of the labels
of such a group at most the largest number of equal ones is right, so at least the others are wrong. And two
rows of a group have different labels only if one of the two is wrong, so the noise rate is at least half of
the probability D that two labels differ. If labels are wrong with probability e, and every wrong label is
equally probable,

    D = 1 − (1 − e)² − e²/(K − 1) = 2e − e²·K/(K − 1),

which is solved for e. If rows with the same features can truly belong to different classes, as in a table
with few distinct rows, contradictions are overlap and not noise, and none of this holds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from scipy.sparse import issparse

from peerloss._pages import counted
from peerloss.posterior.many_classes import wilson_interval

if TYPE_CHECKING:
    from peerloss._validation import FloatArray, IntArray

#: Numbers are equal after rounding to this share of the column's standard deviation.
ROUNDING = 1e-3
#: With fewer numeric columns and no text, rounded rows are equal by chance, and are not compared.
MIN_NUMERIC_COLUMNS = 3
#: Rows listed in ``table``.
MAX_ROWS = 10_000
WORD = re.compile(r"\w+")


@dataclass(frozen=True, eq=False)
class Contradictions:
    """Duplicates and near duplicates with different labels; created by :func:`find_contradictions`."""

    n_rows: int
    """Number of rows that have the same features as another row."""
    n_groups: int
    """Number of groups that they form."""
    n_contradicting: int
    """Number of groups with different labels."""
    min_wrong: int
    """At least this many labels are wrong: in each group all but the most frequent label."""
    least_rate: float | None
    """With 95 % probability the noise rate of duplicated rows is at least this, for any kind of noise;
    ``None`` without duplicates."""
    uniform_rate: float | None
    """The noise rate, if every wrong label is equally probable; ``None`` without duplicates."""
    uniform_rate_interval: tuple[float, float] | None
    """Its 90 % interval."""
    n_near: int
    """Number of groups of near duplicates with different labels, which exact duplicates do not contain: texts
    with the same words, numbers that differ by less than a thousandth of the standard deviation."""
    table: pd.DataFrame = field(repr=False)
    """The rows of contradicting groups, with the caller's index: ``group``, ``given``, ``exact``. Empty after
    :meth:`from_summary`."""

    @classmethod
    def from_summary(cls, values: dict[str, Any]) -> Self:
        """Return what :meth:`summary` describes, without the table of rows."""
        interval = values["uniform_rate_interval"]
        return cls(
            n_rows=int(values["rows"]),
            n_groups=int(values["groups"]),
            n_contradicting=int(values["contradicting_groups"]),
            min_wrong=int(values["min_wrong"]),
            least_rate=values["least_rate"],
            uniform_rate=values["uniform_rate"],
            uniform_rate_interval=None if interval is None else (float(interval[0]), float(interval[1])),
            n_near=int(values["near_duplicates"]),
            table=pd.DataFrame(columns=["group", "given", "exact"]),
        )

    def __str__(self) -> str:
        found = []
        if self.n_contradicting:
            wrong = counted(self.min_wrong, "label is", "labels are")
            found.append(
                f"{self.n_contradicting:,} of {counted(self.n_groups, 'group')} of rows with the same "
                f"features have different labels: at least {wrong} wrong, if the features decide the class."
            )
        if self.n_near:
            found.append(f"Near duplicates with different labels: {counted(self.n_near, 'group')}.")
        return " ".join(found)

    def summary(self) -> dict[str, Any]:
        """Return the results as plain numbers."""
        interval = self.uniform_rate_interval
        return {
            "rows": self.n_rows,
            "groups": self.n_groups,
            "contradicting_groups": self.n_contradicting,
            "min_wrong": self.min_wrong,
            "least_rate": _rounded(self.least_rate),
            "uniform_rate": _rounded(self.uniform_rate),
            "uniform_rate_interval": None if interval is None else [_rounded(end) for end in interval],
            "near_duplicates": self.n_near,
        }


def find_contradictions(X: Any, given: pd.Series, codes: IntArray, n_classes: int) -> Contradictions | None:
    """Find rows with the same features and different labels; ``None`` without comparable features.

    Parameters
    ----------
    X
        Features: a frame, or an array of numbers. Sparse matrices are not compared.
    given, codes, n_classes
        The labels with the caller's index, their codes 0..K-1, and the number of classes.
    """
    if X is None or issparse(X):
        return None
    table = X if isinstance(X, pd.DataFrame) else pd.DataFrame(np.asarray(X))
    if not table.shape[1]:
        return None
    exact = group_equal_rows(table)
    near = group_equal_rows(normalised(table)) if _is_comparable(table) else np.full(len(table), -1)
    counts = _label_counts(exact, codes, n_classes)
    sizes = counts.sum(axis=1)
    shares = _disagreement(counts)
    contradicts = counts.max(axis=1, initial=0) < sizes
    in_exact = exact >= 0
    in_exact[in_exact] = contradicts[exact[in_exact]]
    near_counts = _label_counts(near, codes, n_classes)
    near_contradicts = near_counts.max(axis=1, initial=0) < near_counts.sum(axis=1)
    # Groups of near duplicates that contradict anyway contain exact ones and are not counted again.
    near_contradicts[np.unique(near[in_exact & (near >= 0)])] = False
    in_near = near >= 0
    in_near[in_near] = near_contradicts[near[in_near]]
    listed = pd.concat(
        [
            pd.DataFrame({"group": exact[in_exact], "given": given[in_exact], "exact": True}),
            pd.DataFrame({"group": near[in_near] + len(counts), "given": given[in_near], "exact": False}),
        ]
    )
    listed["group"] = pd.factorize(listed["group"], sort=True)[0]
    return Contradictions(
        n_rows=int(sizes.sum()),
        n_groups=len(counts),
        n_contradicting=int(contradicts.sum()),
        min_wrong=int((sizes - counts.max(axis=1, initial=0)).sum()),
        least_rate=None if shares is None else shares[1] / 2.0,
        uniform_rate=None if shares is None else uniform_rate(shares[0], n_classes),
        uniform_rate_interval=(
            None
            if shares is None
            else (uniform_rate(shares[1], n_classes), uniform_rate(shares[2], n_classes))
        ),
        n_near=int(near_contradicts.sum()),
        table=listed.sort_values("group", kind="stable").head(MAX_ROWS),
    )


def uniform_rate(disagreement: float, n_classes: int) -> float:
    """Return e with 2e − e²·K/(K − 1) = D, at most (K − 1)/K, where labels say nothing.

    ``disagreement`` is D, the probability that two labels of one clean class differ.
    """
    largest = (n_classes - 1) / n_classes
    return float(largest * (1.0 - np.sqrt(max(1.0 - disagreement / largest, 0.0))))


def group_equal_rows(table: pd.DataFrame) -> IntArray:
    """Return the group of each row among the rows that equal another one, from 0; −1 for single rows.

    Columns are compared one after the other, and rows that differ from all others are left out, so that
    continuous features take little time. Missing values are equal to each other.
    """
    rows = np.arange(len(table))
    group = np.zeros(len(table), dtype=np.int64)
    for place in range(table.shape[1]):
        code = _distinct(table.iloc[rows, place])[0]
        group = pd.factorize(group * (code.max(initial=0) + 1) + code)[0]
        several = np.bincount(group)[group] > 1 if len(group) else np.zeros(0, dtype=bool)
        rows, group = rows[several], group[several]
        if not len(rows):
            break
    found = np.full(len(table), -1, dtype=np.int64)
    found[rows] = pd.factorize(group)[0]
    return found


def normalised(table: pd.DataFrame) -> pd.DataFrame:
    """Return texts as their words in lower case, and numbers rounded to a thousandth of their spread."""
    return pd.DataFrame({place: _normalise(table.iloc[:, place]) for place in range(table.shape[1])})


def _normalise(column: pd.Series) -> pd.Series:
    if pd.api.types.is_bool_dtype(column) or column.dtype.kind in "mM":
        return column
    if pd.api.types.is_numeric_dtype(column):
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
        finite = values[np.isfinite(values)]
        step = ROUNDING * float(finite.std()) if len(finite) else 0.0
        return pd.Series(np.round(values / step) if step > 0 else values, index=column.index)
    code, values = _distinct(column)
    words = np.array([_words(value) for value in values], dtype=object)
    return pd.Series(words[code], index=column.index)


def _distinct(column: pd.Series) -> tuple[IntArray, Any]:
    """Return the code of each value, missing ones included, and the distinct values."""
    try:
        return pd.factorize(column, use_na_sentinel=False)
    except TypeError:  # lists and other values that cannot be hashed
        return pd.factorize(column.map(_hashable), use_na_sentinel=False)


def _words(value: Any) -> Any:
    return " ".join(WORD.findall(value.casefold())) if isinstance(value, str) else value


def _hashable(value: Any) -> Any:
    """Return lists and other values that cannot be compared by hash as text."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _is_comparable(table: pd.DataFrame) -> bool:
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    return not all(numeric) or len(numeric) >= MIN_NUMERIC_COLUMNS


def _label_counts(group: IntArray, codes: IntArray, n_classes: int) -> FloatArray:
    """Return how often each group has each label, shape (groups, K)."""
    grouped = group >= 0
    counts = np.zeros((int(group.max(initial=-1)) + 1, n_classes))
    np.add.at(counts, (group[grouped], codes[grouped]), 1.0)
    return counts


def _disagreement(counts: FloatArray) -> tuple[float, float, float] | None:
    """Return the probability that two labels of a group differ, and the ends of its 90 % interval.

    A group of m rows has the weight m − 1, and groups are independent of each other.
    """
    size = counts.sum(axis=1)
    if not len(size):
        return None
    differ = 1.0 - (counts * (counts - 1.0)).sum(axis=1) / (size * (size - 1.0))
    weight = (size - 1.0) / (size - 1.0).sum()
    mean = float(weight @ differ)
    variance = float(weight**2 @ (differ - mean) ** 2)
    # As many pairs as would have this variance, but not more than groups are heavy.
    pairs = min(1.0 / float(weight @ weight), mean * (1.0 - mean) / variance if variance > 0 else np.inf)
    low, high = wilson_interval(np.array(mean), np.array(pairs))
    return mean, float(low), float(high)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(float(value), 6)
