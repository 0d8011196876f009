"""Settings of the deep loop and of its sample sieve."""

import numpy as np
import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.training import DeepRecipe, Growth, Sieve


@pytest.mark.parametrize("schedule", ["one_cycle", "cosine"])
def test_the_rate_rises_to_its_peak_and_falls_to_zero(schedule):
    """It rises linearly in the warm-up, then never rises, and is half of the peak half-way down."""
    recipe = DeepRecipe(learning_rate=0.4, warm_up=0.2, schedule=schedule)
    assert recipe.rate(0.1, 0.0) == pytest.approx(0.2)
    assert recipe.rate(0.2, 0.0) == pytest.approx(0.4)
    assert recipe.rate(0.6, 0.0) == pytest.approx(0.2)
    assert recipe.rate(1.0, 0.0) == pytest.approx(0.0, abs=1e-12)
    later = [recipe.rate(0.2 + 0.8 * i / 100, 0.0) for i in range(101)]
    assert later == sorted(later, reverse=True)


def test_the_rate_is_divided_by_one_plus_alpha():
    """Only with ``divide_rate``; a negative α does not raise it."""
    assert DeepRecipe().rate(0.5, 3.0) == pytest.approx(DeepRecipe().rate(0.5, 0.0) / 4)
    assert DeepRecipe(divide_rate=False).rate(0.5, 3.0) == DeepRecipe().rate(0.5, 0.0)
    assert DeepRecipe().rate(0.5, -0.5) == DeepRecipe().rate(0.5, 0.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "`epochs` must be an integer"),
        ({"batch_size": 0}, "`batch_size` must be an integer"),
        ({"random_state": -1}, "`random_state` must be an integer"),
        ({"learning_rate": 0.0}, "`learning_rate` must lie in"),
        ({"schedule": "step"}, "`schedule` must be one of"),
        ({"optimizer": "adam"}, "`optimizer` must be one of 'sgd', 'adamw'; got 'adam'"),
        (
            {"optimizer": "adamw"},
            "`learning_rate` must be at most 0.1 with optimizer='adamw'; got 0.2. Use about 1e-3",
        ),
        ({"warm_up": 1.0}, "`warm_up` must lie in"),
        ({"momentum": 1.0}, "`momentum` must lie in"),
        ({"weight_decay": -1.0}, "`weight_decay` must lie in"),
        ({"clip_norm": 0.0}, "`clip_norm` must lie in"),
        ({"average": 1.0}, "`average` must lie in"),
        ({"patience": 0}, "`patience` must be an integer"),
        ({"compile": "yes"}, "`compile` must be True or False; got 'yes'"),
        ({"alpha": 2.0}, r"`alpha` must be pairs \(share of the steps, α\).* set it in the loss"),
        ({"alpha": ((0.1, 0.0), (30, 2.0))}, r"`alpha: share of the steps` must lie in \[0, 1\]; got 30"),
        ({"alpha": ((0.5, 0.0), (0.2, 2.0))}, "`alpha` must have increasing shares"),
        ({"alpha": ((0.5, np.nan),)}, "`alpha` must be a finite number"),
        ({"sieve": True}, r"`sieve` must be a Sieve, such as Sieve\(\), or None; got True"),
        ({"augment": 3}, "`augment` must be an Augment"),
        (
            {"average": None, "sieve": Sieve(growth=Growth(average=0.9))},
            "`growth.average` needs averaged weights; got 0.9 with average=None",
        ),
    ],
)
def test_invalid_settings_are_refused(options, message):
    """The message names the setting and the value."""
    with pytest.raises(InvalidInputError, match=message):
        DeepRecipe(**options)


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
        {"growth": True},
        {"growth": Growth(), "refresh_every": 0},
    ],
)
def test_settings_are_checked(wrong):
    """Wrong settings are refused when they are made, with a message that names the setting."""
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        Sieve(**wrong)


@pytest.mark.parametrize(
    "wrong",
    [
        {"own": 0.5},
        {"own": (0.5, 0.0)},
        {"guessed": (0.5, 1.5)},
        {"guessed": (0.5, 0.6, 0.7)},
        {"period": (0.6, 0.5)},
        {"fade": (0.5, 0.5)},
        {"final_trust": 1.5},
        {"final_trust": "all"},
        {"mix": 0},
        {"cut": -0.1},
        {"cut": 1.5},
        {"learning_rate": 0.0},
        {"warm_up": 1.0},
        {"average": -0.1},
    ],
)
def test_settings_of_the_growth_are_checked(wrong):
    """The message names the setting."""
    with pytest.raises(InvalidInputError, match=f"`{next(iter(wrong))}` must"):
        Growth(**wrong)


@pytest.mark.parametrize("unused", [{"threshold": 1.0}, {"mixup": True}])
def test_settings_that_the_growth_replaces_are_refused(unused):
    """Rows are selected by rank, and trusted rows are always mixed."""
    with pytest.raises(InvalidInputError, match=rf"`{next(iter(unused))}` has no effect with `growth`"):
        Sieve(growth=Growth(), **unused)


@pytest.mark.parametrize("unused", [{"memory": 0.5}, {"trust": 0.0}])
def test_settings_without_an_effect_are_refused(unused):
    """Fixed targets are not averaged, so settings of the average are refused."""
    with pytest.raises(
        InvalidInputError, match=rf"`{next(iter(unused))}` has no effect with refresh_every=0"
    ):
        Sieve(refresh_every=0, **unused)
