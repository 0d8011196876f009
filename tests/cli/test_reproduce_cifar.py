"""peerloss reproduce cifar10, cifar10n, cifar100 and cifar100n."""

import json

import pytest
import torch
from typer.testing import CliRunner

from peerloss.cli import app
from peerloss.cli._reproduce import IMAGES
from peerloss.experiments import IMAGE_EXPERIMENTS
from peerloss.experiments.cifar import _cifar_experiment
from tests.experiments.cifar.made_up import write_cifar, write_cifar100


def invoke(*arguments):
    return CliRunner().invoke(app, ["reproduce", *[str(argument) for argument in arguments]])


def read(page):
    return page.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_cifar100(write_cifar(tmp_path_factory.mktemp("images")))


def test_a_smoke_test_ends_with_a_table(data, tmp_path):
    """Four epochs on a few images, from the command line; the second time everything is done."""
    options = ("--smoke", "--methods", "ce,peer", "--noise", "uniform:0.4", "--seeds", "1", "-o", tmp_path)
    first = invoke("cifar10", *options, "--data-dir", data)
    assert first.exit_code == 0, first.output
    assert "Run 2 of 2: uniform:0.4 peer seed 0" in first.stderr
    assert "| uniform:0.4 | peer | 1 |" in first.stdout
    assert "CPU-minutes in total" in first.stdout
    assert first.stdout.splitlines()[-1].startswith("2 runs in ")
    assert "| uniform:0.4 | peer | 1 |" in read(tmp_path / "cifar10" / "table_smoke.md")
    assert not (tmp_path / "cifar10" / "table.md").exists()
    again = invoke("cifar10", *options, "--data-dir", data)
    assert again.stdout.splitlines()[-1].startswith("0 runs in 0 s, 2 already done")


def test_images_of_100_classes(data, tmp_path):
    """From the same folder of images; the unknown noise of the other images is refused."""
    options = ("--smoke", "--methods", "peer", "--seeds", "1", "-o", tmp_path, "--data-dir", data)
    done = invoke("cifar100n", *options)
    assert done.exit_code == 0, done.output
    assert "| human | peer | 1 |" in read(tmp_path / "cifar100n" / "table_smoke.md")
    refused = invoke("cifar100n", *options, "--noise", "worst")
    assert refused.exit_code == 2
    assert "or human labels: human; got 'worst'" in refused.stderr


@pytest.fixture
def no_training(monkeypatch):
    """Replace training; the accuracy in per cent is the number of epochs."""

    def train_cifar(run, *_):
        accuracy = {"last": 0.01 * run.recipe.epochs}
        results = {"held_out": accuracy} if run.closed else {"test": accuracy, "held_out": {"last": 0.0}}
        return {**results, "best_epoch": 1, "seconds": 1.0}

    monkeypatch.setattr(_cifar_experiment, "train_cifar", train_cifar)


@pytest.mark.usefixtures("no_training")
def test_a_part_of_the_runs_or_a_smoke_test_removes_nothing_from_the_table(data, tmp_path):
    """All, then one method, then other settings, then a smoke test: the page only gains rows."""
    options = ("cifar10", "--data-dir", data, "-o", tmp_path)
    page = tmp_path / "cifar10" / "table.md"
    assert invoke(*options).exit_code == 0
    everything = read(page)
    assert everything.count(" 30.00 ± 0.00 ") == 15  # five noises; cross entropy, DMI and peer loss
    assert everything.count(" 200.00 ± 0.00 ") == 10  # with the sieve, fixed and growing
    part = invoke(*options, "--methods", "ce", "--noise", "uniform:0.2")
    assert read(page) == everything
    assert everything in part.stdout
    invoke(*options, "--methods", "ce", "--noise", "uniform:0.2", "--set", "epochs=60")
    changed = read(page)
    assert set(everything.splitlines()) - set(changed.splitlines()) == {everything.splitlines()[2]}  # minutes
    assert "| uniform:0.2 | ce (epochs=60) | 3 | 60.00 ± 0.00 |" in changed
    smoke = invoke(*options, "--smoke", "--methods", "ce", "--noise", "uniform:0.2")
    assert read(page) == changed
    assert "ce (epochs=60)" not in smoke.stdout
    assert "| uniform:0.2 | ce | 3 | 4.00 ± 0.00 |" in read(page.with_name("table_smoke.md"))


@pytest.mark.usefixtures("no_training")
def test_closed_runs_have_a_page_of_their_own(data, tmp_path):
    """Only held-out accuracy is printed, and the other table is not changed."""
    options = ("cifar10n", "--noise", "worst", "--methods", "ce", "--seeds", 1, "-o", tmp_path)
    closed = invoke(*options, "--data-dir", data, "--closed")
    assert "held out: last 30.00" in closed.stderr
    assert "test:" not in closed.stderr
    assert "| worst | ce | 1 | 30.00 |" in read(tmp_path / "cifar10n" / "table_closed.md")
    assert not (tmp_path / "cifar10n" / "table.md").exists()
    opened = invoke(*options, "--data-dir", data)
    assert "1 runs in" in opened.stdout
    assert "77.69" in read(tmp_path / "cifar10n" / "table.md")


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (
            ("--device", "gpu"),
            "--device must be 'auto' or a torch device such as 'cpu' or 'cuda:0'; 'gpu' cannot be used",
        ),
        (("--device", "cuda:99"), "'cuda:99' cannot be used here"),
        pytest.param(
            *(("--device", "cuda"), "'cuda' cannot be used here"),
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
        (("--noise", "pair:0.4"), "long_tail:10:0.2, or human labels: aggregate, random1, random2, random3"),
        (("--set", "sieve=True"), "`sieve` must be None or changed by its own settings"),
        (("--set", "augment=3"), "`augment` must be changed by its own settings"),
        (("--set", "rows='a'"), "`rows` must be an integer or None; got 'a'"),
        (("--set", "width=0"), "`width` must be an integer of at least 1; got 0"),
        (("--set", "holdout=-1"), "`holdout` must be an integer of at least 1; got -1"),
        (("--set", "seed=7"), "--set cannot set the seed, because every run has its own"),
        (("--set", "seed=7"), "Choose other seeds with --seed."),
        (("--set", "epochs"), "--set must be name=value"),
        (("--set", "compile='yes'"), "`compile` must be True or False; got 'yes'"),
    ],
)
def test_what_cannot_be_run_is_reported_in_one_line(option, message, data, tmp_path):
    """Nothing is trained or written."""
    result = invoke("cifar10", *option, "--smoke", "--data-dir", data, "-o", tmp_path / "runs")
    assert result.exit_code == 2
    (line,) = result.stderr.splitlines()
    assert line.startswith("Error: ")
    assert message in line
    assert not (tmp_path / "runs").exists()


@pytest.mark.usefixtures("no_training")
def test_a_deprecated_setting_is_reported_once(data, tmp_path):
    """Python hides deprecation warnings by default; the command prints one line, for any number of runs."""
    options = ("--methods", "peer+sieve", "--seeds", 1, "--data-dir", data, "-o", tmp_path, "--json")
    result = invoke("cifar10", *options, "--set", "sieve.renew=2")
    assert result.exit_code == 0, result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("Warning: `sieve.renew` is deprecated")
    assert line.endswith("Use `sieve.refresh_every`.")


def test_json_alone(data, tmp_path, monkeypatch):
    """Means by noise and method; the folder of images may come from the environment."""
    monkeypatch.setenv("PEERLOSS_DATA", str(data))
    result = json.loads(
        invoke(
            *("cifar10n", "--smoke", "--methods", "ce", "--noise", "worst", "--seeds", 2, "-o", tmp_path),
            *("--set", "epochs=1", "--json"),
        ).stdout
    )
    assert (result["runs"], result["done"], result["failed"]) == (2, 2, 0)
    (row,) = result["means"]
    assert (row["noise"], row["method"], row["seeds"], row["published"]) == ("worst", "ce", 2, 77.69)


def test_without_images_the_error_says_what_to_do(tmp_path, monkeypatch):
    """The folder that was searched, where to get the images, how to set the folder."""
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    result = invoke("cifar10", "--smoke", "-o", tmp_path, "--data-dir", tmp_path)
    assert result.exit_code == 2
    assert f"--data-dir must contain test_batch; {tmp_path} does not" in result.stderr
    assert "PEERLOSS_DATA" in result.stderr


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("cifar10", ("--data-sets", "heart")),
        ("cifar10", ("--protocol", "paper")),
        ("cifar10n", ("--backend", "joblib")),
        ("cifar10n", ("--address", "auto")),
        ("cifar10", ("--jobs", "-1")),
        ("curves", ("--smoke",)),
        ("curves", ("--closed",)),
        ("curves", ("--noise", "worst")),
        ("curves", ("--set", "epochs=1")),
        ("curves", ("--data", ".")),
        ("all", ("--device", "cpu")),
        ("all", ("--methods", "nn")),
        ("all", ("--data-sets", "heart")),
    ],
)
def test_options_that_do_not_apply_are_rejected(name, option, tmp_path):
    """Also at their default values, before anything is written; the message lists those that apply."""
    result = invoke(name, *option, "-o", tmp_path / "runs")
    assert result.exit_code == 2
    words = " ".join(result.stderr.split())
    given = "--data-dir" if option[0] == "--data" else option[0]
    assert f"{given} does not apply to {name}. Options of {name}: --output, " in words
    known = words.partition("Options of")[2]
    assert ("--device" in known) == (name != "all" and name in IMAGES)
    assert ("--jobs" in known) == (name not in IMAGES)
    assert not (tmp_path / "runs").exists()


def test_names_are_those_of_the_specs():
    """The command line lists them without importing the package."""
    assert IMAGES == IMAGE_EXPERIMENTS
