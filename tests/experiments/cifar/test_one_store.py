"""Runs on images are in the same store as runs on tables, for status and report too."""

import pytest
from typer.testing import CliRunner

from peerloss.cli import app
from peerloss.experiments import IMAGE_EXPERIMENTS, Store, load_experiment, progress, run_experiment
from peerloss.experiments.cifar import SharedResources, _cifar_experiment, cifar_table
from peerloss.report import build_report, report_numbers, write_report
from tests.report.made_up import row, store


@pytest.fixture
def no_training(monkeypatch):
    """Replace images and training; the accuracy is known."""

    def train_cifar(run, *_):
        results = {"held_out": {"last": 0.4}} | ({} if run.closed else {"test": {"last": 0.5}})
        return {**results, "best_epoch": 1, "seconds": 2.0}

    monkeypatch.setattr(_cifar_experiment, "train_cifar", train_cifar)
    monkeypatch.setattr(SharedResources, "load", lambda *_, **__: None)


def run(folder, **options):
    experiment = load_experiment("cifar10", methods=["ce", "peer"], noise=["uniform:0.4"], **options)
    with Store(folder) as opened:
        return run_experiment(experiment, opened, resources=SharedResources(device="cpu"))


def store_as_earlier_versions(folder):
    """Move the records into the folder of the experiment and remove the plans."""
    (folder / "cifar10").mkdir(exist_ok=True)
    for path in folder.glob("records-*.jsonl"):
        path.rename(folder / "cifar10" / path.name)
    for path in folder.glob("plan-*.json"):
        path.unlink()


@pytest.mark.usefixtures("no_training")
def test_status_and_report_show_images_and_tables(tmp_path):
    """Each experiment and protocol is one plan and one section; closed runs are separate."""
    store(tmp_path, row({"peer": [0.8], "nn": [0.7]}))
    run(tmp_path, seeds=2)
    run(tmp_path, seeds=1, closed=True)
    found = [(plan.experiment, plan.protocol, plan.done, plan.runs) for plan in progress(Store(tmp_path))]
    assert found == [("cifar10", "closed", 2, 2), ("cifar10", "open", 4, 4)]
    status = CliRunner().invoke(app, ["status", str(tmp_path)])
    assert "4 of 4 runs done, 2 seeds from 0, 8 s of training" in status.stdout
    report = build_report(tmp_path)
    assert [section.name for section in report.sections] == [
        "table-a1 (paper)",
        "cifar10 (open)",
        "cifar10 (closed)",
    ]
    numbers = report_numbers(report)[1]
    assert [(entry["method"], entry["seeds"]) for entry in numbers["images"]] == [("ce", 2), ("peer", 2)]
    assert numbers["images"][0]["last"] == [50.0, 0.0]


@pytest.mark.usefixtures("no_training")
@pytest.mark.parametrize("name", IMAGE_EXPERIMENTS)
def test_status_and_report_show_every_image_experiment(name, tmp_path):
    """With all noises and methods of the file, and the published accuracies of each noise."""
    experiment = load_experiment(name, seeds=1)
    with Store(tmp_path) as opened:
        run_experiment(experiment, opened, resources=SharedResources(images=experiment.images))
    status = CliRunner().invoke(app, ["status", str(tmp_path)])
    count = len(experiment.runs())
    assert f"{count} of {count} runs done" in status.stdout
    assert f"{name}, protocol open: {experiment.title}" in " ".join(status.stdout.split())
    (section,) = build_report(tmp_path).sections
    assert (section.name, section.images.title) == (f"{name} (open)", experiment.title)
    shown = {(row["noise"], row["method"]) for row in section.images.means}
    assert shown == {(run.noise, run.method) for run in experiment.runs()}
    published = {(noise, m) for noise, found in experiment.published.items() for m in found}
    assert published <= {line[:2] for line in section.images.lines if line[-1]}
    assert all(source in section.images.explanation for source in experiment.sources.values())


@pytest.mark.usefixtures("no_training")
def test_the_page_has_the_table_with_published_numbers(tmp_path):
    """In HTML and, as ``peerloss reproduce`` writes it, in Markdown."""
    pytest.importorskip("matplotlib", reason="pages need peerloss[report]")
    summary = run(tmp_path / "runs", seeds=1)
    page = tmp_path / "page.html"
    write_report(build_report(tmp_path / "runs"), page)
    text = page.read_text(encoding="utf-8")
    assert (
        '<th scope="row" data-value="uniform:0.4">uniform:0.4</th><td class="text" data-value="ce">' in text
    )
    assert '<td data-value="82.09">82.09</td>' in text
    written = (tmp_path / "page" / "cifar10-open.md").read_text(encoding="utf-8")
    assert written == cifar_table(load_experiment("cifar10"), summary.records)


@pytest.mark.usefixtures("no_training")
def test_records_in_the_folder_of_earlier_versions_are_read(tmp_path):
    """They were in a folder with the name of the experiment, without a plan."""
    run(tmp_path, seeds=2)
    store_as_earlier_versions(tmp_path)
    (plan,) = progress(Store(tmp_path))
    assert (plan.done, plan.runs, plan.seeds) == (4, 4, (0, 1))
    assert plan.title.startswith("CIFAR-10 with synthetic noise")
    assert [section.name for section in build_report(tmp_path).sections] == ["cifar10 (open)"]
    again = run(tmp_path, seeds=2)
    assert (again.skipped, again.done) == (4, 0)


@pytest.mark.usefixtures("no_training")
def test_a_new_plan_does_not_hide_runs_of_earlier_versions(tmp_path):
    """Those that are not in the new plan are shown as a plan of their own."""
    run(tmp_path, seeds=2)
    store_as_earlier_versions(tmp_path)
    run(tmp_path, seeds=1, first_seed=1, changes=["epochs=1"])
    found = [(plan.protocol, plan.seeds, plan.done, plan.runs) for plan in progress(Store(tmp_path))]
    assert found == [("open", (1,), 2, 2), ("open", (0, 1), 4, 4)]
    run(tmp_path, seeds=1)
    found = [(plan.protocol, plan.seeds, plan.done, plan.runs) for plan in progress(Store(tmp_path))]
    assert found == [("open", (0,), 2, 2), ("open", (1,), 2, 2), ("open", (1,), 2, 2)]
