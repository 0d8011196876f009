"""Labels in a column of a table."""

import pandas as pd
import pytest

from peerloss import load_dataset
from peerloss.datasets import split_target
from peerloss.exceptions import InvalidInputError


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "data.csv"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("labels", "names", "codes"),
    [
        (["spam", "ham", "spam"], ("ham", "spam"), [1, 0, 1]),
        (["10", "2", "2"], ("2", "10"), [1, 0, 0]),
        (["1.0", "0.0", "2.0"], ("0", "1", "2"), [1, 0, 2]),
        (["true", "false", "true"], ("false", "true"), [1, 0, 1]),
    ],
)
def test_labels_are_coded_in_sorted_order(write, labels, names, codes):
    """Text in alphabetical order, numbers by value; features keep missing values and text."""
    rows = zip(["1", "", "3"], ["u", "v", ""], labels, strict=True)
    data = load_dataset(write("x,kind,label\n" + "\n".join(map(",".join, rows))), target="label")
    assert data.target_names == names
    assert data.y.tolist() == codes
    assert data.feature_names == ("x", "kind")
    assert data.X.isna().sum().tolist() == [1, 1]
    assert "data.csv" in data.citation


@pytest.mark.parametrize(
    ("text", "target", "message"),
    [
        ("a,b\n1,2\n", None, r"`target` must name the column.*are 'a', 'b'"),
        (
            "a,label\n1,2\n",
            "lable",
            r"no column 'lable'; its columns are 'a', 'label'\. Did you mean 'label'",
        ),
        ("a,b\n1,x\n2,x\n", "b", r"'b' must hold at least two classes; every row has the label 'x'"),
        ("a,b\n1,x\n2,\n3,?\n", "b", r"2 of 3 labels in column 'b' are missing, the first in row 2"),
        ("a,b\n1,0.5\n2,1\n", "b", r"must hold classes; it holds measurements such as 0\.5"),
        ("a,b\n1,1e17\n2,1\n", "b", r"column 'b' must hold class labels; found 1e\+17"),
        ("b\n1\n2\n", "b", r"no column besides the target"),
    ],
)
def test_unusable_label_columns_are_refused(write, text, target, message):
    """The message names the file and the column."""
    path = write(text)
    with pytest.raises(InvalidInputError, match=message) as caught:
        load_dataset(path, target=target)
    assert str(path) in str(caught.value)


def test_splitting_does_not_change_the_table():
    """Features and labels are returned; the caller's table keeps its columns."""
    table = pd.DataFrame({"x": [1, 2], "y": ["a", "b"]})
    X, labels = split_target(table, "y")
    assert list(X) == ["x"]
    assert labels.tolist() == ["a", "b"]
    assert list(table) == ["x", "y"]
