"""The flag for workers who seem to guess: exact moments, and false positive rates by simulation."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from peerloss.crowd import _uninformative, dawid_skene, score_annotators
from peerloss.crowd._uninformative import EFFORTS, consensus
from peerloss.peer_prediction.shared_reports import SharedReports
from tests.crowd.crowds import coded, random_crowd


def leave_one_out(model, frame, row):
    """P(true label | the reports of the others on the task), from the model's confusions, in loops."""
    own = frame.loc[row]
    names = {name: code for code, name in enumerate(model.reports.labels)}
    posterior = model.class_prior.copy()
    same = frame[(frame["task"] == own["task"]) & (frame["worker"] != own["worker"])]
    for other in same.index:
        posterior = posterior * model.confusion[model.cells[other]]
    assert len(names) == len(posterior)
    return posterior / posterior.sum()


def average_worker(model, frame):
    """P(label | true label) of the average worker: the mean of the pooled matrix and of counts, in loops."""
    guess = np.bincount(frame["label"], minlength=3) / len(frame)
    counted = np.tile(guess, (3, 1))
    for row in frame.index:
        if (frame["task"] == frame.loc[row, "task"]).sum() > 1:
            counted[:, frame.loc[row, "label"]] += leave_one_out(model, frame, row)
    return (counted / counted.sum(axis=1, keepdims=True) + model.pooled_confusion) / 2


@pytest.mark.parametrize("effort", range(len(EFFORTS)))
@pytest.mark.parametrize("chunk", [5, 1 << 20])
def test_moments_equal_enumeration(monkeypatch, chunk, effort):
    """Mean, variance and third moment of G equal those over all answers, for each effort."""
    monkeypatch.setattr(_uninformative, "CHUNK", chunk)
    frame = random_crowd(3, n_tasks=5, n_workers=4, answered=0.9)
    model = dawid_skene(frame, max_iter=300)
    shared = SharedReports(coded(frame))
    found = consensus(shared, model)
    guess = np.bincount(frame["label"], minlength=3) / len(frame)
    informed = average_worker(model, frame)
    for code, worker in enumerate(model.reports.workers):
        rows = [
            row
            for row in frame.index[frame["worker"] == worker]
            if (frame["task"] == frame.loc[row, "task"]).sum() > 1
        ]
        others = np.array([leave_one_out(model, frame, row) for row in rows])
        chance = EFFORTS[effort] * others @ informed + (1 - EFFORTS[effort]) * guess
        payoff = others - others.mean(axis=0)
        tasks = np.arange(len(rows))
        answers = np.array(list(product(range(3), repeat=len(rows))))
        weight = np.array([chance[tasks, labels].prod() for labels in answers])
        value = np.array([payoff[tasks, labels].sum() for labels in answers])
        mean = weight @ value
        own = frame.loc[rows, "label"].to_numpy()
        assert weight.sum() == pytest.approx(1)
        # EM stops when the probabilities change by less than 1e-4.
        tolerance = {"abs": 2e-3}
        assert found.expected[effort, code] == pytest.approx(mean, **tolerance)
        assert found.variance[effort, code] == pytest.approx(weight @ (value - mean) ** 2, **tolerance)
        assert found.third[effort, code] == pytest.approx(weight @ (value - mean) ** 3, **tolerance)
        assert found.observed[code] == pytest.approx(payoff[tasks, own].sum(), **tolerance)
        assert found.log_likelihood[effort, code] == pytest.approx(np.log(chance[tasks, own]).sum(), abs=1e-2)


def test_threads_change_nothing():
    """The result is the same in one thread and in several."""
    frame = random_crowd(0, n_tasks=60)
    shared, model = SharedReports(coded(frame)), dawid_skene(frame)
    for one, two in zip(
        vars(consensus(shared, model)).values(),
        vars(consensus(shared, model, n_jobs=3)).values(),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


def crowd(rng, *, prior, accuracy, per_task, per_worker, n_tasks=1500):
    """Draw a crowd: the first quarter is half-informed, the next tenth spams, the others are honest."""
    k = len(prior)
    transition = np.full((k, k), (1 - accuracy) / (k - 1))
    np.fill_diagonal(transition, accuracy)
    truth = rng.choice(k, n_tasks, p=prior)
    noisy = prior @ transition
    slots = np.concatenate([rng.permutation(n_tasks) for _ in range(per_task)])
    n_workers = len(slots) // per_worker
    half, spam = n_workers // 4, n_workers // 4 + max(3, n_workers // 10)
    frames = []
    for w in range(n_workers):
        tasks = np.unique(slots[w * per_worker : (w + 1) * per_worker])
        n = len(tasks)
        label = (transition[truth[tasks]].cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
        if w < half:
            label = np.where(rng.random(n) < 0.5, label, rng.choice(k, n, p=noisy))
        elif w < spam:
            label = [np.full(n, rng.integers(k)), np.full(n, noisy.argmax()), rng.integers(k, size=n)][w % 3]
        frames.append(pd.DataFrame({"task": tasks, "worker": w, "label": label}))
    return pd.concat(frames, ignore_index=True), half, spam


@pytest.mark.parametrize(
    ("prior", "accuracy", "per_task", "per_worker"),
    [
        ([0.5, 0.5], 0.8, 3, 10),
        ([0.9, 0.1], 0.85, 3, 30),
        ([0.9, 0.1], 0.85, 10, 20),
        ([0.2] * 5, 0.6, 5, 50),
        ([0.6, 0.1, 0.1, 0.1, 0.1], 0.7, 10, 20),
    ],
)
def test_false_positives_stay_below_the_stated_rate(prior, accuracy, per_task, per_worker):
    """At most the stated share of half-informed workers is flagged, and few of the flagged are honest."""
    flagged_half = halves = flagged = flagged_spam = 0
    for seed in range(2):
        frame, half, spam = crowd(
            np.random.default_rng(seed),
            prior=np.array(prior),
            accuracy=accuracy,
            per_task=per_task,
            per_worker=per_worker,
        )
        flag = score_annotators(frame, n_bootstrap=20, random_state=0)["uninformative"].sort_index()
        halves += half
        flagged_half += flag[:half].sum()
        flagged_spam += flag[half:spam].sum()
        flagged += flag.sum()
    assert flagged_half <= 0.05 * halves
    assert flagged - flagged_spam <= 1 + 0.1 * flagged


def test_p_values_of_half_informed_workers_are_not_too_small():
    """About 5 % of half-informed workers have a p-value of at most 5 %, within three standard errors."""
    small = total = 0
    for seed in range(2):
        frame, half, _ = crowd(
            np.random.default_rng(seed), prior=np.full(4, 0.25), accuracy=0.7, per_task=6, per_worker=25
        )
        shared = SharedReports(coded(frame))
        found = consensus(shared, dawid_skene(frame))
        order = np.argsort(frame["worker"].unique())
        p = found.p_values(constant=shared.is_constant())[order][:half]
        small += (p <= 0.05).sum()
        total += half
    assert small <= 0.05 * total + 3 * np.sqrt(0.05 * 0.95 * total)
    assert small > 0, "a test that never rejects is not a test"


@pytest.mark.parametrize("kind", ["constant", "majority", "random"])
def test_spammers_with_many_tasks_are_flagged(kind):
    """Only the ten spammers among fifty workers with 200 tasks each are flagged."""
    rng = np.random.default_rng(1)
    truth = rng.choice(3, 1000, p=[0.5, 0.3, 0.2])
    frames = []
    for w in range(50):
        tasks = rng.choice(1000, 200, replace=False)
        label = np.where(rng.random(200) < 0.7, truth[tasks], rng.integers(3, size=200))
        if w < 10:
            label = {
                "constant": np.full(200, w % 3),
                "majority": np.zeros(200, int),
                "random": rng.integers(3, size=200),
            }[kind]
        frames.append(pd.DataFrame({"task": tasks, "worker": w, "label": label}))
    flag = score_annotators(pd.concat(frames), n_bootstrap=20, random_state=0)["uninformative"]
    assert flag[:10].sum() >= 9
    assert not flag[10:].any()


def test_few_answers_are_not_evidence():
    """A worker who gave the same label to three easy tasks is not flagged."""
    frame = random_crowd(0, n_tasks=60, accuracy=0.9)
    easy = pd.DataFrame([(t, "new", 1) for t in range(3)], columns=["task", "worker", "label"])
    frame = pd.concat([frame.astype({"worker": str}), easy])
    assert not score_annotators(frame, random_state=0)["uninformative"].any()
