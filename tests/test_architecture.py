"""The packages: imports go downward and use public names, and every file name says where to look."""

import ast
from collections import defaultdict
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
    {"boosting", "integrations", "features"},
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
    {"_pages", "_infinite_features"},
    {"_validation", "_random", "_files", "_device", "_unpacking", "_progress", "_installing"},
    {"exceptions", "_version", "_deprecation", "_lazy_names"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FILES = sorted(p for p in ROOT.rglob("*.py") if p.parent != ROOT or p.stem not in {"__init__", "__main__"})


def package_of(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(path):
    """Yield what a file imports from peerloss, as parts: ("noise", "_model", "NoiseModel")."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            dotted = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            dotted = [alias.name for alias in node.names]
        else:
            continue
        yield from (tuple(name.split(".")[1:]) for name in dotted if name.startswith("peerloss."))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_downward(path):
    """A package imports itself and the layers below it, nothing else."""
    own = package_of(path)
    assert own in RANK, f"{own} has no place in the architecture"
    for other, *_ in imports(path):
        assert other == own or RANK[other] > RANK[own], f"{path.name}: {own} may not import {other}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_packages_use_public_names_of_each_other(path):
    """What a package keeps private is its own; modules at the top level are shared by all packages."""
    own = package_of(path)
    private = [
        ".".join(parts)
        for parts in imports(path)
        if parts[0] not in {own, "_version"} and any(part.startswith("_") for part in parts[1:])
    ]
    assert not private, f"{path.name} imports private names: {private}"


def test_no_file_name_occurs_twice():
    """A name leads to one file. Commands are named after what they run, losses after their functions."""
    places = defaultdict(list)
    for path in FILES:
        if path.stem != "__init__" and package_of(path) not in {"cli", "losses"}:
            places[path.stem.lstrip("_")].append(str(path.relative_to(ROOT)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_tests_mirror_the_packages():
    """Every folder of tests has the name of a package, so that a module's tests are found by its path."""
    tests = Path(__file__).parent
    folders = {path.parent.relative_to(tests) for path in tests.rglob("test_*.py")} - {Path()}
    others = {Path("docs"), Path("examples")}
    assert [str(f) for f in sorted(folders - others) if not (ROOT / f / "__init__.py").is_file()] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_stay_readable(path):
    """A file past 400 lines is usually two."""
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 400
