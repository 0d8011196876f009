"""Numbers of rows in files with empty lines."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peerloss.datasets.tables import RowNumbers
from peerloss.exceptions import InvalidInputError


@given(st.sets(st.integers(1, 60), min_size=1).map(sorted))
def test_every_row_keeps_its_number(numbers):
    """Only the rows after a gap are stored, and they can be stored as JSON."""
    found = RowNumbers.of(numbers)
    again = RowNumbers.from_json([list(start) for start in found.starts])
    assert [again[row] for row in range(len(numbers))] == numbers
    gaps = sum(b - a > 1 for a, b in pairwise(numbers))
    assert len(found.starts) == 1 + gaps


@pytest.mark.parametrize(
    "values", [None, "x", [], [[1, 2]], [[0, 2], [0, 3]], [[0, "2"]], [[0, 2, 3]], [[0, True]]]
)
def test_other_values_are_refused(values):
    """A damaged folder is not shown with wrong numbers."""
    with pytest.raises(InvalidInputError, match="row numbers must be pairs of integers, from row 0; got"):
        RowNumbers.from_json(values)
