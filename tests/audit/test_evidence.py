"""Known labels: they decide their rows, inform the noise, and need no training."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax
from sklearn.linear_model import LogisticRegression

from peerloss import NoiseModel, find_label_issues, flip_labels
from peerloss.exceptions import InvalidInputError

NOISES = {2: NoiseModel.binary(0.1, 0.3), 3: NoiseModel.uniform(3, 0.2)}


def world(k=3, n=1000, seed=0, noise=None):
    """Return exact noisy probabilities, noisy labels and clean labels of overlapping classes."""
    rng = np.random.default_rng(seed)
    T = NOISES[k] if noise is None else noise
    clean_proba = softmax(2.0 * rng.normal(size=(n, k)), axis=1)
    clean = np.array([rng.choice(k, p=p) for p in clean_proba])
    return clean_proba @ T.transition, flip_labels(clean, T, random_state=seed), clean


@pytest.mark.parametrize("k", [2, 3])
def test_known_rows_are_decided(k):
    """p_error is 0 or 1, the suggestion is the known label, and wrong labels are flagged."""
    proba, noisy, clean = world(k, n=300)
    gold = pd.Series(clean[:50])
    table = find_label_issues(labels=noisy, pred_proba=proba, gold=gold).table.head(50)
    wrong = noisy[:50] != clean[:50]
    assert table["p_error"].tolist() == wrong.astype(float).tolist()
    assert table["flagged"].tolist() == wrong.tolist()
    assert (table["suggested"][wrong] == clean[:50][wrong]).all()
    assert table["p_suggested"].tolist() == wrong.astype(float).tolist()


@pytest.mark.parametrize("k", [2, 3])
def test_checking_the_most_suspicious_rows_does_not_bias_the_noise(k):
    """Nearly all of them are wrong, but the rates of all rows stay right; they become more certain."""
    errors, widths, biases = [], [], []
    for seed in range(4):
        proba, noisy, clean = world(k, seed=seed)
        first = find_label_issues(labels=noisy, pred_proba=proba)
        looked_at = first.table["rank"].to_numpy() <= 150
        second = first.update(pd.Series(clean[looked_at], index=np.flatnonzero(looked_at)))
        assert (noisy != clean)[looked_at].mean() > 0.6
        truth = NOISES[k].transition
        errors.append([np.abs(a.noise.transition - truth).mean() for a in (first, second)])
        widths.append([(a.noise_high - a.noise_low).mean() for a in (first, second)])
        rest = ~looked_at
        biases.append(second.table["p_error"][rest].mean() - (noisy != clean)[rest].mean())
    before, after = np.mean(errors, axis=0)
    assert after < before + 0.002
    assert np.mean(widths, axis=0)[1] < np.mean(widths, axis=0)[0]
    assert abs(np.mean(biases)) < 0.03


def test_correct_labels_make_clean_data_more_probable():
    """If all known labels are right, "no label is wrong" gains; one wrong label excludes it."""
    proba, noisy, _ = world(3, n=300, noise=NoiseModel.uniform(3, 0.0))
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    right = audit.update(np.arange(300) < 100)
    assert right.no_noise >= audit.no_noise
    wrong = audit.update({0: (noisy[0] + 1) % 3})
    assert wrong.no_noise == 0.0
    assert wrong.error_rate_interval[0] >= 1 / 300


@pytest.mark.parametrize("form", ["series", "dict", "array", "mask", "indexed"])
def test_forms_of_gold(form):
    """A Series or dictionary by name, one entry per row, and a mask of correct labels mean the same."""
    proba, noisy, _ = world(3, n=200)
    names = [f"r{i}" for i in range(200)]
    y = pd.Series(noisy, index=names)
    known = {f"r{i}": int(noisy[i]) for i in (3, 8)}
    entries = np.array([known.get(name) for name in names], dtype=object)
    gold = {
        "series": pd.Series({"r8": known["r8"], "r3": known["r3"], "r9": None}, dtype=object),
        "dict": known,
        "array": entries,
        "mask": np.isin(names, ["r3", "r8"]),
        "indexed": pd.Series(entries, index=names),
    }[form]
    expected = find_label_issues(labels=y, pred_proba=proba, gold=known).table
    found = find_label_issues(labels=y, pred_proba=proba).update(gold).table
    pd.testing.assert_frame_equal(found, expected)
    assert found["p_error"][["r3", "r8"]].tolist() == [0.0, 0.0]


def test_updates_add_up():
    """Labels that were known before remain known; for the same row the later one counts."""
    proba, noisy, _ = world(3, n=200)
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    step_by_step = audit.update({0: noisy[0]}).update({1: noisy[1]}).update({0: (noisy[0] + 1) % 3})
    at_once = audit.update({0: (noisy[0] + 1) % 3, 1: noisy[1]})
    pd.testing.assert_frame_equal(step_by_step.table, at_once.table)
    pd.testing.assert_frame_equal(audit.update(None).table, audit.table)


def test_an_audit_can_be_stored_and_updated_later():
    """A pickled audit is updated without training."""
    proba, noisy, _ = world(3, n=200)
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    again = pickle.loads(pickle.dumps(audit))  # noqa: S301 - its own bytes
    pd.testing.assert_frame_equal(again.update({0: 0}).table, audit.update({0: 0}).table)


def test_the_second_round_is_kept():
    """After ``refit``, the update uses the probabilities of the second round and does not train."""
    rng = np.random.default_rng(0)
    clean = np.arange(200) % 2
    X = rng.normal(size=(200, 3)) + 2.0 * clean[:, None]
    noisy = flip_labels(clean, NOISES[2], random_state=0)
    audit = find_label_issues(X, noisy, estimator=LogisticRegression(), refit=True)
    updated = audit.update({0: clean[0]})
    assert updated.table["p_error"][0] == float(noisy[0] != clean[0])
    ranks = [table["p_error"][1:].rank() for table in (audit.table, updated.table)]
    assert ranks[0].corr(ranks[1]) > 0.99


def test_known_labels_of_several_annotators():
    """They decide their rows, and rows that the same workers labelled change, too."""
    rng = np.random.default_rng(0)
    clean = rng.integers(3, size=200)
    rates = {"ann": 0.1, "bob": 0.4, "cy": 0.5}
    wide = pd.DataFrame(
        {name: flip_labels(clean, NoiseModel.uniform(3, e), random_state=rng) for name, e in rates.items()}
    )
    audit = find_label_issues(labels=wide)
    updated = audit.update(pd.Series(clean[:100]))
    given = audit.table["given"].to_numpy()[:100]
    assert updated.table["p_error"][:100].tolist() == (given != clean[:100]).astype(float).tolist()
    right = [(a.relabel()[1].to_numpy()[100:] == clean[100:]).mean() for a in (audit, updated)]
    assert right[1] >= right[0]
    at_once = find_label_issues(labels=wide, gold=pd.Series(clean[:100]))
    pd.testing.assert_frame_equal(at_once.table, updated.table)


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ([1, 0], r"`gold` must have one entry per row, 60 in all; got shape \(2,\). Use None or NaN"),
        ({"r0": "bird"}, r"`gold` must hold labels of the audit, \['cat', 'dog'\]; got 'bird'"),
        ({7: "cat"}, r"`gold` must name rows of the audit, such as 'r0'; 7 is not one"),
        (pd.Series(["cat", "dog"], index=["r1", "r1"]), "`gold` must not repeat a name, .* 'r1' repeats"),
    ],
)
def test_bad_gold_is_refused(gold, message):
    """The message names the argument, what was expected and what was received."""
    proba, noisy, _ = world(2, n=60)
    y = pd.Series(np.array(["cat", "dog"])[noisy], index=[f"r{i}" for i in range(60)])
    with pytest.raises(InvalidInputError, match=message):
        find_label_issues(labels=y, pred_proba=proba, gold=gold)


def test_rows_that_share_a_name_need_one_entry_per_row():
    """A name that occurs twice does not say which row is known."""
    proba, noisy, _ = world(2, n=60)
    y = pd.Series(noisy, index=["a", "a", *range(58)])
    with pytest.raises(InvalidInputError, match="the index of the rows must not repeat a name"):
        find_label_issues(labels=y, pred_proba=proba, gold={"a": 1})
    found = find_label_issues(labels=y, pred_proba=proba, gold=[1, *[None] * 59])
    assert found.table["p_error"].iloc[0] == float(noisy[0] != 1)
