"""A saved model for the tests of model folders."""

import pytest
from sklearn.ensemble import RandomForestClassifier

from peerloss import PeerPlugInClassifier, save_model
from tests.persistence.saved_models import LABELS, X


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Save a small model, of which the tests change copies."""
    model = PeerPlugInClassifier(RandomForestClassifier(2, random_state=0)).fit(X, LABELS)
    return save_model(model, tmp_path_factory.mktemp("saved") / "model")
