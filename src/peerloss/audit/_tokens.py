"""Wrong labels of tokens: all sentences are audited as one table, and then ranked as sentences too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from peerloss.audit._entry_audit import EntryAudit, rank_entries, summarise_examples
from peerloss.audit._issues import find_label_issues
from peerloss.audit._label_audit import is_replaceable
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from peerloss._validation import IntArray
    from peerloss.audit._label_audit import LabelAudit


@dataclass(frozen=True, eq=False)
class TokenAudit(EntryAudit):
    """Labels of tokens that are probably wrong; created by :func:`find_token_issues`.

    ``table`` has one row per token: ``sentence`` and ``position`` (both counted from 0), ``token`` (if the
    tokens were passed), ``given`` and ``suggested`` labels, ``p_error``, ``p_suggested``, ``rank`` (1 is the
    most probable error of all tokens) and ``flagged``. ``examples`` has one row per sentence.
    """

    audit: LabelAudit = field(repr=False)
    """The audit of all tokens as one table: noise, intervals, outlook."""
    labels: list[list[Any]] = field(repr=False)
    """The labels as they were passed."""

    def relabel(self) -> list[list[Any]]:
        """Return the labels of the sentences; those more probably wrong than right are replaced."""
        changed = [list(sentence) for sentence in self.labels]
        wrong = self.table[is_replaceable(self.table)]
        for sentence, position, label in zip(
            wrong["sentence"], wrong["position"], wrong["suggested"], strict=True
        ):
            changed[sentence][position] = label
        return changed


def find_token_issues(
    labels: Sequence[Sequence[Any]],
    pred_proba: Sequence[Any],
    *,
    tokens: Sequence[Sequence[str]] | None = None,
    classes: Sequence[Any] | None = None,
    ignore_index: int | None = -100,
) -> TokenAudit:
    """Find tokens whose label is probably wrong, and sentences that contain such tokens.

    The tokens of all sentences are one table for :func:`~peerloss.find_label_issues`. Use probabilities of a
    model that has not seen the *sentence*: fold by sentence or by document, not by token.

    Parameters
    ----------
    labels
        The labels of each sentence, one per token, of any type.
    pred_proba
        *Out-of-fold* probabilities of each sentence, an array (tokens of the sentence, K) for each.
    tokens
        The tokens of each sentence, for the table.
    classes
        The labels in the order of the columns of ``pred_proba``. By default they are the distinct labels,
        sorted, or 0..K-1 if labels are integers.
    ignore_index
        Tokens with this label (an integer) are left out, such as the later pieces of a word; ``None`` leaves
        out none.

    Returns
    -------
    TokenAudit
        ``.table`` has one row per token, ``.examples`` one per sentence.

    Raises
    ------
    InvalidInputError
        If numbers of sentences or tokens differ, labels are missing or unknown, or probabilities are invalid.

    Warns
    -----
    IdentifiabilityWarning
        As in :func:`~peerloss.find_label_issues`.

    Examples
    --------
    >>> labels = [["O", "PER", "O"], ["O", "O"]] * 30
    >>> sure, unsure = [0.95, 0.05], [0.2, 0.8]
    >>> proba = [np.array([sure, unsure, sure]), np.array([sure, sure])] * 29
    >>> proba += [np.array([sure, unsure, sure]), np.array([sure, unsure])]
    >>> audit = find_token_issues(labels, proba)
    >>> audit.table.nsmallest(1, "rank")[["sentence", "position", "given"]].to_numpy().tolist()
    [[59, 1, 'O']]
    """
    sentences = _check_sentences(labels, "labels")
    arrays = _check_arrays(pred_proba, sentences)
    words = None if tokens is None else _check_words(tokens, sentences)
    sizes = np.array([len(sentence) for sentence in sentences])
    place = np.repeat(np.arange(len(sizes)), sizes)
    position = np.arange(len(place)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    flat = pd.Series([label for sentence in sentences for label in sentence], name="label")
    kept = np.ones(len(flat), dtype=bool)
    if ignore_index is not None and flat.dtype.kind in "iu":
        kept = (flat != ignore_index).to_numpy()
    if not kept.any():
        raise InvalidInputError("`labels` must hold at least one token with a label; got none.")
    place, position, flat = place[kept], position[kept], flat[kept].reset_index(drop=True)
    _check_missing(flat, place, position)
    proba = np.concatenate([array for array in arrays if len(array)])[kept]
    if classes is not None:
        flat = _as_categorical(flat, classes, proba.shape[1], place, position)
    audit = find_label_issues(labels=flat, pred_proba=proba)
    table = audit.table
    rank, flagged = rank_entries(table["p_error"].to_numpy(), no_noise=audit.no_noise)
    columns: dict[str, Any] = {"sentence": place, "position": position}
    if words is not None:
        columns["token"] = np.array([word for sentence in words for word in sentence], dtype=object)[kept]
    columns |= {name: table[name].to_numpy() for name in ("given", "suggested", "p_error", "p_suggested")}
    return TokenAudit(
        table=pd.DataFrame(columns | {"rank": rank, "flagged": flagged}),
        examples=summarise_examples(
            place, table["p_error"].to_numpy(), flagged, pd.RangeIndex(len(sizes), name="sentence")
        ),
        audit=audit,
        labels=sentences,
    )


def _check_sentences(values: Any, name: str) -> list[list[Any]]:
    """Return a list of lists."""
    sentences = []
    for number, sentence in enumerate(values):
        if isinstance(sentence, str) or np.ndim(sentence) != 1:
            raise InvalidInputError(
                f"`{name}` must have a list for each sentence, with one entry per token; sentence {number} "
                f"is {type(sentence).__name__}. For one label per row use find_label_issues."
            )
        sentences.append(list(sentence))
    if not sentences:
        raise InvalidInputError(f"`{name}` is empty; pass at least one sentence.")
    return sentences


def _check_same_number(name: str, found: int, expected: int) -> None:
    if found != expected:
        raise InvalidInputError(
            f"`{name}` and `labels` must have the same number of sentences; got {found} and {expected}."
        )


def _check_words(tokens: Any, sentences: list[list[Any]]) -> list[list[Any]]:
    words = _check_sentences(tokens, "tokens")
    _check_same_number("tokens", len(words), len(sentences))
    for number, (some, labels) in enumerate(zip(words, sentences, strict=True)):
        if len(some) != len(labels):
            raise InvalidInputError(
                f"`tokens[{number}]` must have one token per label of the sentence, {len(labels)}; got "
                f"{len(some)}."
            )
    return words


def _check_arrays(pred_proba: Any, sentences: list[list[Any]]) -> list[NDArray[Any]]:
    """Return the probabilities of each sentence; their values are checked by ``find_label_issues``."""
    _check_same_number("pred_proba", len(pred_proba), len(sentences))
    arrays = [np.asarray(array) for array in pred_proba]
    width = None
    for number, (array, labels) in enumerate(zip(arrays, sentences, strict=True)):
        if not labels and array.size == 0:
            continue
        if array.ndim != 2 or len(array) != len(labels) or (width is not None and array.shape[1] != width):
            columns = "one column per class" if width is None else f"{width} columns, as those before it"
            raise InvalidInputError(
                f"`pred_proba[{number}]` must have one row per token of the sentence, {len(labels)}, and "
                f"{columns}; got shape {array.shape}."
            )
        width = array.shape[1]
    return arrays


def _check_missing(flat: pd.Series, place: IntArray, position: IntArray) -> None:
    missing = flat.isna().to_numpy()
    if missing.any():
        first = int(np.flatnonzero(missing)[0])
        raise InvalidInputError(
            f"`labels` must hold a label for each token; token {position[first]} of sentence {place[first]} "
            "has none. Remove such tokens, or use integer labels and `ignore_index`."
        )


def _as_categorical(
    flat: pd.Series, classes: Sequence[Any], n_columns: int, place: IntArray, position: IntArray
) -> pd.Series:
    """Return the labels as a Categorical over ``classes``."""
    names = pd.Index(list(classes))
    if len(names) != n_columns or not names.is_unique:
        raise InvalidInputError(
            f"`classes` must name each column of `pred_proba` once, {n_columns}; got {list(classes)!r}."
        )
    unknown = ~flat.isin(names).to_numpy()
    if unknown.any():
        first = int(np.flatnonzero(unknown)[0])
        raise InvalidInputError(
            f"`labels` must be among `classes`; found {flat.iloc[first]!r}, token {position[first]} of "
            f"sentence {place[first]}."
        )
    return pd.Series(pd.Categorical(flat, categories=names), name=flat.name)
