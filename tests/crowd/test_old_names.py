"""Names that `peerloss.crowd` had in `peerloss.audit`."""

import pytest

from peerloss import audit, crowd

#: Written out, because names derived from the package could not be missing from it.
RENAMED = {
    "DawidSkene": "DawidSkene",
    "affine_payments": "affine_payments",
    "aggregate_labels": "aggregate_labels",
    "dawid_skene": "dawid_skene",
    "find_copiers": "find_copiers",
    "payment_terms": "payment_terms",
    "read_reports": "read_reports",
    "score_annotators": "score_annotators",
    "split_budget": "untruthful_split",
    "untruthful_split": "untruthful_split",
}


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_old_names_warn_and_work(old, new):
    """Each old name gives the object of the new name, and the warning names it."""
    with pytest.warns(DeprecationWarning, match=rf"`peerloss.audit.{old}` is .*Use `peerloss.crowd.{new}`"):
        found = getattr(audit, old)
    assert found is getattr(crowd, new)
