"""Settings of the deep loop."""

import numpy as np
import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.training import DeepRecipe


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
        ({"warm_up": 1.0}, "`warm_up` must lie in"),
        ({"momentum": 1.0}, "`momentum` must lie in"),
        ({"weight_decay": -1.0}, "`weight_decay` must lie in"),
        ({"clip_norm": 0.0}, "`clip_norm` must lie in"),
        ({"average": 1.0}, "`average` must lie in"),
        ({"patience": 0}, "`patience` must be an integer"),
        ({"compile": "yes"}, "`compile` must be True or False; got 'yes'"),
        ({"alpha": 2.0}, r"`alpha` must be pairs \(share of the training, α\).* set it in the loss"),
        ({"alpha": ((0.1, 0.0), (30, 2.0))}, r"`alpha: share of the training` must lie in \[0, 1\]; got 30"),
        ({"alpha": ((0.5, 0.0), (0.2, 2.0))}, "`alpha` must have increasing shares"),
        ({"alpha": ((0.5, np.nan),)}, "`alpha` must be a finite number"),
        ({"sieve": True}, r"`sieve` must be a Sieve, such as Sieve\(\), or None; got True"),
        ({"augment": 3}, "`augment` must be an Augment"),
    ],
)
def test_invalid_settings_are_refused(options, message):
    """The message names the setting and the value."""
    with pytest.raises(InvalidInputError, match=message):
        DeepRecipe(**options)
