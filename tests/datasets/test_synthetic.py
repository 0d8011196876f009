"""Compare synthetic data with their formulas and with the copies that the paper used."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from peerloss.datasets import make_two_circles, make_twonorm, make_waveform
from peerloss.exceptions import InvalidInputError


def reference(name):
    folder = os.environ.get("PEERLOSS_DATA")
    path = Path(folder or ".", "reference_only", f"{name}.csv")
    if folder is None or not path.exists():
        pytest.skip("needs the folder of reference data in PEERLOSS_DATA")
    table = pd.read_csv(path)
    return table.drop(columns="target").to_numpy(), table["target"].to_numpy()


def standardised_classes(X, y):
    """Standardise the columns and split by class; the paper's copies have various scales."""
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    return [Z[y == label] for label in (0, 1)]


def with_error(rows, statistic):
    """Return the statistic of each column and its standard error from 100 bootstrap samples."""
    rng = np.random.default_rng(0)
    samples = [statistic(rows[rng.integers(len(rows), size=len(rows))]) for _ in range(100)]
    return statistic(rows), np.std(samples, axis=0)


#: Statistics of each column of a class; a difference of two samples is compared with its standard error.
STATISTICS = {
    "mean": lambda rows: rows.mean(axis=0),
    "variance": lambda rows: rows.var(axis=0),
    "quantiles": lambda rows: np.quantile(rows, [0.1, 0.5, 0.9], axis=0).ravel(),
    "correlation of neighbours": lambda rows: np.diag(np.corrcoef(rows.T), k=1),
}


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(("name", "make"), [("twonorm", make_twonorm), ("waveform", make_waveform)])
def test_generators_agree_with_the_copies_that_the_paper_used(name, make, statistic):
    """Every column and class agrees within five standard errors (126 comparisons at most).

    For samples from the same distribution fewer than one run in a thousand fails.
    """
    ours = standardised_classes(*make(random_state=5))
    theirs = standardised_classes(*reference(name))
    for label in (0, 1):
        assert len(ours[label]) == len(theirs[label])
        (a, error_a), (b, error_b) = (
            with_error(rows[label], STATISTICS[statistic]) for rows in (ours, theirs)
        )
        apart = np.abs(a - b) / np.hypot(error_a, error_b)
        assert apart.max() < 5, f"class {label}: {apart.max():.1f} standard errors"


def test_the_comparison_can_fail():
    """Another choice of the positive class differs by tens of standard errors."""
    X, y = reference("waveform")
    theirs = standardised_classes(X, y)[1].mean(axis=0)
    points = np.arange(1, 22)
    h1, h2 = (np.maximum(6 - np.abs(points - peak), 0) for peak in (11, 15))
    waves, _ = make_waveform(random_state=5)
    wrong = ((h1 + h2) / 2 - waves.mean(axis=0)) / waves.std(axis=0)
    assert np.abs(wrong - theirs).max() > 20 / np.sqrt(y.sum())


def test_twonorm_has_its_bayes_error():
    """The rule Σx > 0 has the error Φ(−2), within four standard errors."""
    X, y = make_twonorm(20_000, 20_000, random_state=0)
    wrong = ((X.sum(axis=1) > 0) != y).mean()
    assert wrong == pytest.approx(0.02275, abs=4 * np.sqrt(0.02275 / 40_000))


def test_waveform_has_the_means_of_its_formula():
    """The mean of class 1 is (h1 + h3)/2."""
    X, y = make_waveform(20_000, 20_000, random_state=0)
    points = np.arange(1, 22)
    h1, h2, h3 = (np.maximum(6 - np.abs(points - peak), 0) for peak in (11, 15, 7))
    np.testing.assert_allclose(X[y == 1].mean(axis=0), (h1 + h3) / 2, atol=0.08)
    np.testing.assert_allclose(X[y == 0].mean(axis=0), (h1 + 2 * h2 + h3) / 4, atol=0.08)


def test_circles_lie_on_their_radii():
    """Exactly without spread; with spread, means and squared distances match their expectations."""
    X, y = make_two_circles(500, 300, inner_radius=0.4, spread=0.0)
    np.testing.assert_allclose(np.hypot(*X.T), np.where(y == 1, 0.4, 1.0))
    assert np.bincount(y).tolist() == [300, 500]
    X, y = make_two_circles(20_000, 20_000, spread=0.1)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=4 * np.sqrt(0.5 / 40_000))
    # E|X|² = r² + 2·spread², and Var|X|² ≤ 4r²·spread² + 4·spread⁴.
    for label, radius in ((0, 1.0), (1, 0.5)):
        error = np.sqrt((4 * radius**2 * 0.1**2 + 4 * 0.1**4) / 20_000)
        assert (X[y == label] ** 2).sum(axis=1).mean() == pytest.approx(radius**2 + 0.02, abs=4 * error)
    with pytest.raises(InvalidInputError, match="`inner_radius` must lie in"):
        make_two_circles(inner_radius=1.0)
    with pytest.raises(InvalidInputError, match="`spread` must"):
        make_two_circles(spread=-1.0)


def test_the_seed_determines_the_rows():
    """Equal seeds give equal rows, other seeds other rows; sizes are validated."""
    assert np.array_equal(make_waveform(random_state=1)[0], make_waveform(random_state=1)[0])
    assert not np.array_equal(make_twonorm(random_state=1)[0], make_twonorm(random_state=2)[0])
    with pytest.raises(InvalidInputError, match="`n_positive` must be an integer"):
        make_twonorm(0)
