"""Why rows are suspect: class probabilities, similar rows with their labels, and unusual values.

Similar rows have the smallest Euclidean distance. Numbers and categories are encoded and standardised by
:class:`~peerloss.estimators.TableEncoder`. Free text is a row of a TF-IDF matrix of length 1, so that its
distance orders rows as the cosine does. Both parts have the same weight. Distances are computed in blocks. If
there are too many pairs of suspects and rows, the rows are a random sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from peerloss.audit._unusual_values import UnusualValue, find_unusual
from peerloss.estimators import TableEncoder
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import BoolArray, FloatArray, IntArray
    from peerloss.audit._label_audit import LabelAudit

#: Suspects that are explained, most probable errors first.
MAX_EXPLAINED = 5_000
#: Similar rows of any class, and of the given and of the suggested class.
N_NEAREST, N_EXAMPLES = 3, 2
#: Largest number of pairs of suspects and rows whose distance is computed; above it, rows are sampled.
MAX_PAIRS = 150_000_000
#: Rows of each class that are always in such a sample.
MIN_PER_CLASS = 50
#: Distances in memory at once.
BLOCK = 4_000_000
MAX_WORDS = 20_000


@dataclass(frozen=True, eq=False)
class Explanation:
    """Why a row is suspect; created by :meth:`LabelAudit.explain`."""

    row: Any
    """The row's entry in the index of the table."""
    given: Any
    suggested: Any
    p_error: float
    probabilities: pd.Series
    """Class → probability that it is the clean one, largest first."""
    nearest: pd.DataFrame
    """The three most similar rows, by their entry in the index: ``label``, ``flagged``, ``distance``. Empty
    without features."""
    given_examples: pd.DataFrame
    suggested_examples: pd.DataFrame
    """The two most similar rows with the given and with the suggested label, not flagged if possible."""
    unusual: list[UnusualValue]
    """Values that are unusual for the given label, most unusual first."""

    def __str__(self) -> str:
        classes = ", ".join(f"{name} {p:.0%}" for name, p in self.probabilities.head(3).items())
        headline = (
            f"Row {self.row}: labelled {self.given}, suggested {self.suggested}; wrong with probability "
            f"{self.p_error:.2f}."
        )
        lines = [headline, f"Probabilities: {classes}."]
        if len(self.nearest):
            labels = ", ".join(f"{name} ({label})" for name, label in self.nearest["label"].items())
            lines.append(f"Most similar rows: {labels}.")
        lines += [f"{value}." for value in self.unusual]
        return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Explanations:
    """Explanations of the first suspects of an audit, in the order of their rank; rows are positions."""

    suspects: IntArray
    """(m,) positions of the suspects."""
    probabilities: FloatArray
    """(m, K) P(clean = k | features, label)."""
    nearest: IntArray
    """(m, 3) positions of the most similar rows, −1 for none."""
    distances: FloatArray
    """(m, 3) their distances."""
    given_examples: IntArray
    suggested_examples: IntArray
    """(m, 2) positions of the most similar rows with the given and with the suggested label."""
    unusual: list[list[UnusualValue]]


def explain_suspects(audit: LabelAudit) -> Explanations:
    """Explain the first :data:`MAX_EXPLAINED` suspects of an audit."""
    flagged = audit.table["flagged"].to_numpy()
    suspects = np.flatnonzero(flagged)
    suspects = suspects[np.argsort(audit.table["rank"].to_numpy()[suspects])][:MAX_EXPLAINED]
    names = pd.Index(audit.classes)
    codes = names.get_indexer(pd.Index(audit.table["given"]))
    suggested = names.get_indexer(pd.Index(audit.table["suggested"]))[suspects]
    features = None if audit.X is None or not len(suspects) else comparable_features(audit.X)
    size = len(suspects)
    found = Explanations(
        suspects=suspects,
        probabilities=_probabilities(audit, suspects, codes[suspects], suggested),
        nearest=np.full((size, N_NEAREST), -1),
        distances=np.full((size, N_NEAREST), np.nan),
        given_examples=np.full((size, N_EXAMPLES), -1),
        suggested_examples=np.full((size, N_EXAMPLES), -1),
        unusual=find_unusual(
            audit.X if audit.shown is None else audit.shown, codes, suspects, suggested, audit.classes
        ),
    )
    if features is not None:
        _fill_in_nearest(found, features, codes, suggested, flagged)
    return found


def _probabilities(audit: LabelAudit, suspects: IntArray, given: IntArray, suggested: IntArray) -> FloatArray:
    """Return the probabilities of the classes, (m, K).

    Rows whose stored probabilities are not those of the table, as after an edit of the table, get the
    probabilities of the given and of the suggested label; the other classes share the rest.
    """
    size, n_classes = len(suspects), len(audit.classes)
    rows = np.arange(size)
    table = audit.table.iloc[suspects]
    p_given, p_suggested = 1.0 - table["p_error"].to_numpy(), table["p_suggested"].to_numpy()
    rest = np.maximum(1.0 - p_given - p_suggested, 0.0) / max(n_classes - 2, 1)
    found = np.repeat(rest[:, None], n_classes, axis=1)
    found[rows, suggested] = p_suggested
    found[rows, given] = p_given
    stored = audit.suspect_proba
    if stored.shape == found.shape:
        is_current = np.isclose(stored[rows, given], p_given, atol=1e-6)
        is_current &= np.isclose(stored[rows, suggested], p_suggested, atol=1e-6)
        found = np.where(is_current[:, None], stored, found)
    return found


def comparable_features(X: Any) -> Any:
    """Return a dense or sparse matrix whose Euclidean distances compare rows; ``None`` if nothing is useful.

    The mean squared length of a row is 1 for numbers and categories together, and for each column of free
    text.
    """
    if sparse.issparse(X):
        matrix: Any = X
        return normalize(matrix.tocsr().astype(np.float32))
    if not isinstance(X, pd.DataFrame):
        array = np.asarray(X)
        if array.dtype.kind in "biuf":
            return _scaled(array)
        X = pd.DataFrame(array)
    try:
        return _of_table(X)
    except (InvalidInputError, TypeError, ValueError):
        # No useful column, or values that no model can read: with probabilities they can be audited.
        return None


def _of_table(table: pd.DataFrame) -> Any:
    encoder = TableEncoder(output="table").fit(table)
    used = encoder.transform(table)
    texts = [_word_frequencies(used[name].fillna("")) for name in encoder.free_text_]
    rest = used.drop(columns=encoder.free_text_)
    parts = [text for text in texts if text is not None]
    if rest.shape[1]:
        dense = _scaled(TableEncoder().fit_transform(rest))
        if not parts:
            return dense
        parts.append(sparse.csr_matrix(dense))
    return sparse.hstack(parts, format="csr", dtype=np.float32) if parts else None


def _scaled(numbers: NDArray[Any]) -> NDArray[np.float32]:
    """Standardise columns, replace missing values by the mean, and divide by √(number of columns)."""
    with np.errstate(all="ignore"):
        table = np.where(np.isfinite(numbers), numbers, np.nan).astype(np.float64)
        known = np.isfinite(table)
        count = np.maximum(known.sum(axis=0), 1)
        mean = np.where(known, table, 0.0).sum(axis=0) / count
        table = np.where(known, table - mean, 0.0)
        spread = np.sqrt((table**2).sum(axis=0) / count)
    table /= np.where(spread > 0.0, spread, 1.0) * np.sqrt(max(table.shape[1], 1))
    return table.astype(np.float32)


def _word_frequencies(text: pd.Series) -> Any:
    """Return the TF-IDF matrix of a column, rows of length 1, or ``None`` if it has no words."""
    words = TfidfVectorizer(max_features=MAX_WORDS, sublinear_tf=True, dtype=np.float32)
    try:
        return words.fit_transform(text)
    except ValueError:  # no word of two letters
        return None


def _fill_in_nearest(
    found: Explanations, features: Any, codes: IntArray, suggested: IntArray, flagged: BoolArray
) -> None:
    rows = _compared_rows(codes, len(found.suspects))
    compared, labels, is_flagged = features[rows], codes[rows], flagged[rows]
    lengths = _squared_lengths(features)
    step = max(1, BLOCK // len(rows))
    for start in range(0, len(found.suspects), step):
        part = slice(start, start + step)
        own = found.suspects[part]
        product = features[own] @ compared.T
        if sparse.issparse(features):
            product = product.toarray()
        squared = lengths[own][:, None] + lengths[rows] - 2.0 * product
        squared[own[:, None] == rows] = np.inf
        found.nearest[part], found.distances[part] = _smallest(squared, rows, N_NEAREST)
        for target, examples in (
            (codes[own], found.given_examples),
            (suggested[part], found.suggested_examples),
        ):
            # Flagged rows come after all others, because their labels may be wrong.
            allowed = np.where(labels == target[:, None], squared + 1e6 * is_flagged, np.inf)
            examples[part] = _smallest(allowed, rows, N_EXAMPLES)[0]


def _smallest(squared: NDArray[Any], rows: IntArray, number: int) -> tuple[IntArray, FloatArray]:
    """Return the rows with the smallest squared distances and these distances; −1 and NaN for none."""
    number_found = min(number, squared.shape[1])
    places = np.argpartition(squared, number_found - 1, axis=1)[:, :number_found]
    values = np.take_along_axis(squared, places, axis=1).astype(np.float64)
    order = np.lexsort((rows[places], values), axis=1)
    values, places = np.take_along_axis(values, order, axis=1), np.take_along_axis(places, order, axis=1)
    exists = np.isfinite(values)
    nearest = np.full((len(squared), number), -1)
    distances = np.full((len(squared), number), np.nan)
    nearest[:, :number_found] = np.where(exists, rows[places], -1)
    distances[:, :number_found] = np.sqrt(np.where(exists, np.maximum(values, 0.0), np.nan))
    return nearest, distances


def _squared_lengths(features: Any) -> NDArray[Any]:
    squares = features.multiply(features) if sparse.issparse(features) else features**2  # type: ignore[attr-defined]
    return np.asarray(squares.sum(axis=1)).ravel()


def _compared_rows(codes: IntArray, n_suspects: int) -> IntArray:
    """Return the rows to compare with: all, or a sample that has rows of every class."""
    size = max(MAX_PAIRS // max(n_suspects, 1), 1)
    if len(codes) <= size:
        return np.arange(len(codes))
    shuffled = np.random.default_rng(0).permutation(len(codes))
    place_in_class = pd.Series(codes[shuffled]).groupby(codes[shuffled]).cumcount().to_numpy()
    chosen = np.concatenate([shuffled[:size], shuffled[place_in_class < MIN_PER_CLASS]])
    return np.unique(chosen)


def explain_row(audit: LabelAudit, row: Any) -> Explanation:
    """Return the explanation of the suspect with the index entry ``row``."""
    found, table = audit.explanations, audit.table
    try:
        places = np.atleast_1d(np.arange(len(table))[table.index.get_loc(row)])
    except (KeyError, TypeError) as error:
        raise InvalidInputError(f"`row` must be an entry of the index of the table; got {row!r}.") from error
    number = np.flatnonzero(np.isin(found.suspects, places))
    if not len(number):
        raise InvalidInputError(
            f"`row` must be one of the first {MAX_EXPLAINED:,} suspects; got {row!r}, which is not. "
            "`audit.suspects` lists them."
        )
    first = number[0]  # the most probable error, if the entry repeats
    own = table.iloc[found.suspects[first]]
    return Explanation(
        row=row,
        given=own["given"],
        suggested=own["suggested"],
        p_error=float(own["p_error"]),
        probabilities=pd.Series(
            found.probabilities[first], index=audit.classes, name="probability"
        ).sort_values(ascending=False, kind="stable"),
        nearest=_frame(table, found.nearest[first]).assign(
            distance=found.distances[first][found.nearest[first] >= 0]
        ),
        given_examples=_frame(table, found.given_examples[first]),
        suggested_examples=_frame(table, found.suggested_examples[first]),
        unusual=found.unusual[first],
    )


def _frame(table: pd.DataFrame, rows: IntArray) -> pd.DataFrame:
    return table.iloc[rows[rows >= 0]][["given", "flagged"]].rename(columns={"given": "label"})
