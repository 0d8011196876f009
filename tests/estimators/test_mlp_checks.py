"""The parameters of RobustMLPClassifier: errors and deprecated names."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline

from peerloss import NoiseModel, RobustMLPClassifier
from peerloss.exceptions import InvalidInputError
from tests.estimators.mlp_task import data, fast


def test_invalid_data_have_clear_errors():
    """One class, predicting before fitting, another number of features, fewer rows than folds."""
    X, y, _ = data(50)
    with pytest.raises(InvalidInputError, match="at least two classes"):
        fast().fit(X, np.zeros(50))
    with pytest.raises(NotFittedError):
        fast().predict(X)
    with pytest.raises(ValueError, match="features"):
        fast(max_steps=5).fit(X, y).predict(X[:, :2])
    with pytest.raises(InvalidInputError, match="`cv` must be at most"):
        fast(alpha="auto").fit(X[:3], [0, 1, 1])
    with pytest.raises(InvalidInputError, match="`validation_fraction`"):
        fast(early_stopping=True).fit(X[:2], [0, 1])


@pytest.mark.parametrize(
    ("parameter", "value", "message"),
    [
        ("loss", "huber", "`loss` must be one of 'peer', 'backward', 'forward', 'dmi'"),
        ("base", "zero_one", "`base` must be one of 'cross_entropy'"),
        ("alpha", np.nan, "`alpha` must be a finite number; got nan"),
        ("alpha", [0.5, np.nan], "`alpha` must be a finite number"),
        ("alpha", "best", "`alpha` must be a finite number; got 'best'.*'auto'"),
        ("scoring_alpha", None, "`scoring_alpha`"),
        ("peers", "both", "`peers` must be one of"),
        ("hidden_layer_sizes", (8, 0), "`hidden_layer_sizes`"),
        ("hidden_layer_sizes", None, "`hidden_layer_sizes`"),
        ("batch_size", 0, "`batch_size`"),
        ("max_steps", 1.5, "`max_steps`"),
        ("n_members", 0, "`n_members`"),
        ("cv", 1, "`cv`"),
        ("cv", "five", "`cv` must be a number of folds"),
        ("cv", 2.5, "`cv` must be a number of folds"),
        ("learning_rate", -1.0, "`learning_rate`"),
        ("weight_decay", np.inf, "`weight_decay`"),
        ("eps", 2.0, "`eps`"),
        ("validation_fraction", 1.0, "`validation_fraction`"),
        ("warm_up_fraction", 0.0, "`warm_up_fraction`"),
        ("device", "toaster", "`device`"),
        ("random_state", "seed", "`random_state`"),
    ],
)
def test_bad_parameters_are_named_in_fit(parameter, value, message):
    """The constructor accepts any value; fit names the parameter, the allowed values and the given one."""
    X, y, _ = data(50)
    model = fast(**{parameter: value}) if parameter != "loss" else fast(value)
    with pytest.raises(InvalidInputError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "nets_")


@pytest.mark.parametrize(
    ("loss", "settings", "message"),
    [
        ("backward", {}, "`noise` must be given for loss='backward'"),
        ("forward", {"noise": "guess"}, "`noise` must be one of 'estimate'"),
        ("backward", {"noise": NoiseModel.uniform(3, 0.1)}, "`noise` must be for the 2 classes"),
        ("forward", {"noise": [[1, 2], [3, 4]]}, "`noise` must be a NoiseModel"),
    ],
)
def test_losses_check_their_settings(loss, settings, message):
    """The error names the missing or wrong setting of a loss."""
    X, y, _ = data(50)
    with pytest.raises(InvalidInputError, match=message):
        fast(loss, **settings).fit(X, y)


@pytest.mark.parametrize(
    ("old", "new", "advice"),
    [
        (
            {"loss": "surrogate", "noise": np.eye(2)},
            {"loss": "backward", "noise": np.eye(2)},
            'loss="backward"',
        ),
        ({"loss": "plain"}, {"alpha": 0}, 'loss="peer", alpha=0'),
        ({"loss": "plain", "base": "mae"}, {"alpha": 0, "base": "mae"}, 'loss="peer", alpha=0'),
        ({"loss": "gce"}, {"alpha": 0, "base": "gce"}, 'loss="peer", alpha=0, base="gce"'),
        ({"loss": "symmetric"}, {"alpha": 0, "base": "sigmoid"}, 'loss="peer", alpha=0, base="sigmoid"'),
        (
            {"loss": "symmetric", "base": "ramp"},
            {"alpha": 0, "base": "ramp"},
            'loss="peer", alpha=0, base="ramp"',
        ),
    ],
    ids=str,
)
def test_deprecated_losses_warn_and_work(old, new, advice):
    """A deprecated loss warns with its replacement, at the line of the caller, and gives the same nets."""
    X, y, _ = data(100)
    message = rf'`loss="{old["loss"]}"` is deprecated .* Use `{advice}`'
    with pytest.warns(DeprecationWarning, match=message) as caught:
        deprecated = fast(max_steps=20, **old).fit(X, y)
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(
        deprecated.predict_proba(X), fast(max_steps=20, **new).fit(X, y).predict_proba(X)
    )


def test_the_deprecated_symmetric_loss_checks_its_base():
    """Only symmetric base losses are accepted."""
    X, y, _ = data(50)
    with pytest.raises(InvalidInputError, match="`base` must be one of 'sigmoid'"):
        fast("symmetric", base="hinge").fit(X, y)


def test_warm_start_fraction_is_a_deprecated_name():
    """The old keyword warns and sets ``warm_up_fraction``."""
    with pytest.warns(DeprecationWarning, match="Use `warm_up_fraction`"):
        model = RobustMLPClassifier("dmi", warm_start_fraction=0.25)
    assert model.get_params()["warm_up_fraction"] == 0.25


def test_warm_start_fraction_can_be_set_and_read():
    """``set_params``, also of a pipeline, and the attribute accept the old name and warn at the caller."""
    model = RobustMLPClassifier("dmi")
    pipeline = make_pipeline(model)
    with pytest.warns(DeprecationWarning, match="Use `warm_up_fraction`") as caught:
        assert model.set_params(warm_start_fraction=0.25, cv=3) is model
    assert caught[0].filename == __file__
    assert (model.warm_up_fraction, model.cv) == (0.25, 3)
    with pytest.warns(DeprecationWarning, match="Use `warm_up_fraction`") as caught:
        assert model.warm_start_fraction == 0.25
    assert caught[0].filename == __file__
    with pytest.warns(DeprecationWarning, match="Use `warm_up_fraction`"):
        pipeline.set_params(robustmlpclassifier__warm_start_fraction=0.75)
    assert clone(model).warm_up_fraction == 0.75
    assert "warm_start_fraction" not in model.get_params()
    with pytest.raises(ValueError, match="Invalid parameter 'warm'"):
        model.set_params(warm=1)
