"""Numbers that overflow and features that do not vary: every estimator has a clear error."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression, RidgeClassifier

from peerloss import (
    CostSensitiveSVC,
    MarginPerceptron,
    PeerBoostingClassifier,
    PeerClassifier,
    PeerPlugInClassifier,
    RobustMLPClassifier,
    find_label_issues,
)
from peerloss.estimators import TableEncoder
from peerloss.exceptions import InvalidInputError

MODELS = {
    "peer": PeerClassifier(random_state=0),
    "network": RobustMLPClassifier(max_steps=20, random_state=0),
    "lightgbm": PeerBoostingClassifier(n_estimators=3, min_child_samples=2),
    "xgboost": PeerBoostingClassifier(backend="xgboost", n_estimators=3, min_child_samples=2),
    "svm": CostSensitiveSVC(class_weight_grid=[1.0], random_state=0),
    "perceptron": MarginPerceptron(margin_grid=[1.0], random_state=0),
}


@pytest.fixture
def frame():
    """Forty rows with two named columns, and labels."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(40, 2)), columns=["size", "price"])
    return X, (X["size"] > 0).astype(int).to_numpy()


@pytest.mark.parametrize("large", [1e40, 1e200, -1e300])
@pytest.mark.parametrize("name", MODELS)
def test_too_large_features_are_rejected(frame, name, large):
    """All estimators raise the same error before training, with the column, the value and the remedy."""
    X, y = frame
    X.loc[3, "price"] = large
    with pytest.raises(InvalidInputError, match=r"column 'price', row 3\. Measure it in a larger unit"):
        MODELS[name].fit(X, y)


@pytest.mark.parametrize("name", MODELS)
def test_features_without_variation_are_rejected(frame, name):
    """No estimator accepts a table of constant columns."""
    X, y = frame
    with pytest.raises(InvalidInputError, match="`X` must have a column that varies"):
        MODELS[name].fit(np.ones_like(X), y)


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"peer"}))
def test_rows_far_from_the_training_data_are_predicted(frame, name):
    """Large allowed features give finite probabilities, also if the training data are very small numbers."""
    X, y = frame
    model = MODELS[name].fit(1e-6 * X.to_numpy(), y)
    assert np.isfinite(model.predict_proba([[3e38, -3e38], [1e35, 0.0]])).all()


def test_rows_far_from_the_training_data_are_predicted_by_the_portfolio(frame):
    """The complete portfolio: forests and networks compute in float32."""
    X, y = frame
    model = PeerClassifier(cv=2, random_state=0).fit(1e-6 * X.to_numpy(), y)
    assert any(member.name.startswith(("forest", "extra trees")) for member in model.members_)
    assert np.isfinite(model.predict_proba([[3e38, -3e38], [1e35, 0.0]])).all()


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # raised by the estimator
def test_a_plug_in_names_the_estimator_whose_scores_overflow(frame):
    """Infinite scores of the estimator would make the calibration fail to converge."""
    X, y = frame
    X["price"] *= 1e200
    with pytest.raises(
        InvalidInputError, match="`estimator` must return finite scores; RidgeClassifier returned"
    ):
        PeerPlugInClassifier(RidgeClassifier(solver="lsqr")).fit(X, y)


def test_a_table_encoder_names_the_column(frame):
    """An audit and ``peerloss fit`` use the encoder, so they do too; infinite values are an error."""
    X, y = frame
    X.loc[5, "price"] = np.inf
    with pytest.raises(InvalidInputError, match=r"column 'price' has infinity in 1 of 40 rows, .* row 5"):
        TableEncoder().fit(X)
    X.loc[5, "price"] = 1e200
    with pytest.raises(InvalidInputError, match="column 'price', row 5"):
        TableEncoder().fit(X)
    with pytest.raises(InvalidInputError, match="column 'price', row 5"):
        find_label_issues(X, y)


def test_an_audit_names_the_column_of_an_array(frame):
    """Columns without names are numbered from 0."""
    X, y = frame
    X.loc[5, "price"] = 1e200
    with pytest.raises(InvalidInputError, match="column 1, row 5"):
        find_label_issues(X.to_numpy(), y)
    with pytest.raises(InvalidInputError, match="`X` must have a column that varies"):
        find_label_issues(np.ones((40, 2)), y)


@pytest.mark.parametrize("label", [1e300, 2.0**53, np.inf], ids=str)
def test_labels_that_are_not_exact_are_rejected(frame, label):
    """Estimators and audits reject them, so no label becomes another class."""
    X, y = frame
    labels = np.where(y == 1, label, 0.0)
    with pytest.raises(ValueError, match=r"`y` must hold class labels|Input y contains infinity"):
        MODELS["network"].fit(X, labels)
    with pytest.raises(InvalidInputError, match="`y` must hold class labels"):
        find_label_issues(X, labels, estimator=LogisticRegression())


@pytest.mark.parametrize("parameter", ["alpha", "cv"])
def test_parameters_that_do_not_fit_a_float_are_named(frame, parameter):
    """``10**400`` raises an error that names the parameter."""
    X, y = frame
    with pytest.raises(InvalidInputError, match=f"`{parameter}` must be"):
        PeerClassifier(**{parameter: 10**400}).fit(X, y)
