"""The CIFAR experiments and their settings."""

import json
import tomllib
from dataclasses import asdict, replace

import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.experiments import IMAGE_EXPERIMENTS, load_experiment
from peerloss.experiments.cifar._cifar_experiment import _filled, parse_cifar
from peerloss.training import Augment, DeepRecipe, Growth, Sieve


def template(name, method, **options):
    run = load_experiment(name, methods=[method], seeds=1, **options).runs()[0]
    assert run.method == method
    return run


@pytest.mark.parametrize("name", IMAGE_EXPERIMENTS)
def test_every_file_is_valid_and_comparable(name):
    """Same rows, network and held-out rows (a tenth), except in the growing recipes; three seeds."""
    experiment = load_experiment(name)
    assert {"ce", "peer", "peer+sieve"} <= set(experiment.methods)
    assert len(experiment.seeds) == 3
    assert all(experiment.sources.values())
    assert {run.rows for run in experiment.runs()} == {None}
    equal = [run for run in experiment.runs() if run.method not in ("peer+growth", "peer+fast")]
    assert all(run.holdout == (2000 if run.noise.startswith("long_tail") else 5000) for run in equal)
    assert {(run.architecture, run.width) for run in equal} == {("resnet18", 64)}
    assert len({run.key for run in experiment.runs()}) == len(experiment.runs())


@pytest.mark.parametrize(("name", "alpha"), [("cifar10", 2.0), ("cifar10n", 4.0)])
def test_the_recipes_of_the_published_results(name, alpha):
    """Every setting, independent of the defaults."""
    run = template(name, "peer+sieve")
    recipe, sieve = run.recipe, run.recipe.sieve
    assert (run.held_out_images, recipe.epochs, sieve.decisions(200)) == (True, 200, [30])
    assert recipe.alpha == ((0.0525, 0.0), (0.15, alpha))
    assert (sieve.threshold, sieve.mixup, sieve.refresh_every) == (0.0, False, 2)
    assert (sieve.memory, sieve.trust, sieve.balance) == (0.8, 0.5, True)
    assert sieve.augment == Augment(crop=4, flip=True, cutout=12, affine=20.0, colour=0.4, share=0.5)


@pytest.mark.parametrize(("name", "alpha"), [("cifar10", 2.0), ("cifar10n", 4.0)])
def test_the_recipe_with_a_growing_set_of_rows(name, alpha):
    """Fifteen epochs of peer loss, then two views per step; the key of such a run contains the growth."""
    run = template(name, "peer+growth")
    recipe, sieve = run.recipe, run.recipe.sieve
    assert (run.architecture, run.width, run.holdout, run.held_out_images) == ("resnet18", 96, 500, True)
    assert (recipe.epochs, sieve.decisions(200)) == (200, [15])
    assert recipe.alpha == ((0.02625, 0.0), (0.075, alpha))
    assert (sieve.memory, sieve.trust, sieve.balance, sieve.refresh_every) == (0.7, 1.0, True, 4)
    assert sieve.augment == Augment(cutout=16, random_changes=2)
    assert sieve.growth == Growth(
        own=(0.5, 0.3),
        guessed=(0.5, 0.95),
        period=(0.05, 0.6),
        fade=(0.55, 0.8),
        final_trust="auto",
        mix=4,
        cut=0.5,
        learning_rate=0.2,
        warm_up=0.1,
        average=0.998,
    )
    assert run.settings()["recipe"]["sieve"]["growth"]["mix"] == 4
    assert "growth" not in template(name, "peer+sieve").settings()["recipe"]["sieve"]


@pytest.mark.parametrize("name", ["cifar10", "cifar10n"])
def test_the_fast_recipe_is_the_growing_one_with_another_network(name):
    """It has fewer epochs, pastes no rectangles, and trusts own labels as the noise allows."""
    fast, slow = template(name, "peer+fast"), template(name, "peer+growth")
    assert fast.recipe.sieve.decisions(160) == [12]
    growth = replace(slow.recipe.sieve.growth, own=(0.5, "auto"), cut=0.0)
    assert fast.recipe == replace(slow.recipe, epochs=160, sieve=replace(slow.recipe.sieve, growth=growth))
    network = {"architecture": "pooled_resnet", "width": 64, "holdout": 5000}
    assert fast == replace(slow, method="peer+fast", recipe=fast.recipe, **network)


def test_equal_class_sizes_are_assumed_where_published_methods_assume_them():
    """Under uniform and asymmetric noise and for human labels; a long tail of any rate has other sizes."""
    noises = ["uniform:0.4", "asymmetric:0.4", "instance:0.4", "instance:0.2", "long_tail:50:0.4"]
    for method in ("peer+sieve", "peer+growth", "peer+fast"):
        runs = load_experiment("cifar10", noise=noises, methods=[method], seeds=1).runs()
        assert [run.recipe.sieve.balance for run in runs] == [True, True, False, False, False]
        assert template("cifar10n", method).recipe.sieve.balance is True
    assert runs[0].recipe.alpha == runs[-1].recipe.alpha


def test_the_most_important_runs_come_first():
    """Every noise and method once before any second seed."""
    runs = load_experiment("cifar10n", methods=["ce", "peer"], seeds=2).runs()
    assert [(run.noise, run.seed) for run in runs[::2]] == [
        ("worst", 0),
        ("random1", 0),
        ("aggregate", 0),
        ("worst", 1),
        ("random1", 1),
        ("aggregate", 1),
    ]
    assert all(run.recipe.random_state == run.seed for run in runs)


def test_a_noise_that_is_named_twice_runs_once():
    """Otherwise every run of it would be planned, counted and trained twice."""
    runs = load_experiment("cifar10", noise=["uniform:0.4", "uniform:0.2", "uniform:0.4"], seeds=1).runs()
    assert len({run.key for run in runs}) == len(runs)
    assert list(dict.fromkeys(run.noise for run in runs)) == ["uniform:0.4", "uniform:0.2"]


def test_false_means_none_and_inner_settings_are_filled():
    """As documented in the module; lists become tuples."""
    given = {
        "average": False,
        "compile": False,
        "sieve": {"rounds": 3, "augment": {"cutout": 2}, "growth": {"mix": 2}},
        "alpha": [[0, 1]],
    }
    recipe = _filled(DeepRecipe(compile=True), given, "here")
    assert (recipe.average, recipe.compile, recipe.alpha) == (None, False, ((0, 1),))
    assert (recipe.sieve.rounds, recipe.sieve.start, recipe.sieve.augment.cutout) == (3, Sieve().start, 2)
    assert recipe.sieve.growth == Growth(mix=2)
    assert _filled(recipe, {"sieve": {"growth": False}}, "here").sieve.growth is None
    with pytest.raises(InvalidInputError, match=r"here.sieve has the unknown key `round`"):
        _filled(DeepRecipe(), {"sieve": {"round": 3}}, "here")


def test_dmi_trains_with_cross_entropy_first():
    """Two stages share the epochs; the second has its own rate."""
    run = template("cifar10", "dmi")
    (first, warm), (second, rest) = run.stages()
    assert (first, second) == ("cross_entropy", "dmi")
    assert warm.epochs + rest.epochs == run.recipe.epochs
    assert rest.learning_rate == 0.01


def test_a_smoke_test_is_another_run():
    """Few images, four epochs, a narrow network; its records are kept apart from real ones."""
    smoke = template("cifar10", "ce", smoke=True)
    assert (smoke.recipe.epochs, smoke.rows, smoke.width) == (4, 200, 4)
    assert smoke.key != template("cifar10", "ce").key


@pytest.mark.parametrize("name", IMAGE_EXPERIMENTS)
def test_a_smoke_test_has_epochs_for_every_part_of_a_method(name):
    """Peer loss before the sieve with α > 0, the teacher's decision, a renewal; two parts of a warm start."""
    for run in load_experiment(name, seeds=1, smoke=True).runs():
        recipe = run.recipe
        if recipe.sieve is not None:
            (decision,) = recipe.sieve.decisions(recipe.epochs)
            assert recipe.alpha[0][0] * recipe.epochs < decision - 1  # α has left 0 by the epoch before
            assert recipe.sieve.refreshes(recipe.epochs)
        assert sum(part.epochs for _, part in run.stages()) == 4


def test_keys_of_real_runs_never_change():
    """Records of published results stay usable: they are found by these keys."""
    keys = {run.key for name in IMAGE_EXPERIMENTS for run in load_experiment(name, first_seed=3).runs()}
    assert "cifar10/uniform:0.2/peer+sieve/4/741cfcc1a7e7" in keys
    assert "cifar10n/worst/peer+sieve/5/ea2a09e788ef" in keys


def test_settings_that_were_added_later_are_recorded_only_if_they_are_used():
    """Records made before they existed keep their keys."""
    usual = template("cifar10", "peer+fast").settings()
    assert "members" not in usual
    assert "cut" not in usual["recipe"]["sieve"]["growth"]
    changes = ["members=2", "sieve.growth.cut=0.5"]
    changed = load_experiment("cifar10", methods=["peer+fast"], changes=changes).runs()[0].settings()
    assert (changed["members"], changed["recipe"]["sieve"]["growth"]["cut"]) == (2, 0.5)


def test_the_images_are_part_of_the_key_and_of_the_record():
    """Except for CIFAR-10, whose records are older than the other images."""
    assert template("cifar100n", "ce").settings()["images"] == "cifar100"
    assert "images" not in template("cifar10n", "ce").settings()


@pytest.mark.parametrize(("name", "usual_name"), [("cifar100", "cifar10"), ("cifar100n", "cifar10n")])
def test_recipes_of_100_classes_are_those_of_10(name, usual_name):
    """Every method has the settings of the same method on CIFAR-10 or CIFAR-10N."""
    assert load_experiment(name).methods == ("ce", "peer", "peer+sieve", "peer+growth")
    for method in load_experiment(name).methods:
        own, usual = template(name, method), template(usual_name, method)
        assert (own.recipe, own.loss) == (usual.recipe, usual.loss)
        assert (own.architecture, own.width, own.holdout) == (usual.architecture, usual.width, usual.holdout)


@pytest.mark.parametrize(
    ("name", "noise", "known"),
    [("cifar10", "human", "aggregate, random1, random2, random3, worst;"), ("cifar100n", "worst", "human;")],
)
def test_human_labels_belong_to_their_images(name, noise, known):
    """The message lists those of the experiment."""
    with pytest.raises(InvalidInputError, match=f"or human labels: {known} got '{noise}'"):
        load_experiment(name, noise=[noise])


def test_a_closed_run_is_another_run():
    """It has no test accuracy, so it cannot replace the same run with the test set open."""
    assert template("cifar10", "ce", closed=True).key != template("cifar10", "ce").key


def test_a_run_is_plain_json():
    """Records contain all of it."""
    run = template("cifar10n", "tv")
    assert json.loads(json.dumps(asdict(run)))["recipe"]["epochs"] == run.recipe.epochs


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"methods": ["sgd"]}, "`methods` must be one of 'ce'"),
        ({"seeds": 0}, "`seeds` must be an integer of at least 1"),
        ({"seeds": 10**12}, "`seeds` must be at most 10,000; got 1,000,000,000,000"),
        ({"first_seed": -1}, "`first_seed` must be an integer of at least 0"),
        ({"changes": ["architecture='vgg'"]}, "`architecture` must be one of"),
        ({"changes": ["members=0"]}, "`members` must be an integer of at least 1"),
        ({"changes": ["epochs=1"]}, "two parts,` must be an integer of at least 2"),
        ({"changes": ["width=0"]}, "`width` must be an integer of at least 1; got 0"),
        ({"changes": ["holdout=-1"]}, "`holdout` must be an integer of at least 1; got -1"),
        ({"changes": ["rows=0"]}, "`rows` must be an integer of at least 1; got 0"),
    ],
)
def test_what_cannot_be_run_is_reported(options, message):
    """Before anything is read or trained."""
    with pytest.raises(InvalidInputError, match=message):
        load_experiment("cifar10", **options)


def test_an_unknown_name_is_rejected():
    """The message lists the known ones."""
    known = "boundary, cifar10, cifar100, cifar100n, cifar10n, curves"
    with pytest.raises(InvalidInputError, match=f"must be one of {known}"):
        load_experiment("cifar1000")


@pytest.mark.parametrize("option", [{"protocol": "paper"}, {"data_sets": ["heart"]}])
def test_options_of_tables_are_rejected(option):
    """The message names the option."""
    with pytest.raises(InvalidInputError, match=f"`{next(iter(option))}` does not apply to cifar10"):
        load_experiment("cifar10", **option)


OWN_FILE = """
title = "t"
noise = ["uniform:0.4"]
seeds = 1
holdout = 100
architecture = "resnet18"

[methods.usual]
loss = "peer"

[methods.own]
loss = "peer"
width = {width}
holdout = {holdout}
"""


def own_experiment(width, holdout, changes=()):
    table = tomllib.loads(OWN_FILE.format(width=width, holdout=holdout))
    selection = {"noise": None, "methods": None, "seeds": None, "first_seed": 0}
    return parse_cifar("own", table, **selection, changes=changes, smoke=False, closed=False)


def test_a_method_can_have_its_own_network_width_and_number_of_held_out_rows():
    """Other methods keep those of the file; ``changes`` apply to all."""
    usual, own = own_experiment(8, 20).runs()
    assert [(run.width, run.holdout) for run in (usual, own)] == [(64, 100), (8, 20)]
    changed = own_experiment(8, 20, changes=["width=16", "holdout=30"]).runs()
    assert {(run.width, run.holdout) for run in changed} == {(16, 30)}


@pytest.mark.parametrize(
    ("width", "holdout", "message"),
    [
        ("0", "20", "own: methods.own: width` must be an integer of at least 1; got 0"),
        ("8", '"all"', "own: methods.own: holdout` must be an integer of at least 1; got 'all'"),
    ],
)
def test_a_wrong_width_or_number_of_rows_names_the_method(width, holdout, message):
    """As for every other setting of an experiment file."""
    with pytest.raises(InvalidInputError, match=message):
        own_experiment(width, holdout)
