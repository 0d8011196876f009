"""Deprecated names work for one release."""

import inspect
import warnings

import pytest

from peerloss._deprecation import renamed, renamed_parameters


@renamed_parameters(jobs="n_jobs")
def work(x, *, n_jobs=1):
    return x, n_jobs


def test_an_old_keyword_is_passed_on_with_a_warning():
    """The value arrives under the new name, and the warning points at the caller."""
    with pytest.warns(DeprecationWarning, match="`jobs` is deprecated .* Use `n_jobs`") as caught:
        assert work(3, jobs=2) == (3, 2)
    assert caught[0].filename == __file__


def test_new_keywords_do_not_warn():
    """Only deprecated names warn."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert work(3, n_jobs=2) == (3, 2)


def test_both_names_at_once_are_refused():
    """Two values for one parameter are an error."""
    with pytest.raises(TypeError, match="both `n_jobs` and its deprecated name `jobs`"):
        work(3, jobs=1, n_jobs=2)


def test_the_signature_shows_new_names_only():
    """scikit-learn reads parameters from the signature."""
    assert list(inspect.signature(work).parameters) == ["x", "n_jobs"]


def test_an_old_name_of_a_module_resolves_with_a_warning():
    """The object is the one at the new place, and the warning points at the caller."""
    find = renamed("old.module", {"join": "os.path.join"})
    with pytest.warns(
        DeprecationWarning, match="`old.module.join` is deprecated .* Use `os.path.join`"
    ) as caught:
        found = find("join")
    assert found("a", "b")
    assert caught[0].filename == __file__


def test_unknown_names_raise_as_usual():
    """Everything else is an AttributeError, as without the function."""
    with pytest.raises(AttributeError, match=r"module 'old\.module' has no attribute 'split'"):
        renamed("old.module", {"join": "os.path.join"})("split")
