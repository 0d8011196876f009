"""Reports of progress while models are fitted."""

import re

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peerloss import (
    CostSensitiveSVC,
    MarginPerceptron,
    NoiseModel,
    PeerBoostingClassifier,
    PeerClassifier,
    PeerPlugInClassifier,
    PlainLoss,
    RobustMLPClassifier,
    find_label_issues,
    flip_labels,
)
from peerloss._progress import listening
from peerloss.audit import find_multilabel_issues
from peerloss.models import MLP
from peerloss.training import Net, train, train_nets


@pytest.fixture(scope="module")
def task():
    X = np.random.default_rng(0).normal(size=(120, 3))
    return X, flip_labels((X[:, 0] > 0).astype(int), NoiseModel.binary(0.1, 0.3), random_state=0)


def boost(X, y):
    pytest.importorskip("lightgbm", reason="needs lightgbm")
    return PeerBoostingClassifier(n_estimators=5, n_folds=2, random_state=0, verbose=True).fit(X, y)


def model(n_jobs=None):
    return make_pipeline(StandardScaler(), PeerClassifier(cv=2, n_jobs=n_jobs, random_state=0))


def reports_of(call):
    """Return the reports of a call, as (label, share), and its result."""
    reports = []
    with listening(lambda label, share: reports.append((label, share))):
        result = call()
    shares = [share for _, share in reports]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    return reports, result


@pytest.mark.parametrize("n_jobs", [None, 2])
def test_listening_changes_nothing(task, n_jobs):
    """Predictions are bit-equal; models, networks, calibration and noise are reported in this order."""
    X, y = task
    silent = model().fit(X, y)
    reports, listened = reports_of(lambda: model(n_jobs).fit(X, y))
    assert np.array_equal(silent.predict_proba(X), listened.predict_proba(X))
    phases = list(dict.fromkeys(label for label, _ in reports))
    assert phases == ["fitting models", "training networks", "calibrating", "estimating the noise"]
    by_phase = {name: [share for label, share in reports if label == name] for name in phases}
    assert len(by_phase["fitting models"]) > 10
    assert len(by_phase["training networks"]) > 10
    # Steps inside a phase are small, so the line never stands still for long.
    assert np.diff([share for _, share in reports]).max() < 0.15


def test_an_audit_goes_on_after_the_fit(task):
    """The classifier's phases are the first part of the audit's, and the noise is estimated after them."""
    reports, _ = reports_of(lambda: find_label_issues(*task, cv=2))
    labels = [label for label, _ in reports]
    assert labels[0] == "fitting"
    assert "training networks" in labels
    assert reports[-1] == ("estimating the noise", pytest.approx(0.93))
    assert max(share for label, share in reports if label == "training networks") < 0.9


@pytest.mark.parametrize("alpha", [1.0, "auto"])
def test_networks_report_their_steps(task, alpha):
    """The search for α is a phase of its own, and its parts do not start again from zero."""
    network = RobustMLPClassifier(alpha=alpha, max_steps=300, cv=2, random_state=0)
    reports, _ = reports_of(lambda: network.fit(*task))
    assert reports[-1] == ("training networks", 1.0)
    assert ("searching alpha" in {label for label, _ in reports}) == (alpha == "auto")
    assert len({share for _, share in reports}) > (10 if alpha == "auto" else 3)


def test_the_listener_is_removed_after_the_block(task):
    """The listener is also removed after a failed fit."""
    X, y = task
    reports = []
    with (
        pytest.raises(ValueError, match="metric"),
        listening(lambda *report: reports.append(report)),
    ):
        PeerClassifier(metric="nonsense").fit(X, y)
    model().fit(X, y)
    assert not reports


@pytest.mark.parametrize(
    ("call", "title"),
    [
        (lambda X, y: PeerClassifier(cv=2, verbose=True).fit(X, y), "PeerClassifier"),
        (lambda X, y: find_label_issues(X, y, cv=2, verbose=True), "audit"),
        (lambda X, y: RobustMLPClassifier(max_steps=50, verbose=True).fit(X, y), "RobustMLPClassifier"),
        (
            lambda X, y: PeerPlugInClassifier(LogisticRegression(), cv=2, verbose=True).fit(X, y),
            "PeerPlugInClassifier",
        ),
        (lambda X, y: MarginPerceptron(cv=2, verbose=True).fit(X, y), "MarginPerceptron"),
        (lambda X, y: CostSensitiveSVC(cv=2, verbose=True).fit(X, y), "CostSensitiveSVC"),
        (boost, "PeerBoostingClassifier"),
        (
            lambda X, y: find_multilabel_issues(
                X, np.column_stack([y, 1 - y]), estimator=LogisticRegression(), verbose=True
            ),
            "audit",
        ),
        (
            lambda X, y: train_nets(X, [Net(y, random_state=0)], n_classes=2, max_steps=50, verbose=True),
            "training networks",
        ),
        (
            lambda X, y: train(
                MLP(3, (4,), 2), PlainLoss(), torch.as_tensor(X).float(), torch.as_tensor(y), max_steps=5,
                verbose=True,
            ),
            "training",
        ),
    ],
    ids=["classifier", "audit", "network", "plug-in", "PAM", "C-SVM", "boosting", "labels", "nets", "loop"],
)  # fmt: skip
def test_verbose_prints_on_stderr_only(task, capsys, call, title):
    """Outside a terminal there is a line per phase and one at the end, under one title."""
    call(*task)
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert all(line.startswith(f"{title}: ") for line in lines)
    assert re.search(r": .*\b0 %, \d:\d\d elapsed, time left not known$", lines[0])
    assert lines[-1].startswith(f"{title}: finished in ")


def test_nothing_is_printed_by_default(task, capsys):
    """`verbose` is off unless it is asked for."""
    find_label_issues(*task, cv=2)
    assert capsys.readouterr() == ("", "")
