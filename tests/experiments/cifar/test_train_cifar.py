"""Runs of the CIFAR experiments on a folder of synthetic images."""

import dataclasses
import importlib.metadata
import json
import shutil

import pytest
import torch

from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.experiments import Record, Store, StoreWarning, load_experiment, run_experiment
from peerloss.experiments.cifar import SharedResources, cifar_table
from peerloss.experiments.cifar import _cifar_experiment as cifar_experiment
from peerloss.experiments.cifar import _train_cifar as train_cifar
from peerloss.losses import PeerLoss
from peerloss.training.deep import _sieve_targets, _training_output
from tests.experiments.cifar.made_up import write_cifar, write_cifar100

FEWER = ("rows=60", "holdout=10")
SMOKE = {"seeds": 1, "smoke": True}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_cifar100(write_cifar(tmp_path_factory.mktemp("images")))


def load(*methods, name="cifar10", noise="uniform:0.4", changes=FEWER, **options):
    options = SMOKE | options
    return load_experiment(name, noise=[noise], methods=methods, changes=changes, **options)


def run(experiment, folder, data, device="cpu", **options):
    with Store(folder) as store:
        resources = SharedResources(data, device, images=experiment.images)
        return run_experiment(experiment, store, resources=resources, **options)


def in_folder(folder, experiment):
    return Store(folder).records_of(experiment)


def test_every_method_runs_and_finished_runs_are_skipped(data, tmp_path):
    """Human labels too; the second time nothing is trained and no image is read."""
    experiment = load_experiment("cifar10n", noise=["worst"], seeds=1, smoke=True)
    first = run(experiment, tmp_path, data)
    assert (first.runs, first.done, first.skipped, first.failed) == (7, 7, 0, {})
    assert first.remaining_cost == 0
    again = run(experiment, tmp_path, tmp_path / "no images here")
    assert (again.done, again.skipped) == (0, 7)
    assert again.records == first.records
    assert not list((tmp_path / "cifar10n" / "unfinished").iterdir())


@pytest.mark.parametrize("noise", ["asymmetric:0.4", "instance:0.4", "long_tail:10:0.2"])
@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_every_kind_of_noise_runs(name, noise, data, tmp_path):
    """Peer loss with both kinds of sieve, 10 and 100 classes; the record has the noise and its true rate."""
    experiment = load_experiment(name, noise=[noise], methods=["peer+sieve", "peer+growth"], **SMOKE)
    summary = run(experiment, tmp_path, data)
    assert (summary.done, summary.failed) == (2, {})
    for record in summary.records:
        assert record["noise"] == noise
        assert 0.05 < record["noise_in_training"] < 0.6
        assert record["run"].get("images", "cifar10") == name


def test_several_networks_are_trained_as_an_ensemble(data, tmp_path):
    """Their initial weights differ and depend on the seed; a change of their number is another run."""
    experiment = load("peer+growth", changes=(*FEWER, "members=2"))
    summary = run(experiment, tmp_path, data)
    assert (summary.done, summary.failed) == (1, {})
    assert summary.records[0]["run"]["members"] == 2
    resources = SharedResources(data, "cpu")
    (pair,), (one,) = experiment.runs(), load("peer+growth").runs()
    assert pair.key != one.key
    model = resources.network(pair)
    first, second = (member.classifier.weight.clone() for member in model.members)
    assert not torch.equal(first, second)
    assert torch.equal(first, resources.network(one).classifier.weight)
    resources.network(dataclasses.replace(pair, seed=5))
    assert not torch.equal(first, model.members[0].classifier.weight)


def test_every_method_runs_on_100_classes(data, tmp_path):
    """Human labels, from the command's folder of images; the network has 100 outputs."""
    summary = run(load_experiment("cifar100n", **SMOKE), tmp_path, data)
    assert (summary.runs, summary.done, summary.failed) == (4, 4, {})
    resources = SharedResources(data, "cpu", images="cifar100")
    (template, *_) = load_experiment("cifar100n", **SMOKE).runs()
    assert resources.network(template).classifier.out_features == 100
    rows, labels = resources.noisy_rows(template)
    assert (labels != resources.training[1][rows]).mean() == pytest.approx(0.3, abs=0.15)


def test_resources_of_other_images_are_refused(data, tmp_path):
    """Before anything is read; unknown images too."""
    experiment = load("ce", name="cifar100")
    with Store(tmp_path / "runs") as store:
        with pytest.raises(
            InvalidInputError, match=r"must have the images of cifar100; got images='cifar10'"
        ):
            run_experiment(experiment, store, resources=SharedResources(data, "cpu"))
        wrong = SharedResources(data, "cpu", images="cifar")
        with pytest.raises(
            InvalidInputError, match="`images` must be one of 'cifar10', 'cifar100'; got 'cifar'"
        ):
            wrong.load(test=True)
    assert not (tmp_path / "runs").exists()


def test_a_deprecated_method_still_returns_the_labels(data):
    """``noisy_labels`` warns and names ``noisy_rows``."""
    (one,) = load("ce").runs()
    resources = SharedResources(data, "cpu")
    with pytest.warns(DeprecationWarning, match="Use `SharedResources.noisy_rows`"):
        labels = resources.noisy_labels(one)
    assert (labels == resources.noisy_rows(one)[1]).all()


def test_a_smoke_test_includes_peer_loss_the_teacher_and_a_renewal(data, tmp_path, monkeypatch):
    """Every part of the method with a sieve, in this order."""
    seen = []

    def watch(owner, name, note):
        original = getattr(owner, name)

        def watched(self, *arguments, **options):
            seen.append(note(self))
            return original(self, *arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(PeerLoss, "forward", lambda loss: f"loss with alpha {float(loss.alpha):g}")
    watch(_sieve_targets.RefreshedTargets, "_query_teacher", lambda _: "teacher")
    watch(_sieve_targets.RefreshedTargets, "_refresh_targets", lambda _: "refresh")
    (record,) = run(load("peer+sieve"), tmp_path, data).records
    assert seen == ["loss with alpha 0", "loss with alpha 2", "teacher", "refresh"]
    assert {"before_sieve", "settled"} <= set(record["test"])


def test_a_closed_run_never_reads_the_test_set(data, tmp_path):
    """Its file may be damaged; the same run without ``closed`` is another run."""
    closed_data = shutil.copytree(data, tmp_path / "images")
    (closed_data / "cifar-10-batches-py" / "test_batch").write_bytes(b"no pickle at all")
    closed = load("ce", closed=True)
    (record,) = run(closed, tmp_path / "runs", closed_data).records
    assert "test" not in record
    assert "last" in record["held_out"]
    with pytest.raises(InvalidInputError, match="test_batch"):
        run(load("ce"), tmp_path / "runs", closed_data)
    opened = run(load("ce"), tmp_path / "runs", data)
    assert (opened.done, opened.skipped) == (1, 0)
    stored = in_folder(tmp_path / "runs", load("ce"))
    assert [set(one) & {"test", "held_out"} for one in stored] == [{"test", "held_out"}]
    assert opened.records[0]["held_out"] == record["held_out"]
    again = run(closed, tmp_path / "runs", closed_data)
    assert (again.done, again.skipped) == (0, 1)
    assert in_folder(tmp_path / "runs", closed) == [record]


def test_the_folder_keeps_records_that_were_not_requested(data, tmp_path, monkeypatch):
    """Other methods, seeds and settings; smoke tests, also those without a mark, are separate."""
    monkeypatch.setattr(cifar_experiment, "train_cifar", lambda *_: {"test": {"last": 0.5}, "seconds": 1.0})
    run(load("ce", "peer", seeds=2, smoke=False), tmp_path, data)
    run(load("ce", smoke=False, changes=["epochs=3"]), tmp_path, data)
    run(load("ce"), tmp_path, data)
    summary = run(load("ce", smoke=False), tmp_path, data)
    assert len(summary.records) == 1
    stored = in_folder(tmp_path, load("ce", smoke=False))
    assert [one["run"]["smoke"] for one in stored] == [False] * 5
    assert Record({"run": {"width": 4}}).protocol == load("ce").protocol == "smoke, open"
    assert Record({"run": {"width": 64}}).protocol == load("ce", smoke=False).protocol == "open"


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99"])
def test_a_missing_device_is_reported_before_images_are_read(device, tmp_path):
    """An unknown name, a device without memory, a GPU that does not exist."""
    with pytest.raises(InvalidInputError, match=f"`device` must be 'auto' or .*'{device}' cannot be used"):
        run(load("ce"), tmp_path, tmp_path, device)


def test_more_rows_held_out_than_exist(data, tmp_path):
    """The message has the number of images; nothing is trained."""
    with pytest.raises(InvalidInputError, match="less than the number of images, 60; got 60"):
        run(load("ce", changes=["rows=60", "holdout=60"]), tmp_path, data)


def test_a_record_has_settings_results_and_provenance(data, tmp_path):
    """Accuracies of the last and of the best epoch, the share of wrong labels, versions, time."""
    (record,) = run(load("ce"), tmp_path, data).records
    assert record["run"]["recipe"]["epochs"] == len(record["history"]) == 4
    names = {"last", "average", "best"}
    assert set(record["test"]) == names | {f"{name}, mirrored too" for name in names}
    assert set(record["held_out"]) == set(record["test"])
    assert 0.25 < record["noise_in_training"] < 0.55
    assert record["versions"]["torch"] == importlib.metadata.version("torch")
    assert record["device"] == "CPU"
    assert record["seconds"] > 0


def test_held_out_labels_are_never_trained_on(data, tmp_path, monkeypatch):
    """With held-out images training uses all rows, but not the labels that choose the epoch."""
    seen = []
    train = train_cifar.train_deep

    def watched(model, loss, X, y, **options):
        held_out = options["validation"][0]
        seen.append((len(X), (y < 0).sum(), (y < 0).any() and (X[y < 0] == held_out).all()))
        return train(model, loss, X, y, **options)

    monkeypatch.setattr(train_cifar, "train_deep", watched)
    for held_out_images in (True, False):
        changes = [*FEWER, f"held_out_images={held_out_images}"]
        run(load("peer+sieve", name="cifar10n", noise="worst", changes=changes), tmp_path, data)
    assert seen == [(60, 10, True), (50, 0, False)]


def test_noise_and_weights_depend_on_the_seed(data):
    """Two methods with one seed have the same labels; another seed has others."""
    resources = SharedResources(data, "cpu")
    first, second = load("ce", "peer").runs()
    other = load("ce", seeds=2).runs()[1]
    labels = [resources.noisy_rows(one)[1] for one in (first, second, other)]
    assert (labels[0] == labels[1]).all()
    assert (labels[0] != labels[2]).any()
    start = [p.clone() for p in resources.network(first).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(start, resources.network(second).parameters(), strict=True))


@pytest.mark.parametrize(("method", "stop_after"), [("peer", 1), ("dmi", 1), ("dmi", 3)])
def test_a_stopped_run_ends_with_the_results_of_an_undisturbed_one(
    method, stop_after, data, tmp_path, monkeypatch
):
    """Stopped after any checkpoint, of the first or the second stage, and started again."""
    experiment = load(method)
    (undisturbed,) = run(experiment, tmp_path / "undisturbed", data).records
    saved = []

    def save_then_stop(path, state):
        save(path, state)
        saved.append(path)
        if len(saved) == stop_after:
            raise KeyboardInterrupt

    save = _training_output.save_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(_training_output, "save_checkpoint", save_then_stop)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, tmp_path / "parts", data)
    torch.manual_seed(77)  # a new process has another state of the generator
    (resumed,) = run(experiment, tmp_path / "parts", data).records
    timeless = [
        [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in record["history"]]
        for record in (undisturbed, resumed)
    ]
    assert timeless[0] == timeless[1]
    assert resumed["test"] == undisturbed["test"]
    assert resumed["seconds"] >= sum(epoch["seconds"] for epoch in resumed["history"]) - 0.01


def test_a_diverged_run_is_reported_and_the_others_continue(data, tmp_path, monkeypatch):
    """It is not stored, so the same command tries again."""

    def execute(one, *arguments, **options):
        if one.method == "ce":
            raise DivergenceError("the mean loss is nan")
        return original(one, *arguments, **options)

    original = cifar_experiment.train_cifar
    monkeypatch.setattr(cifar_experiment, "train_cifar", execute)
    summary = run(load("ce", "peer"), tmp_path, data)
    assert summary.done == 1
    ((key, reason),) = summary.failed.items()
    assert key.startswith("cifar10/uniform:0.4/ce/0/")
    assert "nan" in reason


def test_missing_images_are_reported_with_advice(tmp_path):
    """The message names the folder, the download and the variable."""
    with pytest.raises(InvalidInputError, match=r"must contain test_batch.*PEERLOSS_DATA"):
        run(load("ce"), tmp_path / "runs", tmp_path)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "damage",
    [
        {"run": None},
        {"run": {"width": 4}},
        {"noise": "sometimes"},
        {"noise": 3},
        {"test": {"last": "high"}},
        {"test": None},
        {"seconds": None},
        {"versions": []},
        {"commit": ["a"]},
    ],
    ids=str,
)
def test_the_run_of_a_damaged_record_is_repeated(data, tmp_path, monkeypatch, damage):
    """Only its own run is affected, and a warning counts it."""
    monkeypatch.setattr(cifar_experiment, "train_cifar", lambda *_: {"test": {"last": 0.5}, "seconds": 1.0})
    experiment = load("ce", seeds=2)
    run(experiment, tmp_path, data)
    (path,) = tmp_path.glob("records-*")
    first, other = path.read_text().splitlines()
    path.write_text(first + "\n" + json.dumps(json.loads(other) | damage) + "\n")
    with pytest.warns(StoreWarning, match="1 of its 2 lines cannot be read"):
        again = run(experiment, tmp_path, data)
    assert (again.skipped, again.done) == (1, 1)
    assert "| 2 | 50.00 ± 0.00 |" in cifar_table(experiment, again.records)
