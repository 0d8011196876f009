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
    """Each p-value, in its place, becomes the largest of the products up to its own, at most 1."""
    p = sorted(p_values)
    expected = {value: min(1.0, max((len(p) - k) * p[k] for k in range(p.index(value) + 1))) for value in p}
    assert holm(p_values).tolist() == [expected[value] for value in p_values]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms())
def test_corrected_values_follow_their_p_values(p_values, random):
    """If the p-values are reordered, the corrected ones are reordered in the same way."""
    order = random.sample(range(len(p_values)), len(p_values))
    assert holm([p_values[i] for i in order]).tolist() == holm(p_values)[order].tolist()
