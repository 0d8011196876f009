"""Imports go downward only."""

import ast
from pathlib import Path

import pytest

import peerloss

ROOT = Path(peerloss.__file__).parent
#: From the top down; what shares a line does not import its neighbours.
LAYERS = [
    {"cli"},
    {"report"},
    {"experiments"},
    {"audit"},
    {"crowd", "persistence"},
    {"estimators"},
    {"boosting", "integrations"},
    {"posterior"},
    {"training", "datasets"},
    {"losses", "models"},
    {"functional"},
    {"peer_prediction"},
    {"metrics"},
    {"theory"},
    {"noise"},
    {"_classifier"},
    {"_probabilities", "_holm"},
    {"_pages"},
    {"_validation", "_random", "_files", "_device", "_threads", "_unpacking"},
    {"exceptions", "_version", "_folder_swap", "_deprecation"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem not in {"__init__", "__main__"})


def package_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_packages(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "peerloss":
                yield from (alias.name for alias in node.names)
            elif node.module and node.module.startswith("peerloss."):
                yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (a.name.split(".")[1] for a in node.names if a.name.startswith("peerloss."))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downward(path):
    """A package imports itself and the layers below it, nothing else."""
    own = package_of(path)
    assert own in RANK, f"{own} has no place in the architecture"
    for other in imported_packages(path):
        assert other == own or RANK[other] > RANK[own], f"{path.name}: {own} may not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_readable(path):
    """A file past 400 lines is usually two."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
