"""The view of a noise model in a notebook."""

import re

import numpy as np

from peerloss import NoiseModel
from peerloss.noise.noise_table import MAX_CLASSES, noise_table


def cells(view):
    return re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", view)


def test_a_small_matrix_is_shown_with_its_numbers():
    """Rows are true classes, columns are given labels."""
    view = NoiseModel.binary(0.1, 0.25)._repr_html_()
    assert "Label noise of 2 classes" in view
    assert cells(view) == [
        "true class", "labelled class 0", "labelled class 1",
        "class 0", "90.0%", "10.0%", "class 1", "25.0%", "75.0%",
    ]  # fmt: skip


def test_many_classes_have_one_rate_each():
    """A large matrix would not fit on the screen."""
    n = MAX_CLASSES + 1
    view = NoiseModel.uniform(n, 0.2)._repr_html_()
    assert cells(view) == ["true class", "labelled as another class"] + [
        text for i in range(n) for text in (f"class {i}", "20.0%")
    ]


def test_intervals_and_names_are_shown():
    """Names are escaped; the interval of a flip rate is that of the diagonal, reversed."""
    matrix = np.eye(2) * 0.8 + 0.1
    view = noise_table(matrix, ["<a>", "b"], low=matrix - 0.05, high=matrix + 0.05)
    assert "&lt;a&gt;" in view
    assert "90.0% (85.0%–95.0%)" in view
    large = np.eye(9) * 0.91 + 0.01
    view = noise_table(large, low=large - 0.02, high=large + 0.01)
    assert cells(view)[3] == "8.0% (7.0%–10.0%)"
