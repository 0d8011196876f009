"""TF-IDF of free text: what is counted, and that it stays sparse."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import issparse

from peerloss.datasets.tables import text_features
from peerloss.datasets.tables.text_features import MAX_TEXT_FEATURES, fit_text, transform_text
from peerloss.estimators import TableEncoder

ROWS = 120
TEXT = pd.Series([f"the {w} parcel came {i} days late" for i, w in enumerate(["big", "small"] * (ROWS // 2))])


def test_words_and_parts_of_words_are_counted():
    """The matrix has both vocabularies, is sparse, and its components are dense and few."""
    model = fit_text(TEXT)
    matrix, components = transform_text(model, TEXT)
    words, parts = (vectorizer.vocabulary_ for _, vectorizer in model[0].transformer_list)
    assert {"big", "small", "parcel"} <= set(words)
    assert "ig" in parts
    assert issparse(matrix)
    assert matrix.shape == (ROWS, len(words) + len(parts))
    assert components.shape[1] <= MAX_TEXT_FEATURES
    np.testing.assert_allclose(matrix.power(2).sum(axis=1), 2.0)  # each of the two has rows of length 1


def test_missing_and_unknown_text_has_no_words():
    """Rows without known words are zero."""
    matrix, components = transform_text(fit_text(TEXT), pd.Series([None, "", "###"]))
    assert matrix.nnz == 0
    np.testing.assert_allclose(components, 0.0, atol=1e-12)


def test_long_columns_are_described_by_words_alone(monkeypatch):
    """Counting parts of words would take minutes there."""
    monkeypatch.setattr(text_features, "MAX_CHARACTERS", 100)
    assert [name for name, _ in fit_text(TEXT)[0].transformer_list] == ["words"]


@pytest.mark.parametrize(
    "text",
    [
        [f"我喜欢这本书第{i % 9}章" for i in range(ROWS)],
        [f"{a}x {a}y {a}z" for a in "abcdefghijklmnopqrstuvwxyz"],
        ["same words here"] * 40,
    ],
    ids=["no spaces", "no word twice", "all equal"],
)
def test_unusual_text_is_accepted(text):
    """A script without spaces, words that occur once, and equal rows give finite features."""
    column = pd.Series(text)
    matrix, components = transform_text(fit_text(column), column)
    assert matrix.nnz > 0
    assert np.isfinite(components).all()


def test_the_encoder_returns_a_sparse_matrix_on_request():
    """Numbers and categories stand in front of the words; without text the matrix has the same columns."""
    table = pd.DataFrame({"text": TEXT, "n": np.arange(ROWS) ** 0.5, "kind": ["a", "b", "c"] * (ROWS // 3)})
    table.loc[::7, "n"] = None
    sparse, dense = (TableEncoder(output=kind).fit_transform(table) for kind in ("sparse", "features"))
    assert issparse(sparse)
    matrix, components = transform_text(fit_text(TEXT), TEXT)
    n_components = components.shape[1]
    assert sparse.shape[1] == dense.shape[1] - n_components + matrix.shape[1]
    others = np.delete(dense, np.arange(1, 1 + n_components), axis=1)
    np.testing.assert_allclose(sparse[:, : others.shape[1]].toarray(), others)
    plain = table.drop(columns="text")
    np.testing.assert_allclose(
        TableEncoder(output="sparse").fit_transform(plain).toarray(), TableEncoder().fit_transform(plain)
    )
