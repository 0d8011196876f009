"""``peerloss predict``: predict the rows of a table of any size."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from typer.testing import CliRunner

from peerloss import MarginPerceptron, load_model, save_model
from peerloss.cli import _predict, app
from peerloss.estimators import TableEncoder

ROWS = 95


def make_table():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "code": [f"{i:03d}" for i in range(ROWS)],
            "x": np.where(rng.random(ROWS) < 0.1, np.nan, rng.normal(size=ROWS)),
            "kind": rng.choice(["01", "1", "two"], ROWS),
        }
    )


@pytest.fixture(scope="module", params=["text", "int"])
def model(request, tmp_path_factory):
    """Save a small model whose labels are text or integers."""
    table = make_table()
    labels = (table["x"].fillna(0) > 0).to_numpy().astype(int)
    labels = np.where(labels == 1, "good", "bad") if request.param == "text" else labels
    pipeline = make_pipeline(TableEncoder(), MarginPerceptron(margin_grid=[1.0], random_state=0))
    folder = tmp_path_factory.mktemp("model") / "model"
    return save_model(pipeline.fit(table[["x", "kind"]], labels), folder)


def run(*arguments):
    return CliRunner().invoke(app, ["predict", *map(str, arguments)])


@pytest.mark.parametrize("jobs", [1, 3])
def test_chunks_give_the_predictions_of_the_entire_table(model, tmp_path, monkeypatch, jobs):
    """Predictions, their order and the type of labels do not depend on chunks and threads."""
    monkeypatch.setattr(_predict, "CHUNK_ROWS", 10)
    make_table().assign(more="ignored").to_csv(tmp_path / "new.csv", index=False)
    done = run(model, tmp_path / "new.csv", "-o", tmp_path / "out" / "p.csv", "--jobs", jobs)
    assert done.exit_code == 0, done.output
    written = pd.read_csv(tmp_path / "out" / "p.csv")
    loaded = load_model(model)
    proba = loaded.predict_proba(make_table())
    assert written["row"].tolist() == list(range(ROWS))
    assert written["prediction"].tolist() == loaded.predict(make_table()).tolist()
    assert list(written)[2:] == [f"probability_{label}" for label in loaded.classes_]
    np.testing.assert_allclose(written.iloc[:, 2:], proba, rtol=1e-9, atol=1e-12)  # sums over chunks round
    assert done.stdout.splitlines()[-1].startswith(f"{ROWS} rows predicted (")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["p.csv"], "no leftovers"


def test_one_row_is_counted_in_the_singular(model, tmp_path):
    """The summary of one prediction."""
    make_table().head(1).to_csv(tmp_path / "new.csv", index=False)
    done = run(model, tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    assert done.stdout.splitlines()[-1].startswith("1 row predicted ("), done.output


def test_identifiers_keep_their_text(model, tmp_path):
    """Leading zeros are kept."""
    make_table().to_csv(tmp_path / "new.csv", index=False)
    done = run(
        model, tmp_path / "new.csv", "-o", tmp_path / "p.csv", "--id", "code", "--id", "kind", "--json"
    )
    summary = json.loads(done.stdout)
    written = pd.read_csv(tmp_path / "p.csv", dtype=str)
    assert list(written)[:3] == ["code", "kind", "prediction"]
    assert written["code"].tolist() == make_table()["code"].tolist()
    assert written["kind"].tolist() == make_table()["kind"].tolist()
    assert summary["rows"] == ROWS
    assert summary["predicted"] == written["prediction"].value_counts().to_dict()


def test_memory_holds_one_chunk_per_thread(model):
    """No more chunks are read before the first is written."""
    read = []
    pieces = (make_table().iloc[i : i + 5] for i in range(0, ROWS, 5))
    chunks = (read.append(i) or piece for i, piece in enumerate(pieces))
    for number, _ in enumerate(_predict._predicted(load_model(model), chunks, [], threads=3)):
        assert len(read) <= number + 3


def test_parquet_is_read_too(model, tmp_path):
    """Predictions equal those from CSV; probabilities may differ by rounding (another memory layout)."""
    pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    make_table().to_csv(tmp_path / "new.csv", index=False)
    make_table().to_parquet(tmp_path / "new.parquet")
    for suffix in ("csv", "parquet"):
        done = run(model, tmp_path / f"new.{suffix}", "-o", tmp_path / f"{suffix}.csv")
        assert done.exit_code == 0, done.output
    tables = [pd.read_csv(tmp_path / f"{suffix}.csv") for suffix in ("parquet", "csv")]
    pd.testing.assert_frame_equal(*tables, rtol=1e-12)


def test_a_model_fitted_on_named_columns_in_python_works(tmp_path):
    """The table encoder is not needed if the columns have names."""
    table = make_table()[["x"]].fillna(0.0).assign(z=1.0)
    perceptron = MarginPerceptron(margin_grid=[1.0], random_state=0).fit(table, table["x"] > 0)
    table.to_csv(tmp_path / "new.csv", index=False)
    done = run(save_model(perceptron, tmp_path / "m"), tmp_path / "new.csv", "-o", tmp_path / "p.csv")
    assert done.exit_code == 0, done.output
    assert pd.read_csv(tmp_path / "p.csv")["prediction"].tolist() == perceptron.predict(table).tolist()
    nameless = MarginPerceptron(margin_grid=[1.0]).fit(table.to_numpy(), table["x"] > 0)
    done = run(save_model(nameless, tmp_path / "n"), tmp_path / "new.csv", "-o", tmp_path / "p2.csv")
    assert (done.exit_code, "fitted without column names" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda t: t.drop(columns="x"), [], "has no column 'x'; its columns are 'code', 'kind'"),
        (lambda t: t, ["--id", "cod"], "has no column 'cod'.*Did you mean 'code'"),
        (lambda t: t.assign(prediction=1), ["--id", "prediction"], "--id must not be 'prediction'"),
        (lambda t: t.assign(x=["1"] * 94 + ["abc"]), [], "line 96: column 'x' must hold numbers.*got 'abc'"),
    ],
)
def test_tables_that_do_not_match_the_model_are_refused(
    model, tmp_path, monkeypatch, change, arguments, message
):
    """Exit code 2, one line; an existing output is kept, even if the error is in the last row."""
    monkeypatch.setattr(_predict, "CHUNK_ROWS", 10)
    change(make_table()).to_csv(tmp_path / "new.csv", index=False)
    (tmp_path / "p.csv").write_text("older")
    done = run(model, tmp_path / "new.csv", "-o", tmp_path / "p.csv", *arguments)
    assert done.exit_code == 2
    with pytest.raises(ValueError, match=message):
        raise ValueError(done.stderr.splitlines()[-1])
    assert (tmp_path / "p.csv").read_text() == "older"
    assert {path.name for path in tmp_path.iterdir()} == {"new.csv", "p.csv"}


def test_identifiers_with_special_characters_are_kept(model, tmp_path):
    """Line ends, quotation marks, leading spaces and formulas survive; each input row has one output row."""
    codes = ["a\rb", "c\nd", 'e"f', " g", "=1+1", "h,i", "\r", "-2"]
    table = make_table().head(len(codes)).assign(code=codes).assign(x=1.5)
    with (tmp_path / "new.csv").open("w", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows([table.columns, *table.to_numpy().tolist()])
    done = run(model, tmp_path / "new.csv", "-o", tmp_path / "p.csv", "--id", "code")
    assert done.exit_code == 0, done.output
    with (tmp_path / "p.csv").open(newline="") as stream:
        assert [row[0] for row in csv.reader(stream, strict=True)] == ["code", *codes]
    assert pd.read_csv(tmp_path / "p.csv")["code"].tolist() == codes
    assert (
        run(
            model, tmp_path / "new.csv", "-o", tmp_path / "p.csv", "--id", "code", "--spreadsheet-safe"
        ).exit_code
        == 0
    )
    assert pd.read_csv(tmp_path / "p.csv")["code"].tolist()[4:] == ["'=1+1", "h,i", "'\r", "-2"]


def test_wrong_paths(model, tmp_path):
    """Missing or foreign model folders, and outputs that are the input, a folder or no table are refused."""
    table = tmp_path / "new.csv"
    make_table().to_csv(table, index=False)
    (tmp_path / "folder.csv").mkdir()
    for arguments, message in [
        ((tmp_path / "nowhere", table, "-o", tmp_path / "p.csv"), "does not exist; expected a model folder"),
        ((tmp_path, table, "-o", tmp_path / "p.csv"), "is not a model folder"),
        ((model, table, "-o", table), "must not be the input table"),
        ((model, table, "-o", tmp_path / "folder.csv"), "is a folder"),
        ((model, table, "-o", tmp_path / "p.docx"), "ends in .csv"),
        ((model, tmp_path / "absent.csv", "-o", tmp_path / "p.csv"), "does not exist"),
    ]:
        done = run(*arguments)
        assert (done.exit_code, message in done.stderr) == (2, True), done.output
    assert not (tmp_path / "p.csv").exists()


def test_the_seed_is_deprecated(model, tmp_path):
    """``--seed`` is accepted, with a warning that it has no effect."""
    make_table().to_csv(tmp_path / "new.csv", index=False)
    plain, seeded = tmp_path / "plain.csv", tmp_path / "seeded.csv"
    assert "--seed" not in run(model, tmp_path / "new.csv", "-o", plain).stderr
    done = run(model, tmp_path / "new.csv", "-o", seeded, "--seed", 3)
    assert done.exit_code == 0
    assert "--seed is deprecated and has no effect" in done.stderr
    assert seeded.read_bytes() == plain.read_bytes()
