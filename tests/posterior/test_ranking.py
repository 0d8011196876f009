"""Two classes: the probability that a label is wrong, by class-conditional noise and near the boundary."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import beta
from sklearn.metrics import roc_auc_score

from peerloss.audit import find_label_issues
from peerloss.posterior import CleanPosterior
from peerloss.posterior.boundary_noise import BoundaryPosterior
from peerloss.posterior.label_posterior import label_posterior
from peerloss.posterior.rate_curves import KNOTS, RankScale, RatePairs


def scored(e_neg, e_pos, n=4000, *, shift=0.0, seed=0):
    """Return probabilities as of a regularised linear model, noisy labels and clean labels."""
    rng = np.random.default_rng(seed)
    log_odds = 4.0 * rng.normal(size=n) + shift
    clean = rng.random(n) < expit(log_odds)
    noisy = np.where(rng.random(n) < np.where(clean, e_pos, e_neg), ~clean, clean)
    one = expit(0.4 * log_odds)
    return np.column_stack([1 - one, one]), noisy.astype(np.int64), clean.astype(np.int64)


def identity_scale():
    """Return a scale whose z is the score, and the curve whose log-odds are z."""
    scores = np.linspace(-3.0, 3.0, 61)
    return RankScale(scores, scores), np.zeros((1, len(KNOTS) + 2))


def only_pair(e_neg, e_pos):
    """Return the posterior that is certain of one pair of rates; P(clean = 1) is σ(score)."""
    scale, curve = identity_scale()
    return CleanPosterior(
        RatePairs(np.array([[e_neg, e_pos]]), np.ones(1), np.ones((1, 2)), curve, 0.0), scale
    )


@pytest.mark.parametrize("rates", [(0.1, 0.1), (0.1, 0.3), (0.3, 0.1), (0.02, 0.4)])
def test_rates_are_where_the_labels_level_off(rates):
    """If the score does not level off by itself, both rates are found to within .06."""
    proba, noisy, _ = scored(*rates)
    assert label_posterior(proba, noisy).noise.flip_rates == pytest.approx(rates, abs=0.06)


@pytest.mark.parametrize("shift", [-3.0, 3.0])
def test_a_small_class_is_not_taken_for_noise(shift):
    """For unequal classes with equal rates, the estimated rates differ by at most .08."""
    proba, noisy, clean = scored(0.2, 0.2, shift=shift)
    found = label_posterior(proba, noisy)
    e_neg, e_pos = found.noise.flip_rates
    assert abs(e_neg - e_pos) < 0.08
    assert found.clean_prior[1] == pytest.approx(clean.mean(), abs=0.05)


def test_p_error_is_calibrated():
    """Its mean is the share of wrong labels, overall and among rows with p_error above ½."""
    proba, noisy, clean = scored(0.15, 0.3)
    p_error, wrong = label_posterior(proba, noisy).p_error, noisy != clean
    assert p_error.mean() == pytest.approx(wrong.mean(), abs=0.03)
    likely = p_error > 0.5
    assert p_error[likely].mean() == pytest.approx(wrong[likely].mean(), abs=0.1)


def test_posterior_is_bayes_rule_for_one_candidate():
    """A single candidate gives p·T[:, ỹ] over its sum, by hand."""
    only, score = only_pair(0.1, 0.3), np.array([-0.5])
    p = expit(-0.5)
    assert only.tabulate().transform(score)[0] == pytest.approx(p)
    given_one, given_zero = (only.tabulate_given_label(label).transform(score)[0] for label in (1, 0))
    assert given_one == pytest.approx(p * 0.7 / (p * 0.7 + (1 - p) * 0.1))
    assert given_zero == pytest.approx(p * 0.3 / (p * 0.3 + (1 - p) * 0.9))


def test_boundary_noise_depends_on_the_clean_posterior():
    """Labels flip with probability 2η(1 − η); by hand."""
    scale, curve = identity_scale()
    only, p = BoundaryPosterior(1.0, curve, np.ones(1), scale), expit(-0.5)
    flip = 2 * p * (1 - p)
    given_one, given_zero = (only.tabulate_given_label(label).transform(-0.5) for label in (1, 0))
    assert given_one == pytest.approx(p * (1 - flip) / (p * (1 - flip) + (1 - p) * flip))
    assert given_zero == pytest.approx(p * flip / (p * flip + (1 - p) * (1 - flip)))
    assert only.average_noise(np.array([-0.5])).flip_rates == pytest.approx([flip, flip])


def near_boundary(n=4000, *, shift=-2.0, seed=0):
    """Return probabilities of a linear model, labels that are wrong only near the boundary, clean labels."""
    rng = np.random.default_rng(seed)
    margin = 2.0 * rng.normal(size=n) + shift
    clean = margin > 0
    noisy = np.where(rng.random(n) < np.minimum(0.5, 2.0 * np.exp(-np.abs(margin))), ~clean, clean)
    one = expit(margin)
    return np.column_stack([1 - one, one]), noisy.astype(np.int64), clean.astype(np.int64)


def test_the_largest_noise_counts_the_labels_that_differ_from_the_decision():
    """Its rates are the 95 % quantiles of Beta(wrong + ½, right + ½), of the rows decided as each class."""
    scale, curve = identity_scale()
    only = BoundaryPosterior(1.0, curve, np.ones(1), scale)
    score, codes = np.array([-0.5, -0.4, -0.3, -0.2, 0.1, 0.4]), np.array([0, 0, 1, 0, 1, 0])
    largest, share = only.largest_noise(codes, score)
    assert largest.flip_rates == pytest.approx([beta.ppf(0.95, 1.5, 3.5), beta.ppf(0.95, 1.5, 1.5)])
    assert share == pytest.approx(beta.ppf(0.95, 2.5, 4.5))


@pytest.mark.parametrize("shift", [-2.0, 0.0])
def test_intervals_of_noise_near_the_boundary_contain_the_truth(shift):
    """Share of wrong labels and rates of both classes: in at least 17 of 20 samples of 1,000 rows."""
    inside = []
    for seed in range(20):
        proba, noisy, clean = near_boundary(1000, shift=shift, seed=seed)
        found, wrong = label_posterior(proba, noisy), noisy != clean
        kept = np.array([1.0 - wrong[clean == k].mean() for k in (0, 1)])
        low, high = found.error_rate_interval
        ends = np.diag(found.noise_low), np.diag(found.noise_high)
        inside.append([low <= wrong.mean() <= high, *((ends[0] <= kept) & (kept <= ends[1]))])
    assert (np.sum(inside, axis=0) >= 17).all()


def test_boundary_noise_is_distinguished_from_class_noise(tmp_path):
    """It is detected in unequal classes and reported, and the average rates are close to the true ones."""
    proba, noisy, clean = near_boundary()
    audit = find_label_issues(labels=noisy, pred_proba=proba)
    assert audit.near_boundary > 0.9
    assert audit.summary()["near_boundary"] == pytest.approx(audit.near_boundary, abs=1e-6)
    assert "near the boundary" in str(audit)
    audit.to_html(tmp_path / "audit.html")
    assert "near the boundary" in (tmp_path / "audit.html").read_text(encoding="utf-8")
    rates = [(noisy != clean)[clean == k].mean() for k in (0, 1)]
    assert audit.noise.flip_rates == pytest.approx(rates, abs=0.1)
    assert (audit.noise_low <= audit.noise.transition).all()
    assert (audit.noise.transition <= audit.noise_high).all()


def test_near_the_boundary_rows_are_ranked_as_well_as_by_confidence():
    """The AUROC is at most .002 below that of self-confidence."""
    proba, noisy, clean = near_boundary()
    given = proba[np.arange(len(noisy)), noisy]
    ours = roc_auc_score(noisy != clean, label_posterior(proba, noisy).p_error)
    assert ours >= roc_auc_score(noisy != clean, 1 - given) - 0.002


@pytest.mark.parametrize("rates", [(0.02, 0.02), (0.2, 0.2), (0.1, 0.3), (0.02, 0.45)])
@pytest.mark.parametrize("shift", [-3.0, 0.0])
def test_class_noise_is_not_taken_for_boundary_noise(rates, shift):
    """Labels that level off at the ends of the scores are not noise near the boundary."""
    found = label_posterior(*scored(*rates, shift=shift)[:2])
    assert found.near_boundary < 0.01


def test_swapping_the_classes_swaps_the_result():
    """The result does not depend on which class is called 1."""
    proba, noisy, _ = scored(0.1, 0.3, n=500)
    one, other = label_posterior(proba, noisy), label_posterior(proba[:, ::-1], 1 - noisy)
    assert other.p_error == pytest.approx(one.p_error, abs=0.01)
    assert other.noise.flip_rates[::-1] == pytest.approx(one.noise.flip_rates, abs=0.01)


def test_few_rows_give_wide_intervals():
    """Intervals are wider with forty rows than with four thousand."""
    wide, narrow = (label_posterior(*scored(0.1, 0.3, n=n)[:2]) for n in (40, 4000))
    widths = [(found.noise_high - found.noise_low).max() for found in (wide, narrow)]
    assert widths[0] > 1.5 * widths[1]
    for found in (wide, narrow):
        low, high = found.noise_low, found.noise_high
        assert ((low >= 0) & (low <= high) & (high <= 1)).all()


def test_clean_labels_are_not_taken_for_boundary_noise():
    """If hardly any label is wrong, confident labels that are right are evidence for no noise at all."""
    rng = np.random.default_rng(0)
    codes = rng.integers(2, size=2000)
    one = expit(rng.normal(np.where(codes == 1, 6.0, -6.0), 1.5))
    found = label_posterior(np.column_stack([1.0 - one, one]), codes)
    assert found.near_boundary < 0.1
    assert found.noise.transition[0, 1] < 0.01
    assert found.no_noise > 0.8


def overlapping(n, n_classes, *, noise=0.0, seed=0):
    """Return exact noisy probabilities, labels and clean labels of overlapping normal distributions."""
    rng = np.random.default_rng(seed)
    clean = rng.integers(n_classes, size=n)
    x = 2.2 * np.eye(n_classes)[clean] + rng.normal(size=(n, n_classes))
    proba = np.exp(2.2 * x)
    proba /= proba.sum(axis=1, keepdims=True)
    transition = (1 - noise) * np.eye(n_classes) + noise / (n_classes - 1) * (1 - np.eye(n_classes))
    labels = (rng.random((n, 1)) > transition[clean].cumsum(axis=1)).sum(axis=1)
    return proba @ transition, labels, clean


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_clean_labels_of_overlapping_classes_are_not_flagged(n_classes):
    """With a Bayes error of 6 to 20 %, 3,000 clean labels: p_error averages below .02, nothing is flagged."""
    for seed in range(3):
        proba, labels, _ = overlapping(3000, n_classes, seed=seed)
        audit = find_label_issues(labels=labels, pred_proba=proba)
        assert audit.table["p_error"].mean() < 0.02
        assert not audit.table["flagged"].any()


@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_mean_of_p_error_is_the_share_of_wrong_labels(n_classes):
    """With 20 % of 5,000 labels wrong, it is that share to within .03, and noise is certain."""
    proba, labels, clean = overlapping(5000, n_classes, noise=0.2)
    found, wrong = label_posterior(proba, labels), labels != clean
    assert found.p_error.mean() == pytest.approx(wrong.mean(), abs=0.03)
    assert found.no_noise < 0.01


def test_boundary_noise_needs_evidence():
    """Class-conditional noise on many rows leaves it no probability; on few rows its prior remains."""
    for n, least, most in ((40, 0.001, 0.5), (4000, 0.0, 0.001)):
        proba, noisy, _ = scored(0.2, 0.2, n=n)
        from_class = label_posterior(proba, noisy)
        assert least <= from_class.near_boundary <= most
