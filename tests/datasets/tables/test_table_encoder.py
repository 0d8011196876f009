"""TableEncoder."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from peerloss import MarginPerceptron, load_model, save_model
from peerloss.datasets.tables.column_use import MAX_CATEGORIES
from peerloss.estimators import TableEncoder
from peerloss.exceptions import InvalidInputError

ROWS = 60


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "number": np.where(rng.random(ROWS) < 0.2, np.nan, rng.normal(size=ROWS)),
            "colour": np.where(rng.random(ROWS) < 0.2, None, rng.choice(["red", "blue"], ROWS)),
            "flag": rng.random(ROWS) < 0.5,
            "count": rng.integers(0, 5, ROWS),
        }
    )


def test_numbers_and_text_become_finite_standardised_features(table):
    """Missing text is a category, missing numbers are filled and marked, and booleans are text."""
    features = TableEncoder().fit_transform(table)
    assert features.shape == (ROWS, 1 + 3 + 2 + 1 + 1)
    np.testing.assert_allclose(features.mean(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(features.std(axis=0), 1.0)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([None] * ROWS, "is empty"),
        ([3] * ROWS, "has the same value in every row"),
        (["same"] * ROWS, "has the same value in every row"),
        (np.arange(ROWS) + 100, "numbers the rows"),
        (np.random.default_rng(0).permutation(ROWS)[::-1].astype(float), "numbers the rows"),
        ([f"customer {i}" for i in range(ROWS)], "differs in nearly every row"),
        (pd.date_range("2024-01-01", periods=ROWS), "contains dates"),
        ([f"{1 + i % 28:02d}.03.2024" for i in range(ROWS)], "contains dates"),
        ([f"2024-03-{1 + i % 28:02d} 10:00:00" for i in range(ROWS)], "contains dates"),
    ],
)
def test_useless_columns_are_left_out(table, values, reason):
    """Each has its reason; the encoding of the others does not change."""
    encoder = TableEncoder().fit(table.assign(extra=values))
    assert reason in encoder.dropped_["extra"]
    assert "extra" not in encoder.kinds_
    np.testing.assert_array_equal(encoder.transform(table), TableEncoder().fit_transform(table))


@pytest.mark.parametrize(
    "values",
    [
        np.arange(ROWS) ** 2,
        np.arange(ROWS) + 0.5,
        ["only", None] * (ROWS // 2),
        [f"1.{i % 9}" + "x" for i in range(ROWS)],
    ],
    ids=["spread numbers", "fractions", "one value with gaps", "text with dots"],
)
def test_useful_columns_are_kept(table, values):
    """Columns that only resemble row numbers, constants or dates are used."""
    assert "extra" in TableEncoder().fit(table.assign(extra=values)).kinds_


def test_rare_values_share_a_column(table):
    """A text column has a limited number of columns and one for all other values, also unseen ones."""
    many = [f"city {i % 40}" for i in range(ROWS)]
    encoder = TableEncoder().fit(table[["number"]].assign(city=many))
    assert encoder.transform(table.assign(city=many)).shape[1] == 2 + MAX_CATEGORIES + 1
    rare = encoder.transform(table.assign(city="city 39"))
    np.testing.assert_array_equal(encoder.transform(table.assign(city="never seen")), rare)


SENTENCES = [f"{a} was {b} and arrived {c} times" for a in "abcde" for b in ("good", "bad") for c in range(6)]


def test_free_text_becomes_components_of_its_words(table):
    """Sentences are not a category and not an identifier; unknown and missing ones are accepted."""
    encoder = TableEncoder().fit(table.assign(review=SENTENCES))
    assert encoder.free_text_ == ["review"]
    features = encoder.transform(table.assign(review=SENTENCES))
    assert TableEncoder().fit_transform(table).shape[1] < features.shape[1]
    same = encoder.transform(table.assign(review=[s.upper() for s in SENTENCES]))
    np.testing.assert_allclose(same, features)
    assert np.isfinite(encoder.transform(table.assign(review=[None, "entirely new"] * (ROWS // 2)))).all()


def test_text_without_repeated_words_is_accepted(table):
    """No word occurs twice, so parts of words are used."""
    unique = [f"one{i} two{i} three{i}" for i in range(ROWS)]
    assert np.isfinite(TableEncoder().fit_transform(table.assign(words=unique))).all()


def test_trees_get_codes_and_missing_values(table):
    """A category is one column of codes, unseen values share a code, and missing values stay missing."""
    many = [f"city {i % 40}" for i in range(ROWS)]
    encoder = TableEncoder().fit(table.assign(city=many))
    _, trees, _ = encoder.views(table.assign(city=many))
    assert trees.shape == (ROWS, 5)
    assert encoder.categorical() == (1, 2, 4)
    np.testing.assert_array_equal(np.isnan(trees[:, 0]), table["number"].isna())
    np.testing.assert_array_equal(np.isnan(trees[:, 1]), table["colour"].isna())
    assert len(np.unique(trees[:, 4])) == 40
    _, unseen, _ = encoder.views(table.assign(city=["new", "newer"] * (ROWS // 2)))
    assert set(unseen[:, 4]) == {40.0}


def test_the_columns_in_use_as_a_table(table):
    """The table has no useless columns, and its values are as given."""
    found = TableEncoder(output="table").fit_transform(table.assign(k=1))
    assert list(found) == list(table)
    np.testing.assert_array_equal(found["number"], table["number"])
    assert set(found["colour"].dropna()) == {"red", "blue"}
    with pytest.raises(InvalidInputError, match="must be one of 'features', 'sparse', 'table'; got 'x'"):
        TableEncoder(output="x").fit(table)


def test_gaps_that_training_had_not_are_filled(table):
    """They become the median of the column; gaps in other columns stay, and other values do not change."""
    encoder = TableEncoder(output="table").fit(table)
    with_gap = table.astype({"count": float})
    with_gap.loc[2, ["number", "count"]] = np.nan
    found, expected = encoder.transform(with_gap), encoder.transform(table)
    assert np.isnan(found.loc[2, "number"])
    assert found.loc[2, "count"] == table["count"].median()
    pd.testing.assert_frame_equal(found.drop(index=2), expected.drop(index=2))


def test_names_of_components_of_text_are_not_those_of_columns(table):
    """A number may have the name of a component of free text, and so may another text."""
    words = np.random.default_rng(0).choice(["good", "bad", "long", "short", "film", "book"], (ROWS, 6))
    texts = [" ".join(row) + f" {i}" for i, row in enumerate(words)]
    renamed = table[["count"]].assign(**{"review": texts, "review 0": table["count"] * 2, "review_": texts})
    encoder = TableEncoder().fit(renamed)
    assert encoder.free_text_ == ["review", "review_"]
    plain = TableEncoder().fit(renamed.rename(columns={"review 0": "twice"}))
    np.testing.assert_allclose(
        encoder.transform(renamed), plain.transform(renamed.rename(columns={"review 0": "twice"}))
    )


def test_new_tables_are_read_by_name(table):
    """The order of columns and unknown columns do not matter; the error names missing columns."""
    encoder = TableEncoder().fit(table)
    expected = encoder.transform(table)
    np.testing.assert_array_equal(encoder.transform(table.iloc[:, ::-1].assign(more=1)), expected)
    np.testing.assert_array_equal(
        encoder.transform(table.assign(number=table["number"].astype(object))), expected
    )
    with pytest.raises(InvalidInputError, match="has no column 'colour'; its columns are 'number', 'flag'"):
        encoder.transform(table.drop(columns="colour"))
    with pytest.raises(
        InvalidInputError, match="'number' must contain numbers, as in training; got 'abc' in row 0"
    ):
        encoder.transform(table.assign(number="abc"))
    with pytest.raises(InvalidInputError, match=r"column 'number' has infinity in \d+ of \d+ rows"):
        encoder.transform(table.assign(number=np.inf))
    with pytest.raises(InvalidInputError, match="column 'number' has infinity"):
        encoder.transform(table.assign(number="inf"))


def test_bad_tables_are_rejected(table):
    """The error names the problem."""
    with pytest.raises(InvalidInputError, match="must be a pandas DataFrame; got ndarray"):
        TableEncoder().fit(table.to_numpy())
    with pytest.raises(InvalidInputError, match=r"unique column names; \['number'\] are repeated"):
        TableEncoder().fit(pd.concat([table, table[["number"]]], axis=1))
    with pytest.raises(InvalidInputError, match="at least one useful column; 'k' has the same value"):
        TableEncoder().fit(table[[]].assign(k=1))


def test_it_clones_and_is_saved_in_a_pipeline(table, tmp_path):
    """A pipeline of encoder and classifier is saved and loaded."""
    from sklearn.pipeline import make_pipeline  # noqa: PLC0415 - beside its use

    labels = np.where(table["flag"], "on", "off")
    model = make_pipeline(clone(TableEncoder()), MarginPerceptron(margin_grid=[1.0])).fit(table, labels)
    loaded = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(table), model.predict_proba(table))
    assert loaded[0].dropped_ == model[0].dropped_
