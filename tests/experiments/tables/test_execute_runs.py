"""Runs on tables: what methods see, how trials are chosen, what is recorded."""

from dataclasses import fields, replace

import numpy as np
import pytest

from peerloss import CostSensitiveSVC, load_dataset
from peerloss.experiments import METHODS, final_results, load_experiment
from peerloss.experiments.tables._execute_runs import RunData, _choose, _fit, execute_runs, make_data
from peerloss.experiments.tables._methods import NET_SETTINGS, NetMethod
from peerloss.experiments.tables._train_networks import accuracy, observe, train_networks
from peerloss.noise import NoiseModel
from tests.experiments.tiny import SPEC, write_spec

SIZES = {"test_size": 0.15, "validation_size": 0.10}


def heart(noise=(0.1, 0.3), **options):
    return make_data(
        "heart", NoiseModel.binary(*noise), **({"prior": "original", "seed": 3} | SIZES | options)
    )


def runs_of(tmp_path, *, protocol="paper", old="", new="", **choice):
    return load_experiment(
        write_spec(tmp_path, SPEC.replace(old, new, 1)), protocol=protocol, **choice
    ).runs()


def test_a_run_has_the_shares_of_the_authors_code():
    """15 % of all rows for the test, 10 % of all rows for validation, as train_test_split rounds."""
    data, n = heart(), len(load_dataset("heart").y)
    assert len(data.y_test) == int(np.ceil(0.15 * n))
    assert abs(len(data.y_validation) - 0.10 * n) <= 1
    assert len(data.y_train) + len(data.y_validation) + len(data.y_test) == n


def test_training_and_validation_labels_are_noisy_and_the_test_is_clean():
    """Compared with the clean labels of the same rows, the exact number of each class is flipped."""
    data = heart(noise=(0.2, 0.4), keep_clean=True)
    clean, noisy = np.concatenate(data.clean), np.concatenate([data.y_train, data.y_validation])
    flipped = [int((noisy[clean == k] != k).sum()) for k in (0, 1)]
    assert flipped == [int(0.2 * (clean == 0).sum()), int(0.4 * (clean == 1).sum())]
    assert (data.y_validation != data.clean[1]).any(), "validation sees noisy labels"
    np.testing.assert_array_equal(data.y_test, heart(noise=(0.0, 0.0)).y_test)


def test_equalised_data_have_equal_clean_classes():
    """Over all rows, including the test."""
    data = heart(prior="equalized", keep_clean=True)
    clean = np.concatenate([*data.clean, data.y_test])
    assert clean.mean() == 0.5


def test_different_splits_have_different_hashes():
    """Another seed or other noise changes the hash; the same split has the same hash."""
    digests = [heart().digest(), heart(seed=4).digest(), heart(noise=(0.2, 0.3)).digest()]
    assert len(set(digests)) == 3
    assert heart().digest() == digests[0]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "peer-classifier"])
def test_every_method_runs_with_its_defaults(tmp_path, name):
    """Its record identifies the run and has results."""
    steps = "steps = 20\n" if "width" in METHODS[name].settings else ""
    text = f"""
rows = [["thyroid", 0.1, 0.3]]
priors = ["original"]
seeds = 1
test_size = 0.15
validation_size = 0.1
[paper.methods.{name}]
{steps}
"""
    (record,) = execute_runs(load_experiment(write_spec(tmp_path, text)).runs())
    assert (record["data_set"], record["method"], record["seed"]) == ("thyroid", name, 0)
    assert record["diverged"] == 0
    assert 0.0 <= record["test_accuracy"] <= 1.0
    assert record["trials"]["settings"] == {}


class SealedData(RunData):
    """Data whose test and clean labels cannot be read."""

    def __getattribute__(self, name):
        if name in {"X_test", "y_test", "clean"}:
            raise AssertionError(f"{name} was read during selection")
        return super().__getattribute__(name)


@pytest.mark.parametrize("name", METHODS)
def test_training_and_choosing_never_read_the_test(tmp_path, name):
    """Every method trains, tunes and is chosen without access to the test split and clean labels."""
    grid = "learning_rate = [0.001, 0.01]\nsteps = 20\n" if "width" in METHODS[name].settings else ""
    text = f"""
rows = [["thyroid", 0.1, 0.3]]
priors = ["original"]
seeds = 1
test_size = 0.15
validation_size = 0.1
[paper.methods.{name}]
{grid}
"""
    (run,) = load_experiment(write_spec(tmp_path, text)).runs()
    data = make_data("thyroid", NoiseModel.binary(0.1, 0.3), prior="original", seed=100, **SIZES)
    sealed = SealedData(**{field.name: getattr(data, field.name) for field in fields(RunData)})
    with pytest.raises(AssertionError, match="was read"):
        accuracy(sealed, data.y_test)
    is_net = isinstance(METHODS[name], NetMethod)
    trials = train_networks([(run, sealed)])[0] if is_net else _fit(run, sealed)
    scores, best = _choose(run, sealed, trials)
    assert scores[best] == max(scores)


def test_fair_does_not_test_rejected_trials(tmp_path):
    """One test accuracy per run: that of the trial which is best on noisy validation labels."""
    for record in execute_runs(runs_of(tmp_path, protocol="fair", data_sets=["heart"])):
        scores, tests = record["trials"]["noisy_validation"], record["trials"]["test_accuracy"]
        assert len(scores) == 2
        tested = [i for i, accuracy in enumerate(tests) if accuracy is not None]
        assert tested == [record["chosen"]] == [int(np.argmax(scores))]
        assert record["test_accuracy"] == tests[tested[0]]


def test_validation_scores_with_the_alpha_of_the_file(tmp_path):
    """α = 1 for equalised classes, where the largest score is 0.5; accuracy for the original ones."""
    records = execute_runs(
        runs_of(tmp_path, protocol="fair", data_sets=["thyroid"], methods=["pam"], seeds=1)
    )
    assert {record["prior"]: record["scoring_alpha"] for record in records} == {
        "equalized": 1.0,
        "original": 0.0,
    }
    (equalized,) = [record for record in records if record["prior"] == "equalized"]
    assert max(equalized["trials"]["noisy_validation"]) <= 0.5


def test_curves_end_with_the_results_of_the_run(tmp_path):
    """Recorded every five of ten steps; the last point is the trained network."""
    (record,) = execute_runs(runs_of(tmp_path, data_sets=["heart"], methods=["dmi"], seeds=1)[:1])
    assert record["curve"]["step"] == [5, 10]
    assert record["curve"]["test_accuracy"][-1] == record["test_accuracy"]
    assert record["curve"]["noisy_validation"][-1] == record["noisy_validation"]


@pytest.mark.parametrize("base", ["logistic", "sigmoid"])
def test_peer_loss_on_noisy_labels_is_proportional_to_that_on_clean_ones(tmp_path, base):
    """Lemma 2, exactly: ten copies of each row, of which one (class 0) or three (class 1) are flipped."""
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(12, 3)), 10, axis=0)
    clean = np.repeat(np.arange(12) % 3 > 0, 10).astype(np.int64)
    copy = np.arange(120) % 10
    noisy = np.where(clean == 0, copy < 1, copy >= 3).astype(np.int64)
    data = replace(
        heart(), X_train=X, y_train=noisy, X_validation=X, y_validation=noisy, clean=(clean, clean)
    )
    old, new = 'record = ["curve"]', 'record = ["invariance"]'
    run = runs_of(tmp_path, old=old, new=new, methods=["peer"])[0]
    run = replace(run, recipe=replace(run.recipe, settings=run.recipe.settings | {"base": base}))
    point = observe(run, data, lambda rows: np.stack([rows[:, 0], rows @ [0.3, -2.0, 1.0]], axis=1))
    for part in ("train", "validation"):
        factor = point[f"{part}_noisy_peer_loss"] / point[f"{part}_clean_peer_loss"]
        assert factor == pytest.approx(1 - 0.1 - 0.3, rel=1e-12)


def test_the_invariance_is_recorded_during_training(tmp_path):
    """Four curves, one point every five steps."""
    old, new = 'record = ["curve"]', 'record = ["invariance"]'
    runs = runs_of(tmp_path, old=old, new=new, data_sets=["heart"], methods=["peer"], seeds=1)
    (record,) = execute_runs(runs[:1])
    names = {f"{part}_{kind}_peer_loss" for part in ("train", "validation") for kind in ("noisy", "clean")}
    assert set(record["curve"]) == {"step", *names}
    assert {len(values) for values in record["curve"].values()} == {2}


def test_a_plane_is_the_decision_over_two_features():
    """On a grid around the training points; the circles are learnt."""
    experiment = load_experiment("boundary", methods=["nn"])
    (record,) = execute_runs(experiment.runs()[:1])
    plane = record["plane"]
    assert np.shape(plane["probability"]) == (len(plane["y"]), len(plane["x"]))
    assert len(plane["points"]) == len(plane["noisy_labels"]) == record["n_train"]
    nearest = [
        plane["probability"][np.abs(np.subtract(plane["y"], b)).argmin()][
            np.abs(np.subtract(plane["x"], a)).argmin()
        ]
        for a, b in plane["points"]
    ]
    agree = np.mean((np.array(nearest) > 0.5) == np.array(plane["noisy_labels"]))
    assert agree > 0.95, "rows are y and columns are x; a transposed or shifted grid would not agree"


def test_c_svm_is_the_estimator_of_the_library_at_one_weight():
    """The grid tunes the weight; the classifier is that of CostSensitiveSVC."""
    data = heart()
    ours = METHODS["c-svm"].make(data, class_weight=2.0).fit(data.X_train, data.y_train)
    library = CostSensitiveSVC(class_weight_grid=(2.0,), random_state=0).fit(data.X_train, data.y_train)
    np.testing.assert_allclose(ours.decision_function(data.X_test), library.decision_function(data.X_test))


def test_settings_of_networks_have_the_defaults_of_the_readme():
    """Two hidden layers of 8, Adam at 7e-4, 1000 steps, batches of 64."""
    assert NET_SETTINGS == {
        "width": 8, "hidden_layers": 2, "learning_rate": 7e-4, "weight_decay": 0.0,
        "batch_size": 64, "steps": 1000,
    }  # fmt: skip


def rows(scores, tests, choose="row"):
    """Return the records of one row, with one list of trials per seed."""
    return [
        {
            "experiment": "x", "protocol": "paper", "data_set": "heart", "e_neg": 0.1, "e_pos": 0.3,
            "prior": "original", "method": "peer", "seed": seed, "spec": "s", "choose": choose,
            "chosen": int(np.argmax([-1 if s is None else s for s in score])),
            "trials": {"settings": {"alpha": [0.0, 1.0]}, "noisy_validation": score, "test_accuracy": test},
        }
        for seed, (score, test) in enumerate(zip(scores, tests, strict=True))
    ]  # fmt: skip


def test_a_row_chooses_by_the_mean_over_its_seeds():
    """As in the authors' code, not by the best of each seed; ties go to the first trial."""
    tests = [[0.1, 0.2], [0.3, 0.4]]
    results = final_results(rows([[0.6, 0.5], [0.5, 0.9]], tests))
    assert [r.test_accuracy for r in results] == [0.2, 0.4]
    assert {r.settings["alpha"] for r in results} == {1.0}
    results = final_results(rows([[0.6, 0.5], [0.5, 0.6]], tests))
    assert [r.test_accuracy for r in results] == [0.1, 0.3], "equal means: the first"


def test_a_seed_chooses_for_itself_if_the_recipe_requires_it():
    """The other protocol."""
    results = final_results(rows([[0.6, 0.5], [0.5, 0.9]], [[0.1, None], [None, 0.4]], choose="seed"))
    assert [r.test_accuracy for r in results] == [0.1, 0.4]


def test_a_trial_that_diverged_is_not_chosen_for_a_row():
    """The other trials can be chosen."""
    results = final_results(rows([[0.4, None], [0.4, 0.9]], [[0.1, None], [0.3, 0.4]]))
    assert [r.test_accuracy for r in results] == [0.1, 0.3]
