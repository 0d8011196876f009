"""Which rows to label next."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

from peerloss import NoiseModel, find_label_issues, flip_labels
from peerloss.audit import rank_next_labels
from peerloss.exceptions import InvalidInputError
from peerloss.posterior.label_gain import expected_gain


def world(k=3, n=400, seed=0, noise=0.2):
    """Return noisy probabilities, noisy labels and clean labels of overlapping classes."""
    rng = np.random.default_rng(seed)
    T = NoiseModel.uniform(k, noise)
    clean_proba = softmax(2.0 * rng.normal(size=(n, k)), axis=1)
    clean = np.array([rng.choice(k, p=p) for p in clean_proba])
    return clean_proba @ T.transition, flip_labels(clean, T, random_state=seed), clean


def reports_of(clean, n_labels, k, rng, accuracy=0.65):
    rows = [
        (task, f"w{worker}", z if rng.random() < accuracy else (z + rng.integers(1, k)) % k)
        for task, z in enumerate(clean)
        for worker in rng.choice(10, size=n_labels, replace=False)
    ]
    return pd.DataFrame(rows, columns=["task", "worker", "label"])


@pytest.mark.parametrize("k", [2, 3])
def test_gain_is_that_of_the_posterior_and_the_estimated_noise(k):
    """The column is the expected gain of a label with the estimated T, and it orders the result."""
    proba, noisy, _ = world(k)
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    ranked = rank_next_labels(audit)
    assert ranked["gain"].is_monotonic_decreasing
    assert ranked["gain"].sort_index().tolist() == audit.table["gain"].tolist()
    posterior = audit.evidence.posterior().clean_given_label(slice(None))
    assert posterior.sum(axis=1) == pytest.approx(np.ones(400))
    assert audit.table["gain"].to_numpy() == pytest.approx(expected_gain(posterior, audit.noise.transition))
    same = rank_next_labels(audit, annotator=audit.noise.transition)["gain"].sort_index()
    assert same.to_numpy() == pytest.approx(audit.table["gain"].to_numpy())


def test_a_perfect_annotator_gains_the_entropy():
    """Doubtful rows come first: neither rows that are certainly right nor those certainly wrong."""
    proba, noisy, _ = world(2)
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    ranked = rank_next_labels(audit, annotator=1.0)
    first = ranked["p_error"].head(20)
    assert (np.abs(first - 0.5) < np.abs(ranked["p_error"].tail(300) - 0.5).min() + 1e-9).all()


def test_rows_without_a_label_are_ranked_too():
    """Their posterior is that of the features, with the noise undone; their index is kept."""
    proba, noisy, _ = world(3)
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    new = pd.DataFrame([[0.8, 0.1, 0.1], [0.36, 0.34, 0.3]], index=["sure", "unsure"])
    ranked = rank_next_labels(audit, unlabelled=new)
    assert len(ranked) == 402
    gain = ranked.loc[["sure", "unsure"], "gain"]
    assert gain["unsure"] > gain["sure"]
    assert not ranked.loc[["sure", "unsure"], "labelled"].any()
    assert ranked.loc["sure", ["suggested"]].tolist() == [0]
    assert ranked.loc["sure", "p_suggested"] > 0.85  # above .8: the estimated noise is undone
    assert ranked.loc["sure", ["given", "p_error"]].isna().all()


def test_labels_in_the_order_of_gain_are_worth_more_than_random_ones():
    """With several annotators, adding a label to the first tasks corrects more labels than to any tasks."""
    better = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        proba, _, clean = world(4, n=300, seed=seed)
        table = reports_of(clean, 3, 4, rng)
        seen, rest = table.groupby("task").head(1), table.groupby("task").tail(2)
        audit = find_label_issues(labels=seen, pred_proba=proba)
        tasks = {"gain": rank_next_labels(audit).index[:80], "random": rng.permutation(300)[:80]}
        right = {}
        for order, chosen in tasks.items():
            more = pd.concat([seen, rest[rest["task"].isin(chosen)]])
            labels = find_label_issues(labels=more, pred_proba=proba).relabel()[1]
            right[order] = (labels.loc[range(300)].to_numpy() == clean).mean()
        better.append(right["gain"] - right["random"])
    assert np.mean(better) > 0.02


def test_known_rows_gain_nothing():
    """A row with a gold label comes last."""
    proba, noisy, clean = world(3)
    audit = find_label_issues(labels=noisy, pred_proba=proba, gold={5: clean[5]})
    assert audit.table["gain"][5] == 0.0
    assert rank_next_labels(audit, annotator=0.9)["gain"][5] == pytest.approx(0.0, abs=1e-12)


def test_unknown_rates_use_a_perfect_annotator():
    """If the noise cannot be estimated, the gain is the entropy of the model's probabilities."""
    rng = np.random.default_rng(0)
    proba = rng.dirichlet(np.ones(3), size=100)
    with pytest.warns(UserWarning, match="cannot be estimated"):
        audit = find_label_issues(labels=rng.integers(3, size=100), pred_proba=proba)
    assert audit.table["gain"].to_numpy() == pytest.approx(expected_gain(proba, 1.0))
    ranked = rank_next_labels(audit, unlabelled=proba[:2])
    assert ranked[~ranked["labelled"]]["gain"].sort_index().to_numpy() == pytest.approx(
        expected_gain(proba[:2], 1.0)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"annotator": 1.2}, r"`annotator` must lie in \[0, 1\]; got 1.2"),
        ({"annotator": np.eye(2)}, r"`annotator` must be a probability or a matrix .* \(3, 3\); got shape"),
        ({"annotator": np.full((3, 3), 0.5)}, "`annotator` must hold probabilities that sum to 1"),
        ({"unlabelled": np.full((4, 2), 0.5)}, "`unlabelled` must have one column for each class"),
    ],
)
def test_bad_arguments_are_named(options, message):
    """The message names the argument and what was expected."""
    proba, noisy, _ = world(3, n=100)
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    with pytest.raises(InvalidInputError, match=message):
        rank_next_labels(audit, **options)


def test_reports_alone_cannot_rank_rows_without_labels():
    """Without a model nothing is known about rows that nobody labelled."""
    rng = np.random.default_rng(0)
    audit = find_label_issues(labels=reports_of(rng.integers(2, size=50), 3, 2, rng))
    with pytest.raises(InvalidInputError, match="`unlabelled` needs an audit of a model's probabilities"):
        rank_next_labels(audit, unlabelled=np.full((2, 2), 0.5))


def test_an_audit_made_by_hand_is_refused():
    """Without its evidence, an audit can neither be ranked nor updated."""
    proba, noisy, _ = world(3, n=100)
    bare = replace(find_label_issues(labels=noisy, pred_proba=proba), evidence=None)
    with pytest.raises(InvalidInputError, match="`audit` does not contain its probabilities"):
        rank_next_labels(bare)
    with pytest.raises(InvalidInputError, match="does not contain its probabilities and cannot be updated"):
        bare.update({0: 1})
