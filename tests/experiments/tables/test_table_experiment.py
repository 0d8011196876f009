"""Experiment files on tables: what they contain is run, and mistakes are rejected with advice."""

import pytest

from peerloss import list_datasets
from peerloss.exceptions import InvalidInputError
from peerloss.experiments import IMAGE_EXPERIMENTS, METHODS, list_experiments, load_experiment
from tests.experiments.tiny import SPEC, write_spec

NEURAL = ["peer", "surrogate", "symmetric", "dmi", "nn"]


def changed(tmp_path, old, new):
    assert old in SPEC
    return write_spec(tmp_path, SPEC.replace(old, new, 1))


@pytest.mark.parametrize("name", [name for name in list_experiments() if name not in IMAGE_EXPERIMENTS])
def test_the_files_of_the_package_are_valid(name):
    """Each loads under each of its protocols, and its runs are distinct."""
    protocols = ("paper", "fair") if name == "table-a1" else ("paper",)
    for protocol in protocols:
        runs = load_experiment(name, protocol=protocol).runs()
        assert len({run.key for run in runs}) == len(runs) > 0


def test_table_a1_is_that_of_the_paper():
    """Fifty rows, two priors, eight seeds; α = 1 for equal classes, else the grid of the authors and 0."""
    table = load_experiment("table-a1")
    assert {row[0] for row in table.rows} == set(list_datasets())
    assert len(table.rows) == 50
    assert table.methods == (*NEURAL, "c-svm", "pam")
    assert len(table.runs()) == 50 * 2 * 7 * 8
    equalized, original = (table.recipes["peer", prior] for prior in ("equalized", "original"))
    assert equalized.settings["alpha"] == 1.0
    assert equalized.trials == ({},)
    assert sorted(trial["alpha"] for trial in original.trials) == [
        -5, 0, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 3, 4, 5,
    ]  # fmt: skip
    for method in NEURAL:
        settings = table.recipes[method, "original"].settings
        assert (settings["width"], settings["learning_rate"], settings["batch_size"], settings["steps"]) == (
            8, 0.0007, 64, 1000,
        )  # fmt: skip


def test_fair_gives_all_methods_the_same_number_of_trials():
    """Every method that searches gets the same number; PeerClassifier searches inside its training rows."""
    fair = load_experiment("table-a1", protocol="fair")
    assert set(fair.methods) == set(METHODS)
    counts = {
        method: {len(fair.recipes[method, prior].trials) for prior in fair.priors} for method in METHODS
    }
    assert counts.pop("peer-classifier") == {1}
    assert set(map(tuple, counts.values())) == {(8,)}
    assert {recipe.choose for recipe in fair.recipes.values()} == {"seed"}


def test_the_grid_of_the_authors_has_a_hundred_points():
    """Four widths, five rates, five batches; every method tries a hundred."""
    grid = load_experiment("table-a1-grid")
    assert {len(recipe.trials) for recipe in grid.recipes.values()} == {100}
    nn = grid.recipes["nn", "original"].trials
    assert len({(t["width"], t["learning_rate"], t["batch_size"]) for t in nn}) == 100


def test_keys_depend_on_the_recipe(tmp_path, spec):
    """Runs with other settings have other keys; fewer seeds or data sets do not change the keys."""
    keys = {run.key for run in load_experiment(spec).runs()}
    fewer = {run.key for run in load_experiment(spec, data_sets=["heart"], seeds=1).runs()}
    assert fewer < keys
    longer = {run.key for run in load_experiment(changed(tmp_path, "steps = 10", "steps = 11")).runs()}
    assert {key for key in keys & longer if "/peer/" in key or "/dmi/" in key} == set()
    assert {key for key in keys - longer if "/pam/" in key} == set()


def test_a_part_can_be_requested(spec):
    """Data sets, methods and seeds."""
    part = load_experiment(spec, data_sets=["thyroid"], methods=["pam", "peer"], seeds=1, first_seed=100)
    runs = part.runs()
    assert {run.data_set for run in runs} == {"thyroid"}
    assert [run.method for run in runs[:2]] == ["peer", "pam"], "in the order of the file"
    assert {run.seed for run in runs} == {100}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('title = "tiny"', 'tilte = "tiny"', "unknown key `tilte`; known are data_sets"),
        ("[paper.methods.pam]", "[paper.methods.pma]", "unknown method 'pma'; known are peer, surr"),
        ('["heart", 0.1', '["hart", 0.1', "data sets must be among breast, .*circles.*; got 'hart'"),
        ('["heart", 0.1, 0.3]', '["heart", 0.1]', "a row must be"),
        ('["heart", 0.1, 0.3]', '["heart", 1.1, 0.3]', "e_neg"),
        ('["thyroid", 0.2, 0.2]', '["heart", 0.1, 0.3]', "repeated"),
        ('"original"]', '"orignal"]', "priors must be among equalized, original; got 'orignal'"),
        ("seeds = 2", "seeds = 0", "tiny: seeds` must be an integer of at least 1; got 0"),
        ("seeds = 2", "", "tiny: seeds` must be an integer of at least 1; got None"),
        ("test_size = 0.15", "test_size = 1.5", "test_size"),
        ("validation_size = 0.10", "validation_size = 0.9", "validation_size"),
        ("margin = [0.0, 1.0]", "margins = [0.0, 1.0]", "unknown key `margins`; known are average, "),
        ("margin = [0.0, 1.0]", "margin = []", "`margin` must be a number"),
        ("steps = 10", "step = 10", r"nets has the unknown key `step`; known are batch_size"),
        ('choose = "row"', 'choose = "rows"', "choose"),
        ('choose = "row"', "choose = [", "not a TOML file"),
        ('record = ["curve"]', 'record = ["curves"]', "record must be among curve, invariance, plane; got"),
        ('record = ["curve"]', "", "`record_every`, but its `record` has no curve"),
        ("record_every = 5", "", "record_every` must be"),
        ('rows = [["heart", 0.1, 0.3], ["thyroid", 0.2, 0.2]]', "", "either `rows` or both"),
        ('["heart", 0.1, 0.3]', '["heart", nan, 0.3]', "`rows` must be a finite number; got nan"),
        ("test_size = 0.15", "test_size = inf", "`test_size` must be a finite number; got inf"),
        ("alpha = 1.0", "alpha = -inf", "`paper.methods.peer.alpha` must be a finite number; got -inf"),
        ("alpha = [1.0, 0.0", "alpha = [nan, 0.0", "`paper.methods.peer.original.alpha` must be a finite"),
        ("alpha = 1.0", "alpha = 1e7", "`alpha` must be a number from -1e\\+06 to 1e\\+06, or 'auto'; got"),
        (
            "alpha = 1.0",
            f"alpha = 1{'0' * 400}",
            "`paper.methods.peer.alpha` must be a number within 64 bits",
        ),
        ("alpha = 1.0", f"alpha = 1{'0' * 5000}", "is not a TOML file"),
        ("seeds = 2", "seeds = 1000000000000", "tiny: seeds` must be at most 10,000; got 1,000,000,000,000"),
        (
            "steps = 10",
            "steps = 10\nhidden_layers = -1",
            "`hidden_layers` must be an integer from 1 to 64; got -1",
        ),
        (
            "steps = 10",
            "steps = 10\nhidden_layers = 1.5",
            "`hidden_layers` must be an integer from 1 to 64; got",
        ),
        ("steps = 10", "steps = 0", "`steps` must be an integer from 1"),
        ("steps = 10", "steps = true", "`steps` must be an integer from 1 to 1e\\+07; got True"),
        ("steps = 10", "steps = 10\nwidth = 1000000000", "`width` must be an integer from 1 to 4096; got 10"),
        ("steps = 10", "steps = 10\nlearning_rate = 0", "`learning_rate` must be a number above 0, at most"),
        (
            "steps = 10",
            "steps = 10\nbatch_size = 'all'",
            "`batch_size` must be an integer from 1 .* got 'all'",
        ),
        ("margin = [0.0, 1.0]", "margin = [0.0, -1.0]", "`margin` must be a number from 0 to"),
        ('trials = "all"', "trials = 0", "trials` must be an integer of at least 1; got 0"),
        ('trials = "all"', "trials = true", "trials` must be an integer of at least 1; got True"),
        ('trials = "all"', 'trials = "some"', "trials` must be an integer of at least 1; got 'some'"),
        (
            "steps = 10",
            "steps = {0}\nwidth = {0}\nbatch_size = {0}".format([*range(1, 101)]),
            "lists of .* make a grid of [0-9,]+ points; at most 100,000 are allowed",
        ),
        (
            'title = "tiny"',
            f"title.{'.'.join('a' * 2000)} = 1",
            "is nested too deeply; at most 10 levels are allowed",
        ),
        ('title = "tiny"', f"title = {'[' * 5000}", "is not a TOML file"),
    ],
)
def test_mistakes_are_reported(tmp_path, old, new, message):
    """The message names the key and lists the known values."""
    with pytest.raises(InvalidInputError, match=message):
        load_experiment(changed(tmp_path, old, new))


def test_a_grid_smaller_than_the_number_of_trials_is_rejected(tmp_path):
    """Otherwise methods would not get the same number of trials."""
    spec = changed(tmp_path, "margin = [0.0, 1.0, 2.0]\n", 'average = ["last"]\nmargin = [0.0]\n')
    assert len(load_experiment(spec, protocol="fair").recipes["pam", "original"].trials) == 1
    spec = changed(tmp_path, "trials = 2", "trials = 3")
    with pytest.raises(InvalidInputError, match="grid of 'nn' has 2 points"):
        load_experiment(spec, protocol="fair")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"protocol": "other"}, "`protocol` must be one of 'paper', 'fair'"),
        ({"data_sets": ["german"]}, "`data_sets` must be among those of tiny: heart, thyroid; got 'german'"),
        ({"methods": ["nn"]}, "`methods` must be among those of tiny: peer, dmi, c-svm, pam; got 'nn'"),
        ({"methods": []}, "`methods` is empty"),
        ({"seeds": 0}, "seeds"),
        ({"seeds": 10**12}, "seeds` must be at most 10,000; got 1,000,000,000,000"),
        (
            {"first_seed": 10**12},
            "`first_seed` must be at most 4,294,967,294 with 2 seeds; got 1,000,000,000,000",
        ),
    ],
)
def test_wrong_options_are_reported(spec, options, message):
    """With the options that exist."""
    with pytest.raises(InvalidInputError, match=message):
        load_experiment(spec, **options)


def test_too_many_runs_are_rejected(tmp_path):
    """Before they are listed."""
    pairs = [[i / 1000, j / 1000] for i in range(200) for j in range(200)]
    rows = 'rows = [["heart", 0.1, 0.3], ["thyroid", 0.2, 0.2]]'
    spec = changed(tmp_path, rows, f'data_sets = ["heart", "thyroid"]\nnoise = {pairs}')
    with pytest.raises(InvalidInputError, match=r"tiny has 1,280,000 runs .* more than 1,000,000; use"):
        load_experiment(spec)


def test_an_unknown_name_lists_the_known_ones():
    """A missing protocol lists those that exist."""
    with pytest.raises(
        InvalidInputError,
        match="must be one of boundary, cifar10, cifar100, cifar100n, cifar10n, curves, heart-as-released",
    ):
        load_experiment("table-a2")
    with pytest.raises(InvalidInputError, match="`protocol` of curves must be one of paper; got 'fair'"):
        load_experiment("curves", protocol="fair")


@pytest.mark.parametrize(
    "option", [{"noise": ["worst"]}, {"changes": ["epochs=1"]}, {"smoke": True}, {"closed": True}]
)
def test_options_of_images_are_rejected(option):
    """The message names the option."""
    with pytest.raises(InvalidInputError, match=f"`{next(iter(option))}` does not apply to curves"):
        load_experiment("curves", **option)


def test_no_changes_are_accepted():
    """An empty list changes nothing, so it applies to tables too."""
    for nothing in ((), []):
        assert load_experiment("curves", changes=nothing).runs() == load_experiment("curves").runs()
