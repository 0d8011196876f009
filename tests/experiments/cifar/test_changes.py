"""Settings that differ from the experiment file."""

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.experiments import load_experiment


def template(method, *changes):
    return load_experiment("cifar10", methods=[method], seeds=1, changes=changes).runs()[0]


def test_changes_come_last_and_change_the_key():
    """A changed run is another run."""
    plain = template("peer+sieve")
    changed = template("peer+sieve", "epochs=6", "sieve.rounds=1", "architecture='resnet34'")
    assert (changed.recipe.epochs, changed.recipe.sieve.rounds, changed.architecture) == (6, 1, "resnet34")
    assert changed.key != plain.key
    assert template("peer", "sieve.rounds=1").key == template("peer").key


def test_values_of_every_type():
    """Integers for numbers, None for settings that can be absent; lists become tuples."""
    run = template(
        "peer+sieve",
        *("learning_rate=1", "average=None", "compile=False", "rows=100", "alpha=[[0, 0], [1, 2]]"),
        *("schedule='cosine'", "sieve.augment.crop=2"),
    )
    recipe = run.recipe
    assert (recipe.learning_rate, recipe.average, recipe.compile, run.rows) == (1, None, False, 100)
    assert (recipe.alpha, recipe.schedule, recipe.sieve.augment.crop) == (((0, 0), (1, 2)), "cosine", 2)
    shares = (0.2, *[0.1] * 7, 0.05, 0.05)
    assert template("peer+sieve", f"sieve.balance={shares}").recipe.sieve.balance == shares
    assert template("peer+sieve", "sieve=None").recipe.sieve is None
    grown = template(
        "peer+growth", "sieve.growth.guessed=(.5, .9)", "sieve.growth.average=None"
    ).recipe.sieve.growth
    assert (grown.guessed, grown.average, grown.mix) == ((0.5, 0.9), None, 4)
    assert template("peer+sieve", "sieve.growth.mix=2").key == template("peer+sieve").key


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("epochs", "`changes` must be name=value"),
        ("epochs=many", "`changes` must be name=value"),
        ("epochs={[]}", "`changes` must be name=value"),
        ("epoch=3", "unknown setting 'epoch'; DeepRecipe has epochs"),
        ("epochs.more=3", "'epochs' has no settings of its own"),
        ("epochs=3.5", "`epochs` must be an integer; got 3.5"),
        ("epochs=True", "`epochs` must be an integer; got True"),
        ("learning_rate='high'", "`learning_rate` must be a number; got 'high'"),
        ("average=False", "`average` must be a number or None; got False"),
        ("compile='yes'", "`compile` must be True or False; got 'yes'"),
        ("compile=1", "`compile` must be True or False; got 1"),
        ("compile=None", "`compile` must be True or False; got None"),
        ("schedule=None", "`schedule` must be a 'quoted' name; got None"),
        ("alpha=2.0", "`alpha` must be a tuple; got 2.0"),
        ("held_out_images='no'", "`held_out_images` must be True or False; got 'no'"),
        ("rows='a'", "`rows` must be an integer or None; got 'a'"),
        ("sieve=True", r"`sieve` must be None or changed by its own settings, such as sieve.start=VALUE"),
        ("augment=3", r"`augment` must be changed by its own settings, such as augment.crop=VALUE; got 3"),
        ("augment=None", "`augment` must be changed by its own settings"),
        ("sieve.balance='even'", "`balance` must be True or False or a tuple; got 'even'"),
        ("sieve.augment=None", "`augment` must be changed by its own settings"),
        ("sieve.round=3", "unknown setting 'round'; Sieve has start"),
        ("seed=7", "cannot set the seed.*`first_seed`"),
        ("width.more=3", "'width' has no settings of its own"),
    ],
)
@pytest.mark.parametrize("method", ["ce", "peer+sieve"])
def test_a_value_of_another_type_is_rejected(method, change, message):
    """With what was expected and received; methods without a sieve check its settings too."""
    with pytest.raises(InvalidInputError, match=message):
        template(method, change)


def test_a_deprecated_setting_works_and_warns():
    """``sieve.renew`` changes ``sieve.refresh_every``."""
    with pytest.warns(DeprecationWarning, match=r"`sieve.renew` is deprecated .* Use `sieve.refresh_every`"):
        run = template("peer+sieve", "sieve.renew=4")
    assert run.recipe.sieve.refresh_every == 4
    assert run.settings()["recipe"]["sieve"]["renew"] == 4
