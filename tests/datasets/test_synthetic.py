"""Generated sets against their formulas and the copies that the paper used."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from peerloss.datasets import make_twonorm, make_waveform
from peerloss.exceptions import InvalidInputError


def reference(name):
    folder = os.environ.get("PEERLOSS_DATA")
    path = Path(folder or ".", "reference_only", f"{name}.csv")
    if folder is None or not path.exists():
        pytest.skip("needs the folder of reference data in PEERLOSS_DATA")
    table = pd.read_csv(path)
    return table.drop(columns="target").to_numpy(), table["target"].to_numpy()


def standardised_means(X, y):
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return np.array([Z[y == label].mean(axis=0) for label in (0, 1)])


@pytest.mark.parametrize(("name", "make"), [("twonorm", make_twonorm), ("waveform", make_waveform)])
def test_class_means_agree_with_the_copy_that_the_paper_used(name, make):
    """On the standardised scale, to within four standard errors of a difference of two means."""
    X, y = reference(name)
    ours = make(int(y.sum()), int((1 - y).sum()), random_state=5)
    error = 4 * np.sqrt(2 / min(y.sum(), (1 - y).sum()))
    np.testing.assert_allclose(standardised_means(*ours), standardised_means(X, y), atol=error)


def test_twonorm_has_its_bayes_error():
    """The rule Σx > 0 errs with probability Φ(−2), to within four standard errors."""
    X, y = make_twonorm(20_000, 20_000, random_state=0)
    wrong = ((X.sum(axis=1) > 0) != y).mean()
    assert wrong == pytest.approx(0.02275, abs=4 * np.sqrt(0.02275 / 40_000))


def test_waveform_has_the_means_of_its_formula():
    """Class 1 averages (h1 + h3)/2; each row adds unit noise."""
    X, y = make_waveform(20_000, 20_000, random_state=0)
    points = np.arange(1, 22)
    h1, h2, h3 = (np.maximum(6 - np.abs(points - peak), 0) for peak in (11, 15, 7))
    np.testing.assert_allclose(X[y == 1].mean(axis=0), (h1 + h3) / 2, atol=0.08)
    np.testing.assert_allclose(X[y == 0].mean(axis=0), (h1 + 2 * h2 + h3) / 4, atol=0.08)


def test_the_seed_decides():
    """Same seed, same rows; another, others; sizes are checked."""
    assert np.array_equal(make_waveform(random_state=1)[0], make_waveform(random_state=1)[0])
    assert not np.array_equal(make_twonorm(random_state=1)[0], make_twonorm(random_state=2)[0])
    with pytest.raises(InvalidInputError, match="`n_positive` must be an integer"):
        make_twonorm(0)
