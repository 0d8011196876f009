"""Deprecated names of the audit and of the noise still work and warn."""

import inspect

import numpy as np
import pandas as pd
import pytest

import peerloss.noise
import peerloss.posterior
from peerloss import find_label_issues

PROBA = np.array([[0.9, 0.1], [0.2, 0.8], [0.7, 0.3], [0.4, 0.6]] * 10)
LABELS = np.array([0, 1, 0, 0] * 10)


def test_y_is_a_deprecated_name_of_labels():
    """``y=`` warns with the new name and gives the same table; both together are refused."""
    with pytest.warns(DeprecationWarning, match="`y` is deprecated.*Use `labels`"):
        old = find_label_issues(None, y=LABELS, pred_proba=PROBA)
    pd.testing.assert_frame_equal(old.table, find_label_issues(labels=LABELS, pred_proba=PROBA).table)
    with pytest.raises(TypeError, match="both `labels` and its deprecated name `y`"):
        find_label_issues(y=LABELS, labels=LABELS, pred_proba=PROBA)
    assert list(inspect.signature(find_label_issues).parameters)[:2] == ["X", "labels"]


def test_labels_may_be_positional():
    """``find_label_issues(X, labels)`` works as before, and labels are required."""
    positional = find_label_issues(None, LABELS, pred_proba=PROBA)
    pd.testing.assert_frame_equal(positional.table, find_label_issues(labels=LABELS, pred_proba=PROBA).table)
    with pytest.raises(ValueError, match="`labels` must be given"):
        find_label_issues(pred_proba=PROBA)


@pytest.mark.parametrize("name", ["CleanPosterior", "fit_clean_posterior"])
def test_the_clean_posterior_moved_to_its_own_package(name):
    """The names in ``peerloss.noise`` warn and are those of ``peerloss.posterior``."""
    with pytest.warns(
        DeprecationWarning, match=rf"peerloss\.noise\.{name}.*Use `peerloss\.posterior\.{name}`"
    ):
        old = getattr(peerloss.noise, name)
    assert old is getattr(peerloss.posterior, name)
