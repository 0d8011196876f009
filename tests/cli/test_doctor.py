"""``peerloss doctor``: what is installed, what is missing, and what to install."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement
from typer.testing import CliRunner

from peerloss.cli import _doctor, app

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def run(*arguments, env=None):
    return CliRunner().invoke(app, ["doctor", *arguments], env={"PEERLOSS_DATA": "", **(env or {})})


@pytest.fixture
def installed(monkeypatch):
    """Fake packages: a dictionary from name to version that tests may change."""
    versions = {"peerloss": "0.1.0", "numpy": "2.0.0", "torch": "2.13.0+cpu"}
    needed = ["numpy>=1.26.4", 'lightgbm>=4.3; extra == "boost"', 'xgboost>=2.1; extra == "boost"']
    monkeypatch.setattr(_doctor, "_version", versions.get)
    monkeypatch.setattr(_doctor, "_extras", lambda: ["boost"])
    monkeypatch.setattr(_doctor.metadata, "requires", lambda _: needed)
    monkeypatch.setattr(_doctor.shutil, "which", lambda _: None)
    return versions


def test_a_working_installation_is_reported():
    """Versions, devices, data and features; exit code 0; the last line is a summary."""
    done = run()
    assert done.exit_code == 0, done.output
    for title in ("Versions", "Devices", "Data", "Features"):
        assert f"{title}\n" in done.stdout
    assert "Problems" not in done.stdout
    core, note = done.stdout.splitlines()[-2:]
    assert core.startswith("The core is installed. Features not fully available: ")
    assert note == "Packages were looked up, not imported. peerloss doctor --full imports those of the core."


def test_the_full_check_imports_the_core():
    """The last line then says that the core works, not only that it is installed."""
    done = run("--full")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1].startswith("The core works. Features not fully available: ")


def test_json_has_all_facts():
    """The JSON has the same facts as the text."""
    facts = json.loads(run("--json").stdout)
    assert list(facts) == ["core", "versions", "devices", "data", "features"]
    assert facts["core"] == {"works": True, "problems": []}
    assert facts["devices"]["cores"] >= 1
    assert facts["features"][-1]["name"] == "gpu"
    assert facts["data"]["parts"]["uci"]["found"] is True


@pytest.mark.parametrize(
    ("present", "works", "todo"),
    [
        ({}, "no", 'pip install "lightgbm>=4.3" "xgboost>=2.1"'),
        ({"lightgbm": "4.3.0"}, "partly", 'pip install "xgboost>=2.1"'),
        ({"lightgbm": "4.2.0", "xgboost": "2.1.0"}, "partly", 'pip install "lightgbm>=4.3"'),
        ({"lightgbm": "4.3.0", "xgboost-cpu": "2.1.0"}, "yes", ""),
    ],
)
def test_each_feature_lists_missing_packages(installed, present, works, todo):
    """Missing and outdated packages are listed with their bounds; an equivalent package is enough."""
    installed.update(present)
    boost, _ = _doctor.features([])
    assert (boost.name, boost.works, boost.todo) == ("boost", works, todo)


def test_missing_features_do_not_change_the_exit_code(installed):
    """It depends on the core only."""
    assert "boost" not in installed
    done = run()
    assert done.exit_code == 0
    assert 'pip install "lightgbm>=4.3" "xgboost>=2.1"' in done.stdout


def test_an_outdated_core_is_an_error(installed):
    """The message has the bound, the installed version and the command to run; exit code 1."""
    installed["numpy"] = "1.20.0"
    done = run()
    assert done.exit_code == 1
    assert 'numpy>=1.26.4 is required; 1.20.0 is installed: pip install "numpy>=1.26.4"' in done.stdout
    assert "The core does NOT work" in done.stdout


def test_a_core_package_that_cannot_be_imported_is_an_error(installed, monkeypatch):
    """A broken library file is detected by the import."""
    assert installed["numpy"] == "2.0.0"

    def broken(name):
        raise ImportError(f"lib{name}.so not found")

    monkeypatch.setattr(_doctor, "import_module", broken)
    (problem,) = _doctor.core_problems()
    assert problem == (
        "numpy 2.0.0 cannot be imported (ImportError: libnumpy.so not found): "
        "pip install --force-reinstall numpy==2.0.0"
    )


def test_a_core_package_without_files_is_an_error(installed, monkeypatch):
    """Metadata without the module are detected without an import."""
    assert installed["numpy"] == "2.0.0"
    monkeypatch.setattr(_doctor, "find_spec", lambda _: None)
    (problem,) = _doctor.core_problems(full=False)
    assert problem.startswith("numpy 2.0.0 cannot be imported (ModuleNotFoundError: No module named 'numpy')")


@pytest.mark.parametrize(
    ("answer", "cards"),
    [
        (
            "NVIDIA H200, 143771, 9.0\nTesla, T4, 15360, 7.5\n",
            [("NVIDIA H200", 140.4, True), ("Tesla, T4", 15.0, False)],
        ),
        ("No devices were found\n", []),
        (None, []),
    ],
    ids=["two cards", "no card", "no driver"],
)
def test_the_driver_lists_the_cards(installed, monkeypatch, answer, cards):
    """Without torch, nvidia-smi is asked; a driver that does not answer means no card."""

    def answered(*_, **options):
        assert options["timeout"] <= 10
        if answer is None:
            raise FileNotFoundError
        return SimpleNamespace(stdout=answer)

    monkeypatch.setattr(_doctor.subprocess, "run", answered)
    assert _doctor.devices(full=False)["cuda"] == []  # this build of torch has no CUDA
    installed["torch"] = "2.13.0"
    found = _doctor.devices(full=False)["cuda"]
    assert [(card["name"], card["memory_gib"], card["bf16"]) for card in found] == cards


def test_files_without_an_installation_are_reported(monkeypatch):
    """The source files can be run without an installed package."""

    def absent(_):
        raise _doctor.metadata.PackageNotFoundError

    monkeypatch.setattr(_doctor.metadata, "requires", absent)
    monkeypatch.setattr(_doctor.metadata, "metadata", absent)
    monkeypatch.setattr(_doctor.metadata, "version", absent)
    done = run()
    assert (done.exit_code, "peerloss is not installed" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("cards", "driver", "torch", "works", "todo"),
    [
        (["card"], True, "2.13.0", "yes", ""),
        ([], False, "2.13.0+cpu", "no", "no NVIDIA driver was found"),
        ([], True, "2.13.0+cpu", "no", "built without CUDA: pip install --force-reinstall torch"),
        ([], True, "2.13.0", "no", "compare nvidia-smi's CUDA version"),
    ],
)
def test_a_gpu_that_cannot_be_used_is_explained(installed, monkeypatch, cards, driver, torch, works, todo):
    """No card, a build without CUDA, or a driver of another version."""
    installed["torch"] = torch
    monkeypatch.setattr(_doctor.shutil, "which", lambda _: "/bin/nvidia-smi" if driver else None)
    gpu = _doctor.features(cards)[-1]
    assert gpu.works == works
    assert todo in gpu.todo
    assert bool(todo) == bool(gpu.todo)


def test_data_folders_are_found_part_by_part(tmp_path):
    """Each part is found or has advice; packed images have the command that unpacks them."""
    (tmp_path / "real_noise" / "crowd" / "dog").mkdir(parents=True)
    (tmp_path / "cifar10").mkdir()
    (tmp_path / "cifar10" / "unpack.py").touch()
    done = run("--json", env={"PEERLOSS_DATA": str(tmp_path)})
    parts = json.loads(done.stdout)["data"]["parts"]
    assert {name for name, part in parts.items() if part["found"]} == {"uci", "dog"}
    assert "real_noise/youtube" in parts["youtube"]["note"]
    assert (
        parts["cifar10"]["note"] == f"packed; to unpack, run: python {tmp_path}/cifar10/unpack.py {tmp_path}"
    )
    assert "CIFAR-10_human.pt" in parts["cifar10n"]["note"]


def test_every_extra_has_a_description():
    """pyproject.toml and the command have the same extras."""
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    assert list(project["optional-dependencies"]) == list(_doctor.EXTRAS)
    assert all(Requirement(text).specifier for text in project["dependencies"])


def test_optional_packages_are_not_imported():
    """They are only looked up, because importing Ray or transformers would take seconds."""
    code = """
import sys
from peerloss.cli import app
app(["doctor", "--full"], standalone_mode=False)
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "torch" in loaded
    optional = {"lightgbm", "xgboost", "numba", "ray", "transformers", "lightning", "skorch", "sphinx"}
    assert not loaded & optional
