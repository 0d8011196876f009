"""Names that `peerloss.crowd` had in `peerloss.audit`."""

import pytest

from peerloss import audit, crowd

RENAMED = {name: name for name in crowd.__all__} | {"split_budget": "untruthful_split"}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_old_names_warn_and_work(old, new):
    """Each old name gives the object of the new name, and the warning names it."""
    with pytest.warns(DeprecationWarning, match=rf"`peerloss.audit.{old}` is .*Use `peerloss.crowd.{new}`"):
        found = getattr(audit, old)
    assert found is getattr(crowd, new)
