"""Whether predicted probabilities can identify the noise; shared by the estimators of T.

For use inside the library: input is not checked.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from peerloss._probabilities import label_frequencies, take
from peerloss.exceptions import IdentifiabilityWarning

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from peerloss._validation import IntArray
    from peerloss.noise._model import NoiseModel


def explain_chance_level(proba: NDArray[Any], codes: IntArray) -> str:
    """Return a message if the probabilities predict the labels no better than chance, else ``""``.

    The measure is the peer score of the probabilities, mean P(ỹ_n | x_n) − Σ_k π̃_k P(k | x_n), which must
    exceed two standard errors. It also works if the most probable class is the same on every row, as it can
    be with unbalanced labels.
    """
    n, k = proba.shape
    given = take(proba, codes)
    prior = label_frequencies(codes, k)
    chance = np.asarray(proba @ prior.astype(proba.dtype if proba.dtype.kind == "f" else float), dtype=float)
    gain = given - chance
    error = float(gain.std() / np.sqrt(n))
    if float(gain.mean()) > 2 * error + 1e-12:
        return ""
    return (
        f"the model predicts the given labels no better than chance (mean probability {given.mean():.3f}, "
        f"by chance {chance.mean():.3f} ± {error:.3f})"
    )


def warn_unidentifiable(reason: str, *, stacklevel: int = 3) -> None:
    """Warn that T cannot be identified, with the reason."""
    warnings.warn(
        f"T cannot be identified from these data: {reason}. Use a better model, more rows, or a few clean "
        "labels (`y_clean`); peer loss itself needs no T.",
        IdentifiabilityWarning,
        stacklevel=stacklevel + 1,
    )


def warn_if_uninformative(noise: NoiseModel, *, stacklevel: int = 3) -> None:
    """Warn if labels carry no information under an estimated T."""
    if not noise.is_informative:
        warn_unidentifiable(
            f"under the estimate {noise!r} labels are not informative (Σe ≥ 1)", stacklevel=stacklevel + 1
        )
