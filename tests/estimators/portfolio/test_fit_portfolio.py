"""The portfolio: folds, networks and candidates that diverge."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from peerloss import _device
from peerloss.estimators import PeerClassifier
from peerloss.estimators.portfolio import _candidates, _fit_portfolio
from tests.estimators.binary_task import task


def test_groups_are_kept_together(monkeypatch):
    """No group is split between the training and the held-out part of a fold."""
    X, _, noisy = task(200)
    groups = np.arange(200) // 4
    seen = []
    fit_fold = _fit_portfolio.fit_fold

    def spy(estimator, data, train, test):
        seen.append(set(groups[train]) & set(groups[test]))
        return fit_fold(estimator, data, train, test)

    monkeypatch.setattr(_fit_portfolio, "fit_fold", spy)
    PeerClassifier(random_state=0).fit(X, noisy, groups=groups)
    assert seen
    assert not any(seen)


@pytest.mark.filterwarnings("ignore:nothing can be learned")  # 40 rows of 2,048 features
@pytest.mark.parametrize(
    ("device", "n_features", "gpu", "expected"),
    [
        ("auto", 2047, True, "cpu"),
        ("auto", 2048, True, "cuda"),
        ("auto", 2048, False, "cpu"),
        ("cpu", 2048, True, "cpu"),
    ],
)
def test_the_networks_train_on_the_chosen_device(monkeypatch, device, n_features, gpu, expected):
    """``"auto"`` is the GPU for wide tables, if there is one."""
    seen = []

    def spy(data, folds, *, seed, device):  # noqa: ARG001 (the signature of fit_networks)
        seen.append(device)
        return {}

    monkeypatch.setattr(_fit_portfolio, "fit_networks", spy)
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"only": LogisticRegression()})
    monkeypatch.setattr(_device, "_has_usable_gpu", lambda: gpu)
    X = np.random.default_rng(0).normal(size=(40, n_features))
    PeerClassifier(device=device, cv=2, random_state=0).fit(X, X[:, 0] > 0)
    assert seen == [expected]


def test_folds_do_not_train_on_held_out_rows(monkeypatch):
    """Each fold trains without its held-out rows."""
    X, _, noisy = task(100)
    fit_fold = _fit_portfolio.fit_fold

    def check(estimator, data, train, test):
        assert not set(train) & set(test)
        return fit_fold(estimator, data, train, test)

    monkeypatch.setattr(_fit_portfolio, "fit_fold", check)
    PeerClassifier(random_state=0).fit(X, noisy)


@pytest.mark.filterwarnings("ignore:nothing can be learned")  # five trees, 100 rows
@pytest.mark.parametrize(
    ("options", "grouped", "expected"),
    [({}, False, True), ({"cv": None}, False, True), ({"cv": KFold(3)}, False, False), ({}, True, False)],
    ids=["folds by number", "default", "splitter", "groups"],
)
def test_out_of_bag_probabilities_need_independent_rows(monkeypatch, options, grouped, expected):
    """Forests are fitted out of bag; with a splitter or groups they are cross-fitted on the folds."""
    forest = RandomForestClassifier(5, random_state=0)
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"only": forest})
    monkeypatch.setattr(_fit_portfolio, "fit_networks", lambda *_, **__: {})
    X, _, noisy = task(100)
    groups = np.arange(100) // 4 if grouped else None
    model = PeerClassifier(random_state=0, **options).fit(X, noisy, groups=groups)
    assert (len(model.members_[0].models) == 1) is expected


@pytest.mark.parametrize(("least", "expected"), [(100, True), (101, False)])
def test_wide_networks_need_many_rows(monkeypatch, least, expected):
    """From the given number of rows on, wide networks compete with the small ones."""
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"only": LogisticRegression()})
    monkeypatch.setattr(_candidates, "WIDE_NETWORKS", ((least, 16, 20),))
    X, _, noisy = task(100)
    names = PeerClassifier(cv=2, random_state=0).fit(X, noisy).report_.candidates.index
    assert ("wide network, sigmoid peer" in names) is expected
    assert "network, sigmoid peer" in names


def test_a_network_that_diverges_is_left_out_and_named(monkeypatch):
    """The other candidates are used, and the report names the network."""
    wild = {"wild": {"base": "unhinged", "alpha": 5.0, "learning_rate": 1e30, "weight_decay": 0.0}}
    monkeypatch.setattr(_candidates, "candidate_networks", lambda: wild)
    X, y, noisy = task(120)
    model = PeerClassifier(random_state=0).fit(X, noisy)
    assert model.report_.diverged == ("wild",)
    assert "Diverged and left out: wild" in str(model.report_)
    assert "wild" not in model.report_.candidates.index
    assert model.score(X, y) > 0.85


def test_calibration_does_not_depend_on_the_unit_of_the_weights(monkeypatch):
    """Weights that sum to one calibrate like weights of one per row, if they fit the same model."""
    monkeypatch.setattr(_fit_portfolio, "fit_networks", lambda *_, **__: {})
    model = RandomForestClassifier(20, random_state=0)
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"only": model})
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = (X[:, 0] + rng.normal(size=120) > 0).astype(int) + (X[:, 1] > 1)
    whole, share = (
        PeerClassifier(random_state=0).fit(X, y, sample_weight=np.full(120, w)) for w in (1.0, 1.0 / 120.0)
    )
    np.testing.assert_allclose(share.oof_proba_, whole.oof_proba_, atol=1e-8)
