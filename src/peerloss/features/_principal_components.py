"""Fewer features: the leading principal components."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.decomposition import PCA

from peerloss._validation import check_count
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from peerloss._validation import FloatArray

#: Number of features that wide ones are reduced to. On 2,000 images of CIFAR-10 with human labels, an audit
#: with 64 components of the image statistics took half of the time of 96, and ranked no worse.
N_COMPONENTS = 64
#: The components are fitted to at most this many rows, and computed for this many at a time.
MAX_FIT_ROWS, CHUNK = 20_000, 4096


def principal_components(
    X: ArrayLike,
    n_components: int | None = N_COMPONENTS,
    *,
    standardise: bool = True,
    random_state: int | None = 0,
) -> FloatArray:
    """Return the leading principal components of features; narrow features are only copied.

    Parameters
    ----------
    X
        Features (n, d); a memory map is read in parts.
    n_components
        Number of components; ``None`` keeps all features as they are.
    standardise
        Whether to divide each feature by its standard deviation first.
    random_state
        Seed of the rows to which the components are fitted, if there are more than 20,000.

    Returns
    -------
    NDArray
        Shape (n, min(d, ``n_components``)), or fewer columns if there are fewer rows.

    Examples
    --------
    >>> principal_components(np.random.default_rng(0).normal(size=(200, 100))).shape
    (200, 64)
    """
    features: Any = X if isinstance(X, np.ndarray) else np.asarray(X)
    if features.ndim != 2:
        raise InvalidInputError(
            f"`X` must have one row per example, 2 dimensions; got shape {features.shape}."
        )
    n, d = features.shape
    if n_components is None or d <= check_count(n_components, "n_components"):
        return np.array(features, dtype=np.float64)
    rows = np.arange(n)
    if n > MAX_FIT_ROWS:
        rows = np.sort(np.random.default_rng(random_state).choice(n, MAX_FIT_ROWS, replace=False))
    sample = np.asarray(features[rows], dtype=np.float64)
    mean, scale = sample.mean(axis=0), sample.std(axis=0)
    if not standardise:
        scale = np.ones_like(scale)
    scale[scale <= 1e-12 * np.maximum(np.abs(mean), 1.0)] = np.inf  # constant columns vanish
    model = PCA(min(n_components, n), random_state=0).fit((sample - mean) / scale)
    parts = (
        (np.asarray(features[start : start + CHUNK], dtype=np.float64) - mean) / scale
        for start in range(0, n, CHUNK)
    )
    return np.concatenate([model.transform(part) for part in parts])
