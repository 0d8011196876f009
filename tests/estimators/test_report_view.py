"""The view of a report of PeerClassifier in a notebook."""

import numpy as np
import pandas as pd

from peerloss import NoiseModel
from peerloss.estimators import PeerReport
from peerloss.estimators._report_view import MAX_MODELS


def report(n_models=8, **changes):
    weights = np.linspace(1, 0.1, n_models)
    names = [f"<model {i}>" for i in range(n_models)]
    candidates = pd.DataFrame({"weight": weights / weights.sum(), "brier": 0.1, "behind": 0.0}, index=names)
    noise = NoiseModel.binary(0.1, 0.2)
    values = {"noise_low": noise.transition - 0.05, "noise_high": noise.transition + 0.05} | changes
    return PeerReport(candidates, "balanced_accuracy", 1.0, noise, 0.9, 0.85, 0.95, **values)


def test_the_view_has_accuracy_models_and_noise():
    """The largest weights come first, the others are counted; names are escaped."""
    view = report()._repr_html_()
    assert "Expected balanced accuracy on clean labels: 90.0% (85.0% to 95.0% with 90 % probability)." in view
    assert "<model" not in view
    assert view.count("&lt;model") == MAX_MODELS + 1  # and in the details
    assert "3 more models with smaller weights." in view
    assert "90.0% (85.0%–95.0%)" in view
    assert "more models" not in report(n_models=2)._repr_html_()


def test_doubts_are_shown():
    """They are sentences below the accuracy."""
    assert "<p>Class-conditional noise" in report(misfit_p_value=0.0)._repr_html_()


def test_the_noise_has_the_names_of_the_labels():
    """Reports saved by earlier versions have no names, and number the classes."""
    view = report(classes=("no", "<yes>"))._repr_html_()
    assert "labelled &lt;yes&gt;" in view
    assert "class 0" not in view
    assert "class 0" in report()._repr_html_()
