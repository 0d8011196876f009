"""Settings of the sample sieve."""

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.training import Sieve


def test_rounds_are_spread_evenly_after_the_start():
    """Rounds start before these epochs."""
    assert Sieve(start=1 / 3, rounds=2).decisions(90) == [30, 60]
    assert Sieve(start=0.25, rounds=3).decisions(8) == [2, 4, 6]


def test_targets_are_refreshed_after_a_quarter_of_each_round():
    """Refreshes are counted from the start of a round and never fall on one; 0 means none."""
    assert Sieve(start=0.2, refresh_every=0).refreshes(10) == []
    assert Sieve(start=0.2, refresh_every=2).refreshes(10) == [4, 6, 8]
    assert Sieve(start=0.2, refresh_every=3).refreshes(42) == [17, 20, 23, 26, 29, 32, 35, 38, 41]
    twice = Sieve(start=0.0, rounds=2, refresh_every=1)
    assert twice.refreshes(8) == [1, 2, 3, 5, 6, 7]
    assert not set(twice.refreshes(8)) & set(twice.decisions(8))


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": 1.5},
        {"rounds": 0},
        {"refresh_every": -1},
        {"memory": 1.0},
        {"trust": -0.5},
        {"mixup": 1},
        {"threshold": "low"},
        {"augment": None},
        {"balance": (0.5, 0.6)},
    ],
)
def test_settings_are_checked(wrong):
    """Wrong settings are refused when they are made, with a message that names the setting."""
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Sieve(**wrong)


@pytest.mark.parametrize("unused", [{"memory": 0.5}, {"trust": 0.0}])
def test_settings_without_an_effect_are_refused(unused):
    """Fixed targets are not averaged, so settings of the average are refused."""
    with pytest.raises(
        InvalidInputError, match=rf"`{next(iter(unused))}` has no effect with refresh_every=0"
    ):
        Sieve(refresh_every=0, **unused)
