"""Collect the facts for ``peerloss doctor``: installed packages, devices and data.

Optional packages are looked up, not imported. Core packages are imported, to test whether they work.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from functools import partial
from importlib import import_module, metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from peerloss.exceptions import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: Purpose of each extra in pyproject.toml.
EXTRAS = {
    "report": "pages and pictures (peerloss demo, report, audit)",
    "boost": "PeerBoostingClassifier on LightGBM or XGBoost",
    "fast": "compiled training of small networks",
    "tables": "Parquet and ARFF files",
    "ray": "peerloss reproduce on a Ray cluster",
    "hf": "Hugging Face Trainer",
    "lightning": "Lightning modules",
    "skorch": "skorch classifiers",
    "docs": "building the documentation",
}
#: Modules whose name is not that of their package.
MODULES = {"scikit-learn": "sklearn"}
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


def core_problems() -> list[str]:
    """Return the problems of the core packages, each with the command that solves it."""
    try:
        needed = _requirements(None)
    except metadata.PackageNotFoundError:
        return [
            "peerloss is not installed; only its source files were found. Run pip install -e . in its folder."
        ]
    problems = []
    for requirement in needed:
        version = _installed(requirement)
        if version is None or version not in requirement.specifier:
            problems.append(
                f"{requirement} is required; {version or 'none'} is installed: {_pip_install([requirement])}"
            )
            continue
        try:
            import_module(MODULES.get(requirement.name, requirement.name))
        except Exception as error:  # noqa: BLE001 - a broken package may raise anything
            problems.append(
                f"{requirement.name} {version} cannot be imported ({type(error).__name__}: {error}): "
                f"pip install --force-reinstall {requirement.name}=={version}"
            )
    return problems


def versions() -> dict[str, str | None]:
    """Return versions of Python, peerloss and its requirements; ``None`` if a package is not installed."""
    found: dict[str, str | None] = {"python": platform.python_version(), "peerloss": _version("peerloss")}
    if found["peerloss"] is None:
        return found
    for extra in (None, *_extras()):
        for requirement in _requirements(extra):
            found[requirement.name] = _installed(requirement)
    return found


def devices() -> dict[str, Any]:
    """Return cores and memory, and accelerators if torch can be imported."""
    found: dict[str, Any] = {
        "system": f"{platform.system()} {platform.machine()}",
        "cores": _cores(),
        "memory_gib": _memory_gib(),
        "cuda": [],
        "mps": False,
    }
    try:
        import torch
    except Exception:  # noqa: BLE001 - listed among the problems of the core
        return found
    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        bf16 = card.major >= 8  # older cards emulate it slowly
        found["cuda"].append(
            {"name": card.name, "memory_gib": round(card.total_memory / GIB, 1), "bf16": bf16}
        )
    found["mps"] = torch.backends.mps.is_available()
    return found


def data_parts(folder: str | None) -> dict[str, dict[str, Any]]:
    """Return which data sets were found and where, and for the others what to do.

    Parameters
    ----------
    folder
        Value of ``PEERLOSS_DATA``, if it is set.
    """
    from peerloss.datasets import list_datasets, list_real_noise
    from peerloss.datasets.cifar10 import find_cifar10, find_cifar10n
    from peerloss.datasets.real_noise import find_real_noise

    embedded = f"{len(list_datasets())} data sets, in the package"
    parts: dict[str, dict[str, Any]] = {"uci": {"found": True, "note": embedded}}
    lookups: dict[str, Callable[[str | None], Path]] = {
        name: partial(find_real_noise, name) for name in list_real_noise()
    }
    lookups |= {"cifar10": find_cifar10, "cifar10n": find_cifar10n}
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
    """Return whether each extra and the GPU work, and what to do if not.

    Parameters
    ----------
    cuda
        The NVIDIA GPUs that torch can use.
    """
    return [*(_feature(extra) for extra in _extras()), _gpu(list(cuda))]


def _feature(extra: str) -> Feature:
    needed = _requirements(extra)
    found = {r.name: version for r in needed if (version := _installed(r)) is not None}
    lacking = [r for r in needed if r.name not in found or found[r.name] not in r.specifier]
    works = "yes" if not lacking else "no" if len(lacking) == len(needed) else "partly"
    todo = _pip_install(lacking) if lacking else ""
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


def _requirements(extra: str | None) -> list[Requirement]:
    """Return the requirements of the core (``None``), or those that an extra adds."""
    needed = [Requirement(text) for text in metadata.requires("peerloss") or []]
    if extra is None:
        return [r for r in needed if r.marker is None or r.marker.evaluate({"extra": ""})]
    return [
        r for r in needed if r.marker and "extra" in str(r.marker) and r.marker.evaluate({"extra": extra})
    ]


def _installed(requirement: Requirement) -> str | None:
    for name in (requirement.name, *STAND_INS.get(requirement.name, ())):
        version = _version(name)
        if version is not None:
            return version
    return None


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _pip_install(requirements: list[Requirement]) -> str:
    return "pip install " + " ".join(f'"{r.name}{r.specifier}"' for r in requirements)


def _cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _memory_gib() -> float | None:
    """Return the memory of the machine; ``None`` if the system does not report it (Windows)."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB, 1)
    except (AttributeError, OSError, ValueError):
        return None
