"""Holm's correction."""

import numpy as np

from peerloss._holm import holm_correction


def test_holm_equals_its_definition():
    """Each p-value is multiplied by the number of p-values not below it, made monotone and clipped at 1."""
    np.testing.assert_allclose(holm_correction([0.04, 0.01, 0.03, 0.5]), [0.09, 0.04, 0.09, 0.5])
    np.testing.assert_allclose(holm_correction([0.9, 0.6]), [1.0, 1.0])
    assert holm_correction([]).shape == (0,)
