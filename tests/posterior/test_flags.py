"""How many of the most suspicious rows are flagged."""

import numpy as np
import pytest

from peerloss.posterior.flags import FlagRule, flag_suspects, suspicious_first


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("target", ["auto", "f1"])
def test_flags_maximise_expected_f1(seed, target):
    """No other number of rows, in the same order, has a larger expected F1."""
    p = np.random.default_rng(seed).beta(0.5, 2.0, size=40)
    flagged = flag_suspects(p, suspicious_first(p), FlagRule(target))

    def expected_f1(m):
        return 2 * np.sort(p)[::-1][:m].sum() / (m + p.sum())

    assert expected_f1(flagged.sum()) == pytest.approx(max(expected_f1(m) for m in range(1, 41)))
    assert p[flagged].min() >= p[~flagged].max()


def test_no_row_is_flagged_if_every_p_error_is_zero():
    """Probabilities of error that are all zero flag no row."""
    assert not flag_suspects(np.zeros(5), np.arange(5)).any()


def test_probably_clean_labels_are_not_flagged():
    """Flags need an expected F1 above that of no flags: 1 if no label is wrong, which has a probability."""
    p = np.array([0.9, 0.8, 0.1, 0.05])
    order = suspicious_first(p)
    some = np.array([True, True, False, False])
    for no_noise in (0.0, 0.1, 0.4):
        scaled = (1 - no_noise) * p  # p_error averages over "no label is wrong"
        np.testing.assert_array_equal(flag_suspects(scaled, order, no_noise=no_noise), some)
    assert not flag_suspects(0.4 * p, order, no_noise=0.6).any()
    # The target "f1" is for users who know that some labels are wrong.
    np.testing.assert_array_equal(flag_suspects(0.4 * p, order, FlagRule("f1"), no_noise=0.6), some)


@pytest.mark.parametrize("level", [0.3, 0.7, 0.85, 0.95])
def test_a_promised_precision_holds_in_expectation(level):
    """The mean of p_error of the flagged rows is at least the level, and one more row would break it."""
    p = np.random.default_rng(0).uniform(size=200)
    order = suspicious_first(p)
    flagged = flag_suspects(p, order, FlagRule("precision", level))
    assert p[flagged].mean() >= level
    one_more = order[: flagged.sum() + 1]
    assert flagged.all() or p[one_more].mean() < level
    assert not flag_suspects(0.5 * p, order, FlagRule("precision", 0.9)).any()
