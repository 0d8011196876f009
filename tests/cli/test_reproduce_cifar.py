"""peerloss reproduce cifar10 and cifar10n."""

import json

import pytest
from typer.testing import CliRunner

from peerloss.cli import app
from peerloss.cli._reproduce_cifar import CIFAR
from peerloss.experiments.cifar import CIFAR_SPECS
from tests.experiments.cifar.made_up import write_cifar


def invoke(*arguments):
    return CliRunner().invoke(app, ["reproduce", *[str(argument) for argument in arguments]])


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_cifar(tmp_path_factory.mktemp("images"))


def test_a_smoke_test_ends_with_a_table(data, tmp_path):
    """Two epochs on a few images, from the command line; the second time everything is there."""
    options = ("--smoke", "--methods", "ce,peer", "--noise", "uniform:0.4", "--seeds", "1", "-o", tmp_path)
    first = invoke("cifar10", *options, "--data-dir", data)
    assert first.exit_code == 0, first.output
    assert "Run 2 of 2: uniform:0.4 peer seed 0" in first.stderr
    assert "| uniform:0.4 | peer | 1 |" in first.stdout
    assert "CPU-minutes in all" in first.stdout
    assert first.stdout.splitlines()[-1].startswith("2 runs in ")
    assert "| uniform:0.4 | peer | 1 |" in (tmp_path / "cifar10" / "table.md").read_text(encoding="utf-8")
    again = invoke("cifar10", *options, "--data-dir", data)
    assert again.stdout.splitlines()[-1].startswith("0 runs in 0 s, 2 were there")


def test_json_alone(data, tmp_path, monkeypatch):
    """Means by noise and method; the folder of images may come from the environment."""
    monkeypatch.setenv("PEERLOSS_DATA", str(data))
    told = json.loads(
        invoke(
            *("cifar10n", "--smoke", "--methods", "ce", "--noise", "worst", "--seeds", 2, "-o", tmp_path),
            *("--set", "epochs=1", "--json"),
        ).stdout
    )
    assert (told["runs"], told["done"], told["failed"]) == (2, 2, 0)
    (row,) = told["means"]
    assert (row["noise"], row["method"], row["seeds"], row["published"]) == ("worst", "ce", 2, 77.69)


def test_without_images_the_error_says_what_to_do(tmp_path, monkeypatch):
    """Which folder was looked at, where to get them, how to name it."""
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    told = invoke("cifar10", "--smoke", "-o", tmp_path, "--data-dir", tmp_path)
    assert told.exit_code == 2
    assert f"`data_dir` must hold test_batch; {tmp_path} does not" in told.stderr
    assert "PEERLOSS_DATA" in told.stderr


def test_options_go_where_they_belong(tmp_path):
    """Images have no data sets to choose; tables have no device."""
    assert "are for cifar10 and cifar10n" in invoke("curves", "--smoke", "-o", tmp_path).stderr
    assert "choose with --noise" in invoke("cifar10", "--data-sets", "heart", "-o", tmp_path).stderr


def test_names_are_those_of_the_specs():
    """The command line knows them without importing the package."""
    assert CIFAR == CIFAR_SPECS
