"""Holm's correction of p-values."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from peerloss._holm import holm


def test_an_example_by_hand():
    """Each p-value is multiplied by the number of those not smaller; the results are made monotone."""
    np.testing.assert_allclose(holm([0.04, 0.01, 0.03, 0.5]), [0.09, 0.04, 0.09, 0.5])
    assert holm([]).tolist() == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_the_definition(p_values):
    """A corrected p-value is the largest of the products up to its own, and at most 1."""
    p = sorted(p_values)
    expected = [min(1.0, max((len(p) - k) * p[k] for k in range(place + 1))) for place in range(len(p))]
    assert sorted(holm(p_values).tolist()) == expected
