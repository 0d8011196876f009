"""Packages whose names are imported when they are used."""

import ast
import pickle
import sys
from importlib import import_module
from pathlib import Path

import pytest

import peerloss
from peerloss._lazy_names import lazy_names

ROOT = Path(peerloss.__file__).parent
INITS = sorted(
    path for path in ROOT.rglob("__init__.py") if "lazy_names(" in path.read_text(encoding="utf-8")
)


def imported_for_type_checkers(path):
    """Yield (module, name) for the imports of the `if TYPE_CHECKING` block."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            for line in node.body:
                yield from ((line.module, alias.name) for alias in line.names)


def test_the_packages_of_the_quick_commands_are_lazy():
    """Those that import torch or scikit-learn in some of their modules."""
    found = {str(path.parent.relative_to(ROOT)) for path in INITS}
    assert found >= {".", "audit", "crowd", "datasets", "experiments", "peer_prediction", "persistence"}


@pytest.mark.parametrize("path", INITS, ids=lambda path: path.parent.name)
def test_all_three_lists_of_a_package_agree(path):
    """`__all__`, the table of names and the imports for type checkers; every name can be imported."""
    name = ".".join(("peerloss", *path.parent.relative_to(ROOT).parts))
    package = import_module(name)
    table = {(f"{name}.{home}", one) for home, text in package._NAMES.items() for one in text.split()}
    modules = {(name, module) for module in getattr(package, "_MODULES", ())}
    assert set(imported_for_type_checkers(path)) == table | modules
    public = [*(one for _, one in table), *(module for _, module in modules)]
    assert sorted(public) == sorted(set(package.__all__) - {"__version__"})
    assert set(package.__all__) <= set(dir(package))
    for home, one in table:
        assert getattr(package, one) is getattr(import_module(home), one)


def test_a_name_is_looked_up_once(monkeypatch):
    """The first access stores it in the package, so the second does not call `__getattr__`."""
    monkeypatch.delitem(vars(peerloss), "PeerLoss", raising=False)
    assert peerloss.PeerLoss is vars(peerloss)["PeerLoss"]


def test_an_unknown_name_raises_the_usual_error():
    """The message names the package and the attribute."""
    get, _ = lazy_names("peerloss", {"exceptions": "PeerLossError"}, modules=("exceptions",))
    assert get("exceptions") is sys.modules["peerloss.exceptions"]
    with pytest.raises(AttributeError, match="module 'peerloss' has no attribute 'nonsense'"):
        get("nonsense")


def test_lazy_classes_can_be_pickled():
    """They are stored under the module that defines them."""
    assert pickle.loads(pickle.dumps(peerloss.PeerClassifier)) is peerloss.PeerClassifier  # noqa: S301
