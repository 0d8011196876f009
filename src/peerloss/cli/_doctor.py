"""``peerloss doctor``: which features work on this machine, and what to install for the others.

Packages are looked up, not imported, which takes a fraction of a second. ``--full`` imports the packages of
the core, to test whether they work, and lets torch list the devices.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module, metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from peerloss._installing import pip_install, requirements
from peerloss.cli._terminal import say_json
from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from packaging.requirements import Requirement

#: Purpose of each extra in pyproject.toml.
EXTRAS = {
    "report": "pages and pictures (peerloss demo, report, audit)",
    "boost": "PeerBoostingClassifier on LightGBM or XGBoost",
    "fast": "compiled training of small networks",
    "tables": "Parquet and ARFF files",
    "ray": "peerloss reproduce on a Ray cluster",
    "images": "peerloss audit of a folder of images",
    "hf": "Hugging Face Trainer, models of images and texts",
    "lightning": "Lightning modules",
    "skorch": "skorch classifiers",
    "privacy": "differentially private training (Opacus)",
    "docs": "building the documentation",
}
#: Modules whose name is not that of their package.
MODULES = {"scikit-learn": "sklearn", "pillow": "PIL"}
#: A package → other packages that provide the same module.
STAND_INS = {"xgboost": ("xgboost-cpu",)}
GIB = 2**30


@dataclass(frozen=True)
class Feature:
    """A feature that needs optional packages or a device."""

    name: str
    what: str
    works: str
    """``"yes"``, ``"partly"`` or ``"no"``."""
    found: dict[str, str]
    """Installed packages and their versions."""
    todo: str = ""
    """What to do if it does not work; empty if it does."""


def doctor(
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Import the core packages and let torch find the GPUs; slower.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON only.")] = False,
) -> None:
    """Show versions, devices and data, which features work, and what to install for the others.

    The exit code is 1 if the core does not work. Missing optional packages do not change it. Packages are
    looked up; --full also imports those of the core, which takes some seconds.

    Example: peerloss doctor
    """
    problems = core_problems(full=full)
    machine = devices(full=full)
    folder = os.environ.get("PEERLOSS_DATA") or None
    facts: dict[str, Any] = {
        "core": {"works": not problems, "problems": problems},
        "versions": versions(),
        "devices": machine,
        "data": {"PEERLOSS_DATA": folder, "parts": {} if problems else data_parts(folder)},
    }
    found = features(machine["cuda"])
    if as_json:
        facts["features"] = [asdict(feature) for feature in found]
        say_json(facts)
    else:
        _print(facts, found, full=full)
    if problems:
        raise typer.Exit(code=1)


def _print(facts: dict[str, Any], found: list[Feature], *, full: bool) -> None:
    present = [f"{name} {version}" for name, version in facts["versions"].items() if version is not None]
    _section("Versions", [", ".join(present)])
    _section("Devices", _device_lines(facts["devices"]))
    _section("Data", _data_lines(facts["data"]))
    works = [f"{f.name:10} {f.works:7} {f.what}" + (f"\n{'':21}{f.todo}" if f.todo else "") for f in found]
    _section("Features", works)
    problems = facts["core"]["problems"]
    _section("Problems with the core", problems)
    missing = [feature.name for feature in found if feature.works != "yes"]
    core = "The core does NOT work" if problems else "The core works" if full else "The core is installed"
    typer.echo(f"{core}. Features not fully available: {', '.join(missing) or 'none'}.")
    if not full:
        typer.echo("Packages were looked up, not imported. peerloss doctor --full imports those of the core.")


def _section(title: str, lines: list[str]) -> None:
    if lines:
        typer.echo(f"{title}\n" + "\n".join(f"  {line}" for line in lines) + "\n")


def _device_lines(machine: dict[str, Any]) -> list[str]:
    memory = "memory unknown" if machine["memory_gib"] is None else f"{machine['memory_gib']} GiB of memory"
    lines = [f"{machine['system']}, {machine['cores']} cores, {memory}"]
    for card in machine["cuda"]:
        bf16 = "bf16" if card["bf16"] else "no bf16"
        lines.append(f"GPU: {card['name']}, {card['memory_gib']} GiB, {bf16}")
    if machine["mps"]:
        lines.append("Apple GPU (MPS): for your own torch loops; the estimators train on the CPU")
    return lines


def _data_lines(data: dict[str, Any]) -> list[str]:
    folder = data["PEERLOSS_DATA"]
    lines = [f"PEERLOSS_DATA: {folder or 'not set; set it to the folder of data that is not in the package'}"]
    for name, part in data["parts"].items():
        if part["found"] or folder:
            lines.append(f"{name:18} {'found' if part['found'] else 'not found'}: {part['note']}")
    return lines


def core_problems(*, full: bool = True) -> list[str]:
    """Return the problems of the core packages, each with the command that solves it.

    With ``full`` every package is imported; otherwise its version and its files are looked up.
    """
    try:
        needed = requirements(None)
    except metadata.PackageNotFoundError:
        return [
            "peerloss is not installed; only its source files were found. Run pip install -e . in its folder."
        ]
    problems = []
    for requirement in needed:
        version = _installed(requirement)
        if version is None or version not in requirement.specifier:
            problems.append(
                f"{requirement} is required; {version or 'none'} is installed: {pip_install([requirement])}"
            )
            continue
        module = MODULES.get(requirement.name, requirement.name)
        try:
            (import_module if full else _look_up)(module)
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            problems.append(
                f"{requirement.name} {version} cannot be imported ({type(error).__name__}: {error}): "
                f"pip install --force-reinstall {requirement.name}=={version}"
            )
    return problems


def _look_up(module: str) -> None:
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"No module named {module!r}")


def versions() -> dict[str, str | None]:
    """Return versions of Python, peerloss and its requirements; ``None`` if a package is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "peerloss": _version("peerloss")}
    if found["peerloss"] is None:
        return found
    for extra in (None, *_extras()):
        for requirement in requirements(extra):
            found[requirement.name] = _installed(requirement)
    return found


def devices(*, full: bool = True) -> dict[str, Any]:
    """Return cores and memory, and accelerators: those of torch, or without ``full`` those of the system."""
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": _cores(),
        "memory_gib": _memory_gib(),
        "cuda": [],
        "mps": False,
        "found_by": "torch" if full else "nvidia-smi",
    }
    if not full:
        found["cuda"] = [] if "+cpu" in (_version("torch") or "") else _nvidia_cards()
        found["mps"] = (platform.system(), platform.machine()) == ("Darwin", "arm64")
        return found
    try:
        import torch
    except Exception:  # noqa: BLE001 - listed among the problems of the core
        return found
    cards = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    found["cuda"] = [  # cards before version 8 emulate bf16 slowly
        {"name": card.name, "memory_gib": round(card.total_memory / GIB, 1), "bf16": card.major >= 8}
        for card in cards
    ]
    found["mps"] = torch.backends.mps.is_available()
    return found


def _nvidia_cards() -> list[dict[str, Any]]:
    """Return the cards that the driver lists; none without a driver, or if it does not answer."""
    command = ["nvidia-smi", "--query-gpu=name,memory.total,compute_cap", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(  # noqa: S603 (fixed words)
            command, capture_output=True, text=True, timeout=10, check=True
        )
        rows = [[cell.strip() for cell in line.rsplit(",", 2)] for line in done.stdout.splitlines() if line]
        return [
            {"name": name, "memory_gib": round(float(mebibytes) / 1024, 1), "bf16": float(capability) >= 8}
            for name, mebibytes, capability in rows
        ]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def data_parts(folder: str | None) -> dict[str, dict[str, Any]]:
    """Return which data sets were found and where, and for the others what to do."""
    from peerloss.datasets import list_datasets, list_real_noise
    from peerloss.datasets.cifar10 import CIFAR10
    from peerloss.datasets.cifar100 import CIFAR100
    from peerloss.datasets.real_noise import find_real_noise

    embedded = f"{len(list_datasets())} data sets, in the package"
    parts: dict[str, dict[str, Any]] = {"uci": {"found": True, "note": embedded}}
    lookups: dict[str, Callable[[str | None], Path]] = {
        name: partial(find_real_noise, name) for name in list_real_noise()
    }
    lookups |= {"cifar10": CIFAR10.find_images, "cifar10n": CIFAR10.find_human_labels}
    lookups |= {"cifar100": CIFAR100.find_images, "cifar100n": CIFAR100.find_human_labels}
    for name, look in lookups.items():
        try:
            parts[name] = {"found": True, "note": str(look(folder))}
        except InvalidInputError as error:
            parts[name] = {"found": False, "note": str(error)}
    packed = Path(folder or ".", "cifar10", "unpack.py")
    if folder and not parts["cifar10"]["found"] and packed.is_file():
        parts["cifar10"]["note"] = f"packed; to unpack, run: python {packed} {folder}"
    return parts


def features(cuda: Iterable[Any]) -> list[Feature]:
    """Return whether each extra and the GPU work, and what to do if not; ``cuda`` lists usable GPUs."""
    return [*(_feature(extra) for extra in _extras()), _gpu(list(cuda))]


def _feature(extra: str) -> Feature:
    needed = requirements(extra)
    found = {r.name: version for r in needed if (version := _installed(r)) is not None}
    lacking = [r for r in needed if r.name not in found or found[r.name] not in r.specifier]
    works = "yes" if not lacking else "no" if len(lacking) == len(needed) else "partly"
    todo = pip_install(lacking) if lacking else ""
    return Feature(extra, EXTRAS.get(extra, ""), works, found, todo)


def _gpu(cuda: list[Any]) -> Feature:
    what = "training on an NVIDIA GPU"
    if cuda:
        return Feature("gpu", what, "yes", {})
    build = _version("torch") or "torch"
    if shutil.which("nvidia-smi") is None:
        todo = "no NVIDIA driver was found (nvidia-smi); without an NVIDIA card there is nothing to install"
    elif "+cpu" in build:
        todo = (
            f"torch {build} is built without CUDA: pip install --force-reinstall torch (on Windows choose "
            "the build at https://pytorch.org/get-started/locally)"
        )
    else:
        todo = f"torch {build} finds no card: compare nvidia-smi's CUDA version with torch.version.cuda"
    return Feature("gpu", what, "no", {}, todo)


def _extras() -> list[str]:
    try:
        return metadata.metadata("peerloss").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []


def _installed(requirement: Requirement) -> str | None:
    names = (requirement.name, *STAND_INS.get(requirement.name, ()))
    return next(filter(None, map(_version, names)), None)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_gib() -> float | None:
    """Return the memory of the machine; ``None`` if the system does not report it (Windows)."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1)
    except (AttributeError, OSError, ValueError):
        return None
