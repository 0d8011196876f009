"""Mixed tables, missing values, categories, text and sparse matrices in every classifier."""

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

from peerloss import (
    CostSensitiveSVC,
    MarginPerceptron,
    PeerClassifier,
    PeerPlugInClassifier,
    RobustMLPClassifier,
    load_dataset,
    load_model,
    save_model,
)
from peerloss.boosting import PeerBoostingClassifier
from peerloss.datasets.tables.sparse_encoder import MAX_COMPONENTS, MAX_DENSE_COLUMNS
from peerloss.estimators import TableEncoder
from peerloss.exceptions import InvalidInputError

pytestmark = [
    pytest.mark.usefixtures("small_portfolio"),
    pytest.mark.filterwarnings("ignore::peerloss.exceptions.IdentifiabilityWarning"),
]
ROWS = 200


def boosting(backend):
    pytest.importorskip(backend)
    return PeerBoostingClassifier(backend=backend, n_estimators=15, min_child_samples=5, random_state=0)


MODELS = {
    "PeerClassifier": lambda: PeerClassifier(cv=3, random_state=0),
    "RobustMLPClassifier": lambda: RobustMLPClassifier(max_steps=300, random_state=0),
    "PeerPlugInClassifier": lambda: PeerPlugInClassifier(LogisticRegression()),
    "plug-in, trees": lambda: PeerPlugInClassifier(HistGradientBoostingClassifier(max_iter=20), cv=3),
    "LightGBM": lambda: boosting("lightgbm"),
    "XGBoost": lambda: boosting("xgboost"),
    "CostSensitiveSVC": lambda: CostSensitiveSVC(class_weight_grid=[1.0], cv=3, random_state=0),
    "MarginPerceptron": lambda: MarginPerceptron(margin_grid=[1.0], cv=3, random_state=0),
}


def everything():
    """Return a table with every kind of column, and labels that depend on all useful ones."""
    rng = np.random.default_rng(0)
    yes = rng.random(ROWS) < 0.5
    words = [["bad", "poor", "awful"], ["fine", "great", "lovely"]]
    table = pd.DataFrame(
        {
            "number": np.where(rng.random(ROWS) < 0.2, np.nan, rng.normal(size=ROWS) + 1.5 * yes),
            "whole": pd.array(rng.integers(0, 9, ROWS), dtype="Int64"),
            "flag": np.where(rng.random(ROWS) < 0.8, yes, ~yes),
            "unsure": pd.array(np.where(rng.random(ROWS) < 0.1, None, yes), dtype="boolean"),
            "colour": np.where(rng.random(ROWS) < 0.1, None, np.where(yes, "red", "blue")),
            "size": pd.Categorical(rng.choice(["s", "m", "l"], ROWS), ordered=True),
            "review": [f"parcel {i % 7} was {rng.choice(words[k])} and late" for i, k in enumerate(yes * 1)],
            "day": pd.date_range("2024-01-01", periods=ROWS),
            "id": np.arange(ROWS),
        }
    )
    table.loc[3, ["whole", "review", "size"]] = None
    return table, np.where(yes, "yes", "no")


@pytest.mark.parametrize("name", MODELS)
def test_mixed_tables_work_in_every_classifier(name, tmp_path):
    """Fit, predict with unseen values and gaps, save and load: the same predictions; names are kept."""
    X, y = everything()
    model = MODELS[name]().fit(X, y)
    assert model.score(X, y) > 0.9
    assert list(model.feature_names_in_) == list(X)
    assert isinstance(model.table_, TableEncoder)
    strange = X.assign(colour="green", review=None, number=np.nan, flag=None, size=None)
    assert np.isfinite(model.predict_proba(strange)).all()
    shuffled = X.iloc[:, ::-1]
    np.testing.assert_array_equal(model.predict_proba(shuffled), model.predict_proba(X))
    loaded = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    with pytest.raises(InvalidInputError, match="has no column 'colour'"):
        model.predict(X.drop(columns="colour"))


@pytest.mark.parametrize("name", MODELS)
def test_the_paper_s_heart_table_works_as_it_is(name):
    """The data set with text columns needs no preparation."""
    data = load_dataset("heart")
    assert MODELS[name]().fit(data.X, data.y).score(data.X, data.y) > 0.7


@pytest.mark.parametrize("name", MODELS)
def test_sparse_matrices_with_few_columns_are_as_dense_ones(name):
    """Every format gives the model of the dense array; predictions accept both."""
    X = np.where(np.random.default_rng(0).random((ROWS, 4)) < 0.5, 0.0, 1.0) + np.eye(ROWS, 4)
    y = (X[:, 0] + X[:, 1] > 1).astype(int)
    expected = MODELS[name]().fit(X, y).predict_proba(X)
    for form in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        model = MODELS[name]().fit(form(X), y)
        np.testing.assert_allclose(model.predict_proba(form(X)), expected, atol=2e-3)
        np.testing.assert_allclose(model.predict_proba(X), expected, atol=2e-3)


@pytest.mark.parametrize("name", MODELS)
def test_wide_sparse_matrices_stay_sparse(name, tmp_path, monkeypatch):
    """A matrix with thousands of columns is never made dense, and the model can be saved."""
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=ROWS)
    X = sparse.random_array((ROWS, 3000), density=0.01, rng=rng, format="lil")
    X[:, 0], X[:, 1] = y[:, None] * 2.0, (1 - y[:, None]) * 2.0
    X = X.tocsr()

    def refuse(*_, **__):
        raise AssertionError("the matrix was made dense")

    monkeypatch.setattr(sparse.csr_array, "toarray", refuse)
    monkeypatch.setattr(sparse.csr_array, "todense", refuse)
    model = MODELS[name]().fit(X, y)
    assert model.n_features_in_ == 3000
    assert model.score(X, y) > 0.9
    loaded = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="3000 features"):
        model.predict(X[:, :2000])


def test_a_wide_sparse_matrix_is_reduced_to_components():
    """Networks and trees see at most 100 components; linear models see the columns, scaled."""
    X = sparse.random_array((ROWS, MAX_DENSE_COLUMNS + 1), density=0.1, rng=0, format="csr") * 50.0
    model = PeerClassifier(cv=2, random_state=0).fit(X, np.arange(ROWS) % 2)
    views = model.table_.views(X)
    assert views.features.shape == (ROWS, MAX_COMPONENTS)
    assert views.wide.shape == X.shape
    lengths = views.wide.power(2).sum(axis=1)
    assert np.mean(lengths) == pytest.approx(1.0)


def test_sparse_columns_of_a_table_are_numbers():
    """A DataFrame with pandas' sparse columns is used like its dense copy."""
    rng = np.random.default_rng(0)
    dense = pd.DataFrame({"a": rng.integers(0, 2, ROWS).astype(float), "word": rng.choice(["x", "y"], ROWS)})
    y = dense["a"].to_numpy() > 0
    stored = dense.astype({"a": pd.SparseDtype("float64", 0.0)})
    found = MarginPerceptron(margin_grid=[1.0], random_state=0).fit(stored, y).predict_proba(stored)
    expected = MarginPerceptron(margin_grid=[1.0], random_state=0).fit(dense, y).predict_proba(dense)
    np.testing.assert_array_equal(found, expected)
    alone = stored[["a"]].assign(b=stored["a"])
    assert MarginPerceptron(margin_grid=[1.0], random_state=0).fit(alone, y).score(alone, y) == 1.0


def test_a_pipeline_inside_the_plug_in_gets_the_table_itself():
    """Pipelines and searches over pipelines encode by themselves, and their errors are shown."""
    X, y = everything()
    pipeline = make_pipeline(TableEncoder(output="sparse"), LogisticRegression())
    grid = GridSearchCV(pipeline, {"logisticregression__C": [0.1, 1.0]}, cv=2)
    for estimator in (pipeline, grid):
        model = PeerPlugInClassifier(estimator, cv=2).fit(X, y)
        assert model.table_ is None
        assert model.score(X, y) > 0.9
    with pytest.raises(ValueError, match="could not convert string"):
        PeerPlugInClassifier(make_pipeline(LogisticRegression()), cv=2).fit(X[["flag", "review"]], y)


def test_an_estimator_that_accepts_the_table_gets_it():
    """A classifier with its own way to treat categories is not given the encoded columns."""
    X, y = everything()
    X = X[["number", "size"]]
    trees = HistGradientBoostingClassifier(categorical_features="from_dtype", max_iter=5)
    model = PeerPlugInClassifier(trees, cv=2).fit(X, y)
    assert model.table_ is None
    assert list(model.estimator_.feature_names_in_) == ["number", "size"]


def test_linear_models_learn_from_the_words_themselves():
    """Each of 150 random words marks a class: the sparse candidate knows them, 50 components do not."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghijklmnopqrstuvwxyz"), 6)) for _ in range(150)]
    chosen = rng.integers(len(words), size=900)
    X = pd.DataFrame({"text": [f"today we saw {words[i]} in the old town" for i in chosen]})
    model = PeerClassifier(cv=3, random_state=0).fit(X, chosen % 2)
    brier = model.report_.candidates["brier"]
    assert brier["sparse logistic C=5"] < 0.8 * brier[["weak", "strong"]].min()


def with_gaps():
    """Return an array in which every seventh number of a column is missing, and labels."""
    rng = np.random.default_rng(0)
    y = np.arange(ROWS) % 2
    X = rng.normal(size=(ROWS, 3)) + 2.0 * y[:, None]
    X[::7, 1] = np.nan
    return X, y


@pytest.mark.parametrize("name", MODELS)
def test_arrays_may_have_missing_values(name, tmp_path):
    """The model is that of the table with these columns; predictions take arrays, also after loading."""
    X, y = with_gaps()
    model = MODELS[name]().fit(X, y)
    assert model.score(X, y) > 0.85
    assert model.n_features_in_ == 3
    assert not hasattr(model, "feature_names_in_")
    expected = MODELS[name]().fit(pd.DataFrame(X), y).predict_proba(pd.DataFrame(X))
    np.testing.assert_allclose(model.predict_proba(X), expected)
    np.testing.assert_array_equal(model.predict_proba(X.tolist()), model.predict_proba(X))
    loaded = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="3 features"):
        model.predict(X[:, :2])


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("PeerPlugIn", "plug-in"))])
def test_numbers_may_be_missing_in_predictions_only(name):
    """Rows with gaps are predicted; the medians of the training stand for them, if it is not a booster."""
    X, y = with_gaps()
    complete = np.where(np.isnan(X), 0.0, X)
    model = MODELS[name]().fit(pd.DataFrame(complete, columns=list("abc")), y)
    found = model.predict_proba(pd.DataFrame(X, columns=list("abc")))
    assert np.isfinite(found).all()
    if "GB" not in name:
        filled = np.where(np.isnan(X), np.median(complete, axis=0), X)
        np.testing.assert_array_equal(found, model.predict_proba(pd.DataFrame(filled, columns=list("abc"))))


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("PeerPlugIn", "plug-in"))])
def test_text_outside_a_table_is_refused_with_the_remedy(name):
    """A Series of texts and an array with text name the DataFrame that works."""
    X, y = everything()
    for given in (X["review"].fillna(""), X[["number", "colour"]].to_numpy(dtype=object)):
        with pytest.raises(InvalidInputError, match=r"must contain numbers.*columns of a DataFrame"):
            MODELS[name]().fit(given, y)
