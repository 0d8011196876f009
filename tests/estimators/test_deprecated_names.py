"""Names that have moved from peerloss.estimators to peerloss.persistence."""

import pytest

import peerloss.estimators
import peerloss.persistence


@pytest.mark.parametrize("name", ["load_model", "read_manifest", "save_model"])
def test_old_names_warn_and_work(name):
    """The old name warns with the new one and is the same function."""
    with pytest.warns(DeprecationWarning, match=f"Use `peerloss.persistence.{name}`"):
        old = getattr(peerloss.estimators, name)
    assert old is getattr(peerloss.persistence, name)
