"""Records of the CIFAR experiments as a table."""

import json
from dataclasses import replace

import pytest

from peerloss.experiments import load_experiment
from peerloss.experiments.cifar import cifar_means, cifar_table

WHERE = {
    "device": "NVIDIA H200",
    "commit": "abc1234",
    "versions": {"peerloss": "0.1.0", "torch": "2.11.0", "python": "3.12.3"},
}


def record(run, seconds=60.0, *, kind="test", **accuracies):
    """Return the fields of a stored record, after conversion to JSON and back."""
    settings = json.loads(json.dumps(run.settings()))
    who = {name: settings[name] for name in ("experiment", "noise", "method", "seed")}
    return {**who, **WHERE, "run": settings, kind: accuracies, "seconds": seconds}


def test_the_table_has_means_published_numbers_and_provenance():
    """Over seeds; published methods that were not run have rows of their own."""
    experiment = load_experiment("cifar10n", noise=["worst"], methods=["ce", "peer"])
    first, _, second, *_ = experiment.runs()
    records = [record(first, 30.0, last=0.77, best=0.80), record(second, last=0.79, best=0.82)]
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
    assert "mean nothing" not in page
    assert "No run is done" in cifar_table(experiment, [])


def test_rows_do_not_depend_on_what_is_requested():
    """All records in the order of the file, other noise last; a requested method does not hide the others."""
    runs = load_experiment("cifar10n", methods=["ce", "peer"], seeds=1).runs()
    runs += load_experiment("cifar10n", methods=["js"], noise=["random3"], seeds=1).runs()
    records = [record(run, last=0.9) for run in reversed(runs)]
    pages = {
        cifar_table(load_experiment("cifar10n", **requested), records)
        for requested in ({}, {"methods": ["ce"], "noise": ["worst"]}, {"changes": ["epochs=3"]})
    }
    (page,) = pages
    places = [line.split(" | ")[:2] for line in page.splitlines() if "90.00" in line]
    assert places == [
        *([f"| {noise}", method] for noise in ("worst", "random1", "aggregate") for method in ("ce", "peer")),
        ["| random3", "js"],
    ]


def test_other_settings_are_other_rows():
    """They are never averaged with the usual ones; the row lists what differs, in the form of --set."""
    experiment = load_experiment("cifar10", noise=["uniform:0.4"], methods=["peer+sieve"], seeds=1)
    (usual,) = experiment.runs()
    changes = ["epochs=60", "sieve.augment.crop=2", "rows=1000"]
    changed = load_experiment(
        "cifar10", noise=["uniform:0.4"], methods=["peer+sieve"], seeds=2, changes=changes
    ).runs()
    records = [record(usual, last=0.9), *(record(run, last=0.5) for run in changed)]
    plain, other = cifar_means(experiment, records)
    assert (plain["settings"], plain["seeds"], plain["last"]) == ("", 1, (90.0, 0.0))
    assert (other["settings"], other["seeds"]) == ("rows=1000, epochs=60, sieve.augment.crop=2", 2)
    without = replace(usual, recipe=replace(usual.recipe, sieve=None))
    page = cifar_table(experiment, [*records, record(without, last=0.4)])
    assert "| uniform:0.4 | peer+sieve (rows=1000, epochs=60, sieve.augment.crop=2) | 2 | 50.00" in page
    assert "| uniform:0.4 | peer+sieve (sieve=None) | 1 | 40.00" in page


def test_a_sieve_that_the_file_does_not_have_is_listed():
    """With all its settings; methods of an earlier file are listed too."""
    experiment = load_experiment("cifar10", noise=["uniform:0.4"], methods=["peer", "peer+sieve"], seeds=1)
    peer, sieve = experiment.runs()
    sieved = replace(peer, recipe=replace(peer.recipe, sieve=sieve.recipe.sieve))
    (row,) = cifar_means(experiment, [record(sieved, last=0.9)])
    assert row["settings"].startswith("sieve.start=0.15, sieve.rounds=1")
    (row,) = cifar_means(experiment, [record(replace(peer, method="peer+old"), last=0.9)])
    assert (row["method"], row["last"]) == ("peer+old", (90.0, 0.0))


def test_a_closed_table_has_only_held_out_accuracy():
    """There is no column of published test accuracies; the page states that the test set was not read."""
    experiment = load_experiment("cifar10", noise=["uniform:0.4"], methods=["ce"], seeds=1, closed=True)
    page = cifar_table(experiment, [record(*experiment.runs(), kind="held_out", last=0.6)])
    assert "| uniform:0.4 | ce | 1 | 60.00 |  |  |  |  | 60 |" in page.splitlines()
    assert "on 5000 held-out noisy labels" in page
    assert "The test set was not read" in page
    assert "ublished" not in page


def test_a_smoke_page_is_marked():
    """It cannot be mistaken for results."""
    experiment = load_experiment("cifar10", noise=["uniform:0.4"], methods=["ce"], seeds=1, smoke=True)
    page = cifar_table(experiment, [record(*experiment.runs(), last=0.1)])
    assert "(smoke test)" in page
    assert "these results mean nothing" in page
    assert "| uniform:0.4 | ce | 1 | 10.00" in page
