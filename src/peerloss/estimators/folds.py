"""Folds that hold out each row once, rows as models take them, and the bases of the classifiers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold, check_cv
from sklearn.utils import _safe_indexing, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from peerloss._classifier import (
    MISSING,
    FitInput,
    NoisyLabelClassifier,
    all_or_nothing,
    numbers_only,
    table_of_gaps,
)
from peerloss._infinite_features import check_no_infinity
from peerloss._progress import show_progress
from peerloss._validation import BoolArray, FloatArray, IntArray, check_count, short_repr
from peerloss.datasets.tables.sparse_encoder import SparseEncoder, as_dense, encoder_for
from peerloss.datasets.tables.table_encoder import TableEncoder, Views
from peerloss.exceptions import InvalidInputError, warn_caller

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

Folds = list[tuple[IntArray, IntArray]]

#: Number of folds for ``cv=None``, as in scikit-learn.
DEFAULT_FOLDS = 5


class TableClassifier(NoisyLabelClassifier):
    """A classifier whose ``X`` may be a mixed table or a sparse matrix, besides an array of numbers.

    A DataFrame with text, categories or missing values, and an array with missing values, is encoded by
    :class:`~peerloss.estimators.TableEncoder`, a sparse matrix with many columns by its components. If no
    number was missing in training, medians replace those that are missing later.
    """

    table_: TableEncoder | SparseEncoder | None
    """The fitted encoder; ``None`` if the features were numbers."""
    medians_: FloatArray | None
    """(d,) medians of the features, if they were numbers."""

    def _check_fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None) -> FitInput:
        """Check the arguments of ``fit``; encode a mixed table or a sparse matrix for each kind of model."""
        self.table_ = self.medians_ = None
        if not self._checks_features:
            return super()._check_fit(X, y, sample_weight)
        X = table_of_gaps(X)
        self.table_ = encoder_for(X)
        if self.table_ is None:
            numbers = super()._check_fit(as_dense(X), y, sample_weight)
            self.medians_ = np.array([np.median(column) for column in numbers.X.T])
            return numbers
        views = self.table_.fit(X).views(X)
        data = super()._check_fit(views.features, y, sample_weight)
        validate_data(self, X, skip_check_array=True)  # the names and number of the columns as given
        return data._replace(trees=views.trees, categorical=self.table_.categorical(), wide=views.wide)

    def _views(self, X: Any) -> Views:
        """Check the argument of ``predict``; return its features for each kind of model."""
        check_is_fitted(self)
        if self.table_ is not None:
            return self.table_.views(self._as_fitted(X))
        return Views(super()._check_predict(as_dense(X)))

    def _as_fitted(self, X: Any) -> Any:
        """Return an array as a table if the classifier was fitted to an array that had missing values."""
        is_array = not isinstance(X, pd.DataFrame) and not hasattr(self, "feature_names_in_")
        if not is_array or not isinstance(self.table_, TableEncoder):
            return X
        check_no_infinity(X)
        with numbers_only("`X`"):
            return pd.DataFrame(
                validate_data(self, X, dtype=np.float64, reset=False, ensure_all_finite="allow-nan")
            )

    def _check_predict(self, X: Any) -> FloatArray:
        return self._views(X).features

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = tags.input_tags.allow_nan = True
        return tags


class FoldClassifier(TableClassifier):
    """A classifier with parameters ``cv`` and ``verbose``; subclasses implement ``_fit``."""

    verbose: bool

    def fit(
        self,
        X: ArrayLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        *,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to features (n, d) and noisy labels (n,).

        Parameters
        ----------
        X, y
            Features and noisy labels of any dtype. A DataFrame may have categories, free text and missing
            values (:class:`~peerloss.estimators.TableEncoder`), an array missing values; a matrix may be
            sparse.
        sample_weight
            Non-negative weights of the rows.
        groups
            Group of each row, passed to ``cv``; with a number of folds, rows of one group stay together.
        """
        with all_or_nothing(self), show_progress(type(self).__name__, show=bool(self.verbose)):
            data = self._check_fit(X, y, sample_weight)
            self._fit(data, groups)
            self.classes_ = data.classes
        return self

    @abstractmethod
    def _fit(self, data: FitInput, groups: ArrayLike | None) -> None:
        """Set the fitted attributes."""


def is_fold_count(cv: Any) -> bool:
    """Return whether ``cv`` is a number of folds: an integer, or ``None`` for five."""
    return cv is None or (isinstance(cv, Integral) and not isinstance(cv, bool))


def check_cv_kind(cv: Any) -> None:
    """Raise an error if scikit-learn does not accept ``cv``; nothing is split."""
    if is_fold_count(cv):
        check_count(DEFAULT_FOLDS if cv is None else cv, "cv", minimum=2)
    elif isinstance(cv, str | bool) or not (hasattr(cv, "split") or isinstance(cv, Iterable)):
        raise InvalidInputError(
            f"`cv` must be a number of folds, a splitter, or an iterable of index pairs; got {cv!r}."
        )


def held_out_folds(
    cv: Any, data: FitInput, *, seed: int, groups: ArrayLike | None = None, warn: bool = True
) -> Folds:
    """Return pairs of training and held-out rows; rows without label or weight are never trained on.

    ``cv`` is what scikit-learn accepts: a number of folds (``None`` is 5), a splitter, or index pairs. A
    number makes shuffled, stratified folds of the labelled rows with positive weight, or of complete
    ``groups``. If a class has fewer rows than there are folds, fewer folds are made, with a warning unless
    ``warn`` is false. A splitter or index pairs must hold out each labelled row once.
    """
    rows = np.flatnonzero(data.is_used)
    counts = _rows_per_class(data, rows)
    rarest = int(counts.argmin())
    if counts[rarest] < 2:
        raise InvalidInputError(
            f"`y` must have at least two rows (of positive weight) of each class, so that one can be held "
            f"out; class {_plain(data.classes[rarest])!r} has {counts[rarest]}. Remove the class or merge it "
            "with another."
        )
    check_cv_kind(cv)
    groups = None if groups is None else np.asarray(groups)
    if groups is not None and groups.shape != data.codes.shape:
        raise InvalidInputError(
            f"`groups` must have one entry for each of {len(data.codes)} rows; got shape {groups.shape}."
        )
    if not is_fold_count(cv):
        return _given_folds(cv, data, groups)
    n_folds = DEFAULT_FOLDS if cv is None else int(cv)
    if groups is not None:
        return _given_folds(shuffled_splitter(n_folds, groups, seed % 2**31), data, groups)
    if n_folds > counts[rarest]:
        if warn:
            warn_caller(
                f"`cv`={n_folds} folds were requested, but class {_plain(data.classes[rarest])!r} has only "
                f"{counts[rarest]} rows; {counts[rarest]} folds are used.",
                UserWarning,
            )
        n_folds = int(counts[rarest])
    splits = shuffled_splitter(n_folds, None, seed).split(rows, _strata(data.codes[rows], n_folds))
    folds = [(rows[train], rows[test]) for train, test in splits]
    _check_classes(folds, data)
    return folds


def _rows_per_class(data: FitInput, rows: IntArray) -> IntArray:
    """Count the rows of each class, or those with a positive share of it, shape (K,)."""
    if data.shares is None:
        return np.bincount(data.codes[rows], minlength=len(data.classes))
    return np.asarray((data.shares[rows] > 0).sum(axis=0))


def _strata(codes: IntArray, n_folds: int) -> IntArray:
    """Merge strata that are too small for stratified folds; only soft labels have some."""
    counts = np.bincount(codes)
    return np.where(counts[codes] < n_folds, counts.argmax(), codes)


def shuffled_splitter(n_folds: int, groups: Any, seed: int | None) -> StratifiedKFold | StratifiedGroupKFold:
    """Return shuffled, stratified folds; given ``groups``, rows of one group stay together."""
    kind = StratifiedKFold if groups is None else StratifiedGroupKFold
    return kind(n_folds, shuffle=True, random_state=seed)


def _plain(label: Any) -> Any:
    """Return a label as a Python object instead of a NumPy scalar, for messages."""
    return label.item() if isinstance(label, np.generic) else label


def _given_folds(cv: Any, data: FitInput, groups: Any) -> Folds:
    """Return the folds of a splitter or of index pairs, checked."""
    n_rows = len(data.codes)
    try:
        labels = data.classes[data.codes] if (data.codes != MISSING).all() else data.codes
        splits = list(check_cv(cv, labels, classifier=True).split(data.X, labels, groups))
        folds = [(np.arange(n_rows)[train], np.arange(n_rows)[test]) for train, test in splits]
    except (TypeError, ValueError, IndexError) as error:
        needs = "If the splitter needs groups, pass them as fit(..., groups=...)."
        remedy = needs if groups is None else "Use fewer folds than there are groups."
        raise InvalidInputError(
            f"`cv` must be a number of folds, a splitter, or index pairs for these {n_rows} rows; "
            f"{cv!r} failed: {error} {remedy}"
        ) from error
    held_out = np.concatenate([test for _, test in folds]) if folds else np.arange(0)
    times = np.bincount(held_out, minlength=n_rows)
    if (times[data.is_used] != 1).any():
        raise InvalidInputError(
            "`cv` must hold out each row exactly once; "
            f"{int((times[data.is_used] != 1).sum())} rows are held out never or several times. "
            "Use KFold, StratifiedKFold or GroupKFold, not random splits."
        )
    folds = [(train[data.is_used[train]], test) for train, test in folds]
    for number, (train, test) in enumerate(folds):
        if np.intersect1d(train, test).size:
            raise InvalidInputError(
                f"`cv` must not train on the rows that it holds out; fold {number} does. Use KFold, "
                "StratifiedKFold or GroupKFold."
            )
    _check_classes(folds, data)
    return folds


def _check_classes(folds: Folds, data: FitInput) -> None:
    for number, (train, _) in enumerate(folds):
        absent = np.flatnonzero(_rows_per_class(data, train) == 0)
        if absent.size:
            raise InvalidInputError(
                f"`cv` must leave every class in each training part; fold {number} trains without class "
                f"{_plain(data.classes[absent[0]])!r}. Use stratified folds, or fewer."
            )


def replace_by_gold(
    data: FitInput, gold: ArrayLike | None, X: Any = None
) -> tuple[FitInput, tuple[IntArray, IntArray] | None, BoolArray | None]:
    """Replace noisy labels by gold labels; also return the pairs (clean, noisy) and a mask of gold rows.

    If ``X`` is a DataFrame, a Series of gold labels is matched to its rows by the index.
    """
    if gold is None:
        return data, None, None
    given = gold_array(_in_order(gold, X.index) if isinstance(X, pd.DataFrame) else gold)
    if given.shape != data.codes.shape:
        raise InvalidInputError(
            f"`gold` must have one entry per row, {len(data.codes)} in all; got shape {given.shape}. "
            "Use NaN or None if the clean label is not known."
        )
    if given.dtype == bool:
        _check_verified(data, given)
        return data, None, given  # perhaps selected because they are correct, so not usable to count noise
    known = ~pd.isna(given)
    place = pd.Index(data.classes).get_indexer(pd.Index(given[known]))
    if (place < 0).any():
        unknown = _plain(given[known][place < 0][0])
        raise InvalidInputError(
            f"`gold` must contain labels that occur in `y`, {data.classes.tolist()[:10]}; found {unknown!r}."
        )
    codes = data.codes.copy()
    codes[known] = place
    if data.shares is not None:  # several votes on a row are not one noisy label, so no pair is counted
        shares = data.shares.copy()
        shares[known] = np.eye(len(data.classes))[place]
        return data._replace(codes=codes, shares=shares), None, known
    clean, noisy = np.asarray(place, dtype=np.int64), data.codes[known]
    pairs = clean[noisy != MISSING], noisy[noisy != MISSING]
    return data._replace(codes=codes), pairs if len(pairs[0]) else None, known


def _in_order(gold: Any, names: pd.Index) -> Any:
    """Return a Series in the order of the rows, unknown in rows that it does not name."""
    if not isinstance(gold, pd.Series) or gold.index.equals(names):
        return gold
    for index, owner in ((gold.index, "`gold`"), (names, "`X`")):
        if not index.is_unique:
            raise InvalidInputError(
                "`gold` and `X` must have indexes without duplicates if they differ; that of "
                f"{owner} repeats {index[index.duplicated()].tolist()[0]!r}. Pass `gold.to_numpy()` if its "
                "entries are in the order of the rows."
            )
    absent = ~gold.index.isin(names)
    if absent.any():
        raise InvalidInputError(
            f"`gold` must have index labels that occur in the index of `X`, such as {names.tolist()[0]!r}; "
            f"found {gold.index[absent].tolist()[0]!r}. Pass `gold.to_numpy()` if its entries are in the "
            "order of the rows."
        )
    return gold.reindex(names, fill_value=False) if gold.dtype == bool else gold.reindex(names)


def gold_array(gold: Any) -> NDArray[Any]:
    """Return an array in which missing labels are missing; NumPy would turn NaN beside text into "nan"."""
    if not isinstance(gold, list | tuple):
        return np.asarray(gold)
    entries = np.asarray(gold, dtype=object)
    return np.asarray(pd.Series(entries).infer_objects()) if entries.ndim == 1 else entries


def _check_verified(data: FitInput, verified: BoolArray) -> None:
    """Refuse a mask of correct labels that includes rows without a label."""
    wrong = np.flatnonzero(verified & (data.codes == MISSING))
    if wrong.size:
        raise InvalidInputError(
            f"`gold` marks the label of row {wrong[0]} as correct, but `y` has no label there. Pass clean "
            "labels as `gold`, with NaN or None in the other rows, or set the mask to False."
        )


def labelled_copies(data: FitInput) -> tuple[FitInput, IntArray]:
    """Return the rows that have a label, and the row of ``data`` of each of them.

    A row with a soft label becomes one copy per class with a positive share, weighted by that share, so that
    models which know only one label per row minimise the expected loss over the soft label.
    """
    if data.shares is None:
        rows = np.flatnonzero(data.codes != MISSING)
        if len(rows) == len(data.codes):
            return data, rows
        codes, weight = data.codes[rows], data.weight[rows]
    else:
        rows, codes = np.nonzero(data.shares)
        weight = data.weight[rows] * data.shares[rows, codes]
    return data._replace(
        X=_safe_indexing(data.X, rows),
        codes=codes,
        weight=weight,
        shares=None,
        trees=None if data.trees is None else data.trees[rows],
        wide=None if data.wide is None else data.wide[rows],
    ), rows


def folds_of_copies(folds: Folds, rows: IntArray, n_rows: int) -> Folds:
    """Turn folds of ``n_rows`` rows into folds of their copies; the copies of a row stay together."""
    if len(rows) == n_rows and (np.diff(rows) == 1).all():  # every row is its only copy
        return folds

    def copies(part: IntArray) -> IntArray:
        chosen = np.zeros(n_rows, dtype=bool)
        chosen[part] = True
        return np.flatnonzero(chosen[rows])

    return [(copies(train), copies(test)) for train, test in folds]


def merge_copies(proba: FloatArray, rows: IntArray, n_rows: int) -> FloatArray:
    """Return held-out probabilities of rows from those of their copies, which are equal, (n_rows, K)."""
    merged = np.full((n_rows, proba.shape[1]), np.nan)
    merged[rows] = proba
    return merged


def as_legacy_generator(random_state: Any) -> np.random.RandomState:
    """Return the ``RandomState`` of a seed, as scikit-learn does."""
    try:
        generator: np.random.RandomState = check_random_state(random_state)
    except (ValueError, TypeError) as error:
        raise InvalidInputError(
            "`random_state` must be an integer from 0 to 2**32 - 1, a numpy RandomState, or None; got "
            f"{short_repr(random_state)}. Pass an integer such as 0 for a repeatable result."
        ) from error
    return generator
