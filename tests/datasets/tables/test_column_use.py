"""describe_columns."""

from decimal import Decimal

import numpy as np
import pandas as pd
import pytest

from peerloss.estimators import TableEncoder, describe_columns
from peerloss.exceptions import InvalidInputError

ROWS = 60
COLUMNS = {
    "number": [0.5 * i * i for i in range(ROWS)],
    "gaps": [None, *[0.3 * i * i for i in range(ROWS - 1)]],
    "flag": [True, False] * (ROWS // 2),
    "colour": pd.Categorical(["red", "blue"] * (ROWS // 2)),
    "city": [f"city {i % 40}" for i in range(ROWS)],
    "review": [f"this one came {i} times late" for i in range(ROWS)],
    "chinese": [f"我喜欢这本书第{i}章" for i in range(ROWS)],
    "day": pd.date_range("2024-01-01", periods=ROWS),
    "row": np.arange(ROWS),
    "name": [f"customer {i}" for i in range(ROWS)],
    "unit": "cm",
    "nothing": None,
}
EXPECTED = {
    "number": ("number", "as it is"),
    "gaps": ("number", "as it is; 1 value is missing"),
    "flag": ("category", "2 values, one column each for linear models"),
    "colour": ("category", "2 values, one column each for linear models"),
    "city": ("category", "40 values, one column for each of the 30 most frequent for linear models"),
    "review": ("text", "by its words (TF-IDF)"),
    "chinese": ("text", "by its words (TF-IDF)"),
    "day": ("date", "contains dates; to use them, convert them to numbers such as an age or a month"),
    "row": ("identifier", "numbers the rows"),
    "name": ("identifier", "differs in nearly every row, like a name or an identifier"),
    "unit": ("constant", "has the same value in every row"),
    "nothing": ("empty", "is empty"),
}
UNUSED = {"date", "identifier", "constant", "empty"}


@pytest.fixture(scope="module")
def table():
    return pd.DataFrame(COLUMNS)


def test_each_column_has_a_kind_and_a_reason(table):
    """One row per column, in the order of the table, with how it is used or why not."""
    found = describe_columns(table)
    assert list(found) == ["column", "kind", "used", "why"]
    assert found["column"].tolist() == list(COLUMNS)
    for name, kind, used, why in found.itertuples(index=False):
        assert (kind, why) == EXPECTED[name]
        assert used == (kind not in UNUSED)


def test_the_encoder_uses_the_columns_that_the_description_says(table):
    """The table and the encoder agree, so the summary before a training is what the training does."""
    found = describe_columns(table).set_index("column")
    encoder = TableEncoder().fit(table)
    assert set(encoder.kinds_) == set(found.index[found["used"]])
    assert encoder.dropped_ == found.loc[~found["used"], "why"].to_dict()
    assert encoder.free_text_ == found.index[found["kind"] == "text"].tolist()


def test_columns_need_a_table():
    """Other types and repeated names are refused by name."""
    with pytest.raises(InvalidInputError, match="must be a pandas DataFrame; got list"):
        describe_columns([[1.0]])
    with pytest.raises(InvalidInputError, match=r"unique column names; \['a'\] are repeated"):
        describe_columns(pd.DataFrame([[1, 2]], columns=["a", "a"]))


def test_decimal_numbers_are_numbers():
    """Databases return them as objects; missing values stay missing."""
    table = pd.DataFrame({"price": [Decimal("1.50"), None, Decimal("2.25"), Decimal("3.00")]})
    assert describe_columns(table)["kind"].tolist() == ["number"]
    assert TableEncoder().fit_transform(table).shape == (4, 2)
