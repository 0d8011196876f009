"""Features of free text: a sparse TF-IDF matrix for linear models, and its leading components for the others.

Words and parts of words (2 to 4 characters) are counted together. A linear model on the matrix itself is
right more often than one on its components (``docs/design.md`` has the measurements). Parts of words also
serve languages that are written without spaces.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import FeatureUnion, Pipeline

if TYPE_CHECKING:
    import pandas as pd

    from peerloss._validation import FloatArray

#: Sizes of the vocabularies.
MAX_WORDS, MAX_PARTS = 5000, 20_000
#: A column with more characters than this is described by its words alone: counting parts would take minutes.
MAX_CHARACTERS = 20_000_000
#: Number of components of the matrix.
MAX_TEXT_FEATURES = 50


def fit_text(text: pd.Series) -> Pipeline:
    """Fit the TF-IDF matrix of a column and its components; words that occur in one row only are left out."""
    known = text.fillna("")
    parts: dict[str, Any] = {"analyzer": "char_wb", "ngram_range": (2, 4), "max_features": MAX_PARTS}
    attempts = {"words": TfidfVectorizer(max_features=MAX_WORDS, min_df=2, sublinear_tf=True)}
    if known.str.len().sum() <= MAX_CHARACTERS:
        attempts["parts"] = TfidfVectorizer(min_df=2, sublinear_tf=True, **parts)
    fitted = [(name, found) for name, model in attempts.items() if (found := _fitted(model, known))]
    if not fitted:
        fitted = [("parts", TfidfVectorizer(**parts).fit(known))]
    matrix = FeatureUnion(fitted)
    counts = matrix.transform(known)
    size = max(1, min(MAX_TEXT_FEATURES, counts.shape[0] - 1, counts.shape[1] - 1))
    components = TruncatedSVD(size, random_state=0)
    with np.errstate(divide="ignore", invalid="ignore"):  # the words may be the same in every row
        components.fit(counts)
    return Pipeline([("matrix", matrix), ("components", components)])


def transform_text(model: Pipeline, text: pd.Series) -> tuple[csr_array, FloatArray]:
    """Return the TF-IDF matrix (n, D) of a column, which is sparse, and its components (n, d)."""
    matrix = csr_array(model[:-1].transform(text.fillna("")))
    return matrix, np.asarray(model[-1].transform(matrix), dtype=np.float64)


def _fitted(model: TfidfVectorizer, text: pd.Series) -> TfidfVectorizer | None:
    try:
        return model.fit(text)
    except ValueError:  # nothing occurs in two rows
        return None
