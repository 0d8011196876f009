"""Tables of probabilities: what the module imports, and the codes of labels."""

import subprocess
import sys

import pandas as pd

from peerloss._probabilities import encode


def test_training_can_be_imported_without_pandas():
    """Image benchmarks run where pandas is not installed."""
    code = "import sys; sys.modules['pandas'] = None; import peerloss._probabilities, peerloss.training"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_classes_are_categories_columns_or_distinct_labels():
    """The categories of a Categorical, 0..K-1 for integer codes of a wider table, else the sorted labels."""
    categories = pd.Series(["b", "a", "b"], dtype=pd.CategoricalDtype(["c", "b", "a"]))
    for labels, columns, classes, codes in [
        (categories, None, ["c", "b", "a"], [1, 2, 1]),
        (pd.Series([2, 0]), 4, [0, 1, 2, 3], [2, 0]),
        (pd.Series([2, 0]), None, [0, 2], [1, 0]),
    ]:
        found, encoded = encode(labels, columns)
        assert (found.tolist(), encoded.tolist()) == (classes, codes)
