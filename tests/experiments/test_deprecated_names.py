"""Names and keywords of earlier versions still work, and warn with the new name."""

from dataclasses import fields

import pytest
import torch

from peerloss import experiments
from peerloss.exceptions import InvalidInputError
from peerloss.experiments import (
    Progress,
    RunSummary,
    Store,
    cifar,
    demo,
    load_experiment,
    progress,
    run_experiment,
)
from tests.experiments.cifar.made_up import write_cifar


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (experiments, "Cell", experiments.TableRun),
        (cifar, "Workshop", cifar.SharedResources),
        (cifar, "load_cifar", experiments.load_experiment),
        (cifar, "CIFAR_SPECS", experiments.IMAGE_EXPERIMENTS),
    ],
)
def test_old_names_are_the_new_ones(module, old, new):
    """The warning names the new home."""
    with pytest.warns(DeprecationWarning, match=rf"`{module.__name__}.{old}` is deprecated"):
        assert getattr(module, old) is new


def test_runs_were_called_cells(spec, tmp_path):
    """In the experiment, in the summary and in the progress."""
    with pytest.warns(DeprecationWarning, match="Use `name`"):
        experiment = load_experiment(spec=spec, methods=["pam"], seeds=1)
    with pytest.warns(DeprecationWarning, match=r"Use `Experiment.runs`"):
        assert experiment.cells() == experiment.runs()
    with Store(tmp_path) as store, pytest.warns(DeprecationWarning, match="Use `n_jobs`"):
        summary = run_experiment(experiment, store, jobs=1)
    with pytest.warns(DeprecationWarning, match=r"Use `runs`"):
        assert summary.cells == summary.runs == 4
    (plan,) = progress(store)
    with pytest.warns(DeprecationWarning, match=r"Use `runs`"):
        assert plan.cells == plan.runs == 4


@pytest.mark.parametrize("kind", [RunSummary, cifar.CifarSummary, Progress])
def test_cells_are_runs_of_summaries_and_progress(kind):
    """The old field equals the new one."""
    summary = kind(**dict.fromkeys((field.name for field in fields(kind)), 3))
    with pytest.warns(DeprecationWarning, match=r"Use `runs`"):
        assert summary.cells == summary.runs == 3


def test_cells_are_runs_of_experiments_on_images():
    """The old method returns the same runs."""
    experiment = load_experiment("cifar10", methods=["ce"], seeds=1)
    with pytest.warns(DeprecationWarning, match=r"Use `Experiment.runs`"):
        assert experiment.cells() == experiment.runs()


@pytest.mark.parametrize(("old", "new"), [("steps", "max_steps"), ("jobs", "n_jobs")])
def test_the_keywords_of_the_demonstration(old, new):
    """Each warns with its new name."""
    with pytest.warns(DeprecationWarning, match=f"`{old}` is deprecated.*Use `{new}`"):
        next(demo.run_demo(seeds=1, **({"max_steps": 1} if old == "jobs" else {}), **{old: 1}))


def test_run_cifar_returns_what_it_did(tmp_path):
    """With the old keywords, callbacks and attributes."""
    data = write_cifar(tmp_path / "images")
    experiment = load_experiment("cifar10", methods=["ce"], noise=["uniform:0.4"], seeds=1, smoke=True)
    started, finished = [], []
    with pytest.warns(
        DeprecationWarning, match=r"Use `(peerloss.experiments.run_experiment|remaining_cost)`"
    ):
        summary = cifar.run_cifar(
            experiment,
            tmp_path / "runs",
            workshop=cifar.SharedResources(data, torch.device("cpu")),
            on_run=lambda run, so_far: started.append((run.method, so_far.epochs_left)),
            on_result=finished.append,
        )
    assert started == [("ce", 4)]
    assert summary.in_folder == summary.records
    assert [record["key"] for record in finished] == [record["key"] for record in summary.records]
    with pytest.warns(DeprecationWarning, match="Use `(finished|remaining)_cost`"):
        assert (summary.runs, summary.done, summary.epochs_done, summary.epochs_left) == (1, 1, 4, 0)


def test_run_cifar_does_not_ignore_options(tmp_path):
    """Options are those of the resources; with both, the message names the option."""
    experiment = load_experiment("cifar10", methods=["ce"], noise=["uniform:0.4"], seeds=1, smoke=True)
    resources = cifar.SharedResources(tmp_path)
    with (
        pytest.warns(DeprecationWarning, match="run_cifar"),
        pytest.raises(InvalidInputError, match="`checkpoint_every` cannot be combined with `workshop`"),
    ):
        cifar.run_cifar(experiment, tmp_path / "runs", workshop=resources, checkpoint_every=5)
    assert not (tmp_path / "runs").exists()
