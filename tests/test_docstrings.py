"""Every public name says what it does and what each of its parameters means."""

import ast
import inspect
import re
from dataclasses import is_dataclass
from importlib import import_module

import pytest

from tests.packages import PACKAGES

#: Mean the same everywhere; the package's pages explain them once.
CONVENTIONS = {"self", "cls", "X", "y", "sample_weight", "logits", "target", "random_state"}


def is_exception(thing):
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def public_things():
    """Return every public function, class and public method of a class, by the name one would call it."""
    found = {}
    for package in ("peerloss", *(f"peerloss.{name}" for name in PACKAGES)):
        module = import_module(package)
        for name in module.__all__:
            thing = getattr(module, name)
            if not (inspect.isfunction(thing) or inspect.isclass(thing)):
                continue
            if not thing.__module__.startswith("peerloss") or is_exception(thing):
                continue
            found[f"{package}.{name}"] = thing
            for method, value in vars(thing).items() if inspect.isclass(thing) else ():
                function = getattr(value, "__func__", value)
                if not method.startswith("_") and inspect.isfunction(function):
                    found[f"{package}.{name}.{method}"] = function
    return list({id(thing): (name, thing) for name, thing in found.items()}.values())


def field_docstrings(thing):
    """Return the fields of a dataclass that have words below them in the source."""
    (body,) = ast.parse(inspect.cleandoc(inspect.getsource(thing))).body
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        field.target.id
        for field, words in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(words, ast.Expr)
        and isinstance(words.value, ast.Constant)
    }


def undocumented(thing):
    """Return the parameters that the docstring does not name.

    Of a dataclass those with a default, which one may set or leave; records that are handed out have none.
    """
    words = inspect.getdoc(thing) or ""
    known = CONVENTIONS | set(re.findall(r"[A-Za-z_]\w*", words))
    parameters = inspect.signature(thing).parameters.values()
    if is_dataclass(thing):
        known |= field_docstrings(thing)
        parameters = [parameter for parameter in parameters if parameter.default is not parameter.empty]
    return [parameter.name for parameter in parameters if parameter.name not in known]


THINGS = public_things()


@pytest.mark.parametrize("thing", [thing for _, thing in THINGS], ids=[name for name, _ in THINGS])
def test_everything_public_is_explained(thing):
    """A docstring of its own, in which every parameter is named."""
    assert inspect.getdoc(thing)
    assert undocumented(thing) == []


def test_a_silent_parameter_is_found():
    """The test can fail."""

    def quiet(loud, silent):
        """Take ``loud``."""

    assert undocumented(quiet) == ["silent"]
