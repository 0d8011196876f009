"""Doubts of PeerClassifier's report: repeated rows and wide intervals of the noise rates."""

import numpy as np
import pytest

from peerloss import PeerClassifier
from peerloss.persistence import load_model, save_model

from .binary_task import task

pytestmark = pytest.mark.usefixtures("small_portfolio")


def test_repeated_rows_widen_the_interval_of_the_accuracy(tmp_path):
    """Few distinct rows with different labels: wrong labels or overlap; both accuracies are possible."""
    rng = np.random.default_rng(0)
    X = rng.integers(2, size=(600, 3)).astype(float)
    y = np.where(rng.random(600) < 0.2, 1 - X[:, 0], X[:, 0]).astype(int)
    model = PeerClassifier(random_state=0).fit(X, y)
    report = model.report_
    assert report.repeated_rows == 1.0
    assert any("have the features of another row" in doubt for doubt in report.doubts)
    assert all(doubt in str(report) for doubt in report.doubts)
    assert report.accuracy_low < 0.8
    assert report.accuracy_high > 0.95
    save_model(model, tmp_path / "model")
    assert load_model(tmp_path / "model").report_.doubts == report.doubts


def test_few_rows_are_a_reason_to_doubt_the_rates():
    """The 90 % interval of T is reported; it is wide with 40 rows, and the report says so, not with 4,000."""
    X, _, noisy = task(4000)
    few = PeerClassifier(random_state=0).fit(X[:40], noisy[:40]).report_
    many = PeerClassifier(random_state=0).fit(X, noisy).report_
    assert any("noise rates are uncertain" in doubt for doubt in few.doubts)
    assert many.doubts == ()
    for report in (few, many):
        assert (report.noise_low <= report.noise.transition).all()
        assert (report.noise.transition <= report.noise_high).all()
