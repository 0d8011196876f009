"""Runs of the CIFAR experiments on a folder of made-up images."""

import importlib.metadata

import pytest
import torch

from peerloss.exceptions import DivergenceError, InvalidInputError
from peerloss.experiments.cifar import _runner as runner
from peerloss.experiments.cifar import _work as work
from peerloss.experiments.cifar import cifar_means, cifar_table, load_cifar, run_cifar
from peerloss.experiments.cifar._work import Workshop
from peerloss.training import _deep
from tests.experiments.cifar.made_up import write_cifar


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_cifar(tmp_path_factory.mktemp("images"))


def load(*methods, name="cifar10", noise="uniform:0.4", seeds=1, changes=()):
    return load_cifar(name, noise=[noise], methods=methods, seeds=seeds, changes=changes, smoke=True)


def run(experiment, folder, data, **options):
    return run_cifar(experiment, folder, data_dir=data, device="cpu", checkpoint_every=1, **options)


def test_every_method_runs_and_finished_runs_are_skipped(data, tmp_path):
    """Human labels too; the second time nothing is trained, nor are images read."""
    experiment = load_cifar("cifar10n", noise=["worst"], seeds=1, smoke=True)
    first = run(experiment, tmp_path, data)
    assert (first.runs, first.done, first.skipped, first.failed) == (5, 5, 0, {})
    assert first.epochs_left == 0
    again = run(experiment, tmp_path, tmp_path / "no images here")
    assert (again.done, again.skipped) == (0, 5)
    assert again.records == first.records
    assert not list((tmp_path / "cifar10n" / "unfinished").iterdir())


def test_a_record_says_what_was_run_and_where(data, tmp_path):
    """Accuracies of the last and of the best epoch, the share of wrong labels, versions, time."""
    (record,) = run(load("ce"), tmp_path, data).records
    assert record["run"]["recipe"]["epochs"] == len(record["history"]) == 2
    names = {"last", "average", "best"}
    assert set(record["test"]) == names | {f"{name}, mirrored too" for name in names}
    assert set(record["held_out"]) == set(record["test"])
    assert 0.25 < record["noise_in_training"] < 0.55
    assert record["versions"]["torch"] == importlib.metadata.version("torch")
    assert record["device"] == "CPU"
    assert record["seconds"] > 0


def test_held_out_labels_are_never_trained_on(data, tmp_path, monkeypatch):
    """With held-out images training sees all rows, but no label of those that choose the epoch."""
    seen = []
    train = work.train_deep

    def watched(model, loss, X, y, **options):
        held_out = options["validation"][0]
        seen.append((len(X), (y < 0).sum(), (y < 0).any() and (X[y < 0] == held_out).all()))
        return train(model, loss, X, y, **options)

    monkeypatch.setattr(work, "train_deep", watched)
    for held_out_images in (True, False):
        changes = [f"held_out_images={held_out_images}"]
        run(load("peer+sieve", name="cifar10n", noise="worst", changes=changes), tmp_path, data)
    assert seen == [(200, 20, True), (180, 0, False)]


def test_noise_and_rows_follow_from_the_seed(data):
    """Two methods of one seed see the same labels; another seed sees others."""
    workshop = Workshop(data, torch.device("cpu"))
    first, second = load("ce", "peer").runs()
    other = load("ce", seeds=2).runs()[1]
    assert (workshop.noisy_labels(first) == workshop.noisy_labels(second)).all()
    assert (workshop.noisy_labels(first) != workshop.noisy_labels(other)).any()
    start = [p.clone() for p in workshop.network(first).parameters()]
    assert all(torch.equal(a, b) for a, b in zip(start, workshop.network(second).parameters(), strict=True))


@pytest.mark.parametrize(("method", "stop_after"), [("peer", 1), ("dmi", 1), ("dmi", 3)])
def test_a_stopped_run_ends_with_the_figures_of_an_undisturbed_one(
    method, stop_after, data, tmp_path, monkeypatch
):
    """Stopped after any checkpoint, of the first or the second stage, and started again."""
    experiment = load(method, changes=["epochs=4"])
    (whole,) = run(experiment, tmp_path / "whole", data).records
    saved = []

    def save_then_stop(path, state):
        save(path, state)
        saved.append(path)
        if len(saved) == stop_after:
            raise KeyboardInterrupt

    save = _deep.save_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(_deep, "save_checkpoint", save_then_stop)
        with pytest.raises(KeyboardInterrupt):
            run(experiment, tmp_path / "parts", data)
    torch.manual_seed(77)  # a new process would not be where this one is
    (resumed,) = run(experiment, tmp_path / "parts", data).records
    timeless = [
        [{k: v for k, v in epoch.items() if k != "seconds"} for epoch in record["history"]]
        for record in (whole, resumed)
    ]
    assert timeless[0] == timeless[1]
    assert resumed["test"] == whole["test"]
    assert resumed["seconds"] >= sum(epoch["seconds"] for epoch in resumed["history"]) - 0.01


def test_a_diverged_run_is_told_and_the_others_go_on(data, tmp_path, monkeypatch):
    """It is not recorded, so the same command tries again."""

    def execute(one, *arguments, **options):
        if one.method == "ce":
            raise DivergenceError("the mean loss is nan")
        return original(one, *arguments, **options)

    original = runner.execute
    monkeypatch.setattr(runner, "execute", execute)
    summary = run(load("ce", "peer"), tmp_path, data)
    assert summary.done == 1
    ((key, reason),) = summary.failed.items()
    assert key.startswith("cifar10/uniform:0.4/ce/0/")
    assert "nan" in reason


def test_missing_images_are_named_with_what_to_do(tmp_path):
    """The folder, the download, the variable."""
    with pytest.raises(InvalidInputError, match=r"must hold test_batch.*PEERLOSS_DATA"):
        run(load("ce"), tmp_path / "runs", tmp_path)
    assert not (tmp_path / "runs").exists()


def test_the_table_has_means_published_figures_and_provenance():
    """Over seeds; published methods that were not run have rows of their own."""
    experiment = load_cifar("cifar10n", noise=["worst"], methods=["ce", "peer"])
    shared = {
        "noise": "worst",
        "device": "NVIDIA H200",
        "commit": "abc1234",
        "versions": {"peerloss": "0.1.0", "torch": "2.11.0", "python": "3.12.3"},
        "run": {"holdout": 5000},
    }
    records = [
        {**shared, "method": "ce", "seed": 0, "test": {"last": 0.77, "best": 0.80}, "seconds": 30.0},
        {**shared, "method": "ce", "seed": 1, "test": {"last": 0.79, "best": 0.82}, "seconds": 60.0},
    ]
    (row,) = cifar_means(experiment, records)
    assert row["last"] == pytest.approx((78.0, 2**0.5))
    page = cifar_table(experiment, records)
    # It kept no average, and there was no sieve.
    assert "| worst | ce | 2 | 78.00 ± 1.41 |  | 81.00 ± 1.41 |  |  | 45 | 77.69 |" in page
    assert "| worst | SOP+ |  |  |  |  |  |  |  | 93.24 |" in page
    assert (
        "commit abc1234, peerloss 0.1.0, torch 2.11.0, Python 3.12.3, NVIDIA H200; 2 runs, 1.5 GPU-minutes"
        in page
    )
    assert "5000 held-out noisy labels" in page
    assert "No run is done" in cifar_table(experiment, [])
