"""Reports of workers combined with a model's probabilities."""

import numpy as np
import pandas as pd
import pytest

from peerloss.crowd import LabelAggregator
from peerloss.crowd.model_and_reports import combine_reports, majority_labels
from peerloss.noise import NoiseModel
from peerloss.peer_prediction import Reports


def crowd(seed=0, *, n=300, k=10, n_labels=2, n_workers=30, noise=0.4, strength=2.0):
    """Return reports of two labels per task, noisy probabilities of a model, and the true labels."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(k, size=n)
    accuracy = rng.uniform(0.4, 0.9, size=n_workers)
    rows = []
    for task in range(n):
        for worker in rng.choice(n_workers, size=n_labels, replace=False):
            wrong = (truth[task] + rng.integers(1, k)) % k
            rows.append((task, worker, truth[task] if rng.random() < accuracy[worker] else wrong))
    logits = rng.normal(size=(n, k))
    logits[np.arange(n), truth] += strength
    clean = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    table = pd.DataFrame(rows, columns=["task", "worker", "label"])
    return Reports.from_table(table), clean @ NoiseModel.uniform(k, noise).transition, truth


def right(probabilities, truth):
    return (probabilities.argmax(axis=1) == truth).mean()


def test_without_a_model_it_is_the_aggregator():
    """The probabilities are those of ``LabelAggregator``."""
    reports, _, _ = crowd()
    expected = LabelAggregator().fit(reports).probas_.to_numpy()
    assert combine_reports(reports).probabilities == pytest.approx(expected)


def test_two_labels_and_ten_classes_gain_from_a_model():
    """Together, reports and a model of noisy labels are better than each of them, and are calibrated."""
    gains, surplus = [], []
    for seed in range(3):
        reports, proba, truth = crowd(seed)
        found = combine_reports(reports, proba=proba).probabilities
        alone = combine_reports(reports).probabilities
        gains.append(right(found, truth) - max(right(alone, truth), right(proba, truth)))
        surplus.append(found.max(axis=1).mean() - right(found, truth))
        assert found.sum(axis=1) == pytest.approx(np.ones(len(truth)))
    assert min(gains) > 0.05
    assert abs(np.mean(surplus)) < 0.05


def test_features_alone_are_the_clean_posterior():
    """Noise is undone: the calibrated probabilities of new rows are more certain, in the same order."""
    reports, proba, truth = crowd(n=600, k=3, noise=0.3)
    found = combine_reports(reports, proba=proba)
    clean = found.transform(proba)
    assert clean == pytest.approx(found.from_features)
    sure = clean.max(axis=1)
    assert abs(sure.mean() - right(clean, truth)) < 0.06
    assert sure.mean() > proba.max(axis=1).mean() + 0.05


def test_known_labels_are_certain_and_inform_the_workers():
    """A gold task has its label; with gold labels the average worker's matrix is closer to the truth."""
    reports, proba, truth = crowd(n=200, k=3)
    gold = np.where(np.arange(200) < 100, truth, -1)
    found = combine_reports(reports, proba=proba, gold=gold)
    assert (found.probabilities[:100].argmax(axis=1) == truth[:100]).all()
    assert found.probabilities[:100].max(axis=1) == pytest.approx(np.ones(100))
    alone = combine_reports(reports, gold=gold)
    assert (alone.probabilities[:100].argmax(axis=1) == truth[:100]).all()


def test_the_average_worker_is_a_confusion_matrix():
    """Its rows sum to one, and its accuracy is that of the reports."""
    reports, proba, truth = crowd(n=600, k=3)
    matrix = combine_reports(reports, proba=proba).average_worker
    assert matrix.sum(axis=1) == pytest.approx(np.ones(3))
    correct = (reports.labels[reports.label_codes] == truth[reports.task_codes]).mean()
    assert np.diag(matrix).mean() == pytest.approx(correct, abs=0.06)


def test_evidence_tells_an_informative_model_from_a_random_one():
    """Random probabilities do not explain the reports better than the class frequencies."""
    reports, proba, _ = crowd(k=3)
    shuffled = np.random.default_rng(0).permutation(proba)
    good, bad = (combine_reports(reports, proba=p) for p in (proba, shuffled))
    assert good.log_evidence - good.log_evidence_without > 0.05
    assert bad.log_evidence - bad.log_evidence_without < 0.02


def test_ties_go_to_the_preferred_label():
    """Among the labels with the most votes, the preferred one counts; by default the first."""
    table = [(0, "a", "x"), (0, "b", "y"), (1, "a", "y"), (1, "b", "y"), (1, "c", "x")]
    reports = Reports.from_table(table)
    assert majority_labels(reports).tolist() == [0, 1]
    assert majority_labels(reports, np.array([[0.1, 0.9], [0.9, 0.1]])).tolist() == [1, 1]
