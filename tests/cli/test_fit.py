"""``peerloss fit``: train on a table with missing values, text and noisy labels."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from peerloss import load_model
from peerloss.cli import app
from peerloss.datasets.tables import Reading
from peerloss.estimators.portfolio import _fit_portfolio

ROWS = 100


def make_table():
    rng = np.random.default_rng(0)
    x, colour = rng.normal(size=ROWS), rng.choice(["red", "blue"], ROWS)
    clean = x + (colour == "red") > 0.5
    noisy = clean ^ (rng.random(ROWS) < np.where(clean, 0.3, 0.1))
    table = pd.DataFrame(
        {
            "id": np.arange(ROWS),
            "x": np.where(rng.random(ROWS) < 0.1, np.nan, x),
            "colour": np.where(rng.random(ROWS) < 0.1, None, colour),
            "since": pd.date_range("2020-01-01", periods=ROWS).strftime("%Y-%m-%d"),
            "label": np.where(noisy, "good", "bad"),
        }
    )
    table.loc[[3, 7], "label"] = None
    return table


def run(*arguments):
    return CliRunner().invoke(app, ["fit", *map(str, arguments)])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """Fit once; return the run, the folder and the table."""
    home = tmp_path_factory.mktemp("fit")
    make_table().to_csv(home / "data.csv", index=False)
    done = run(home / "data.csv", "--target", "label", "-o", home / "model")
    assert done.exit_code == 0, done.output
    return done, home / "model", make_table()


def test_the_output_lists_choices_and_omissions(fitted):
    """Candidates, unused columns, rows without a label, estimated noise, and a summary line."""
    done, _, _ = fitted
    assert "Averaged candidates" in done.stdout
    assert "Column 'id' is not used: it numbers the rows." in done.stdout
    assert "Column 'since' is not used: it contains dates" in done.stdout
    assert "Rows without a label, left out: 2." in done.stdout
    assert "Estimated noise" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("98 rows, 2 columns, 2 classes; estimated accuracy")


def test_the_model_accepts_the_raw_table(fitted):
    """Preprocessing is part of the model, and predictions are labels of the file."""
    _, folder, table = fitted
    predicted = load_model(folder).predict(table)
    assert set(predicted) <= {"good", "bad"}
    assert (predicted == np.where(table["label"].isna(), predicted, table["label"])).mean() > 0.6


def test_json_is_equal_for_equal_seeds(fitted, tmp_path):
    """The JSON has the numbers of the report, which are repeatable."""
    _, folder, table = fitted
    done = run(folder.parent / "data.csv", "--target", "label", "-o", tmp_path / "model", "--json")
    summary = json.loads(done.stdout)
    assert summary["estimated_metric"] == load_model(folder)["classifier"].report_.accuracy
    assert summary["noise_model_fits"] == load_model(folder)["classifier"].report_.fits
    assert summary["classes"] == table["label"].value_counts().to_dict()
    assert summary["rows_without_label"] == 2
    assert summary["columns"] == {"x": "number", "colour": "text"}
    assert 0 <= summary["interval"][0] <= summary["estimated_metric"] <= summary["interval"][1] <= 1
    assert sum(summary["candidates"].values()) == pytest.approx(1.0)


ON_LABEL = ["--target", "label"]


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (lambda t: t, ["--target", "lable"], "no column 'lable'; its columns are 'id', .*you mean 'label'"),
        (lambda t: t, [*ON_LABEL, "--drop", "y"], "has no column 'y'"),
        (lambda t: t, ["--target", "x"], "'x' must hold classes; it holds measurements such as"),
        (lambda t: t, [*ON_LABEL, "--metric", "f1"], "`--metric` must be one of 'accuracy'"),
        (lambda t: t.assign(label="same"), ON_LABEL, "at least two classes; every label is 'same'"),
        (lambda t: t.assign(label=np.nan), ON_LABEL, "at least two classes; no row has a label"),
        (lambda t: t[["label"]], ON_LABEL, "has no column besides the target 'label'; add features"),
        (lambda t: t[["since", "label"]], ON_LABEL, "at least one useful column; 'since' contains dates"),
    ],
)
def test_tables_that_cannot_be_learned_from_are_refused(tmp_path, change, arguments, message):
    """Exit code 2, a message of one line, no output."""
    change(make_table()).to_csv(tmp_path / "data.csv", index=False)
    done = run(tmp_path / "data.csv", *arguments, "-o", tmp_path / "model")
    assert done.exit_code == 2
    assert len(done.stderr.strip().splitlines()) == 1  # an old rich's bar leaves an empty line
    with pytest.raises(ValueError, match=message):
        raise ValueError(done.stderr)
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_labels_keep_their_type():
    """Integers stay integers, even if missing values turned their column into floats."""
    from peerloss.cli._fit import as_task  # noqa: PLC0415 - used here only

    table = pd.DataFrame({"x": [1.0, 2.0, 3.0, 4.0], "label": [1.0, np.nan, 2.0, 1.0]})
    task = as_task(Reading(table), target="label", drop=[], where="t.csv")
    assert (task.y.dtype, task.y.tolist(), task.described.unlabelled) == (np.int64, [1, 2, 1], 1)
    floats = as_task(Reading(table.fillna({"label": 1.0})), target="label", drop=[], where="t.csv")
    assert floats.y.dtype == np.float64, "without missing values the file itself has 1.0"
    words = Reading(table.assign(label=["b", "a", None, "b"]))
    text = as_task(words, target="label", drop=[], where="t.csv")
    assert (text.y.dtype.kind, text.y.tolist()) == ("U", ["b", "a", "b"])


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["1e300", "0", ""], r"1.0000000000000001e\+300"),
        (["1e300", "0", "1"], r"1.0000000000000001e\+300"),
        (["inf", "0", ""], "inf"),
        (["9007199254740993", "9007199254740992", ""], "9007199254740992"),
    ],
    ids=["large with missing labels", "large", "infinite", "inexact"],
)
def test_labels_that_are_not_exact_are_refused(tmp_path, labels, found):
    """As integers they would overflow, or become equal to a neighbouring number."""
    lines = [f"{i},{label}" for i, label in enumerate(labels * 10)]
    (tmp_path / "data.csv").write_text("\n".join(["x,label", *lines]) + "\n")
    done = run(tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "model")
    assert done.exit_code == 2
    with pytest.raises(ValueError, match=rf"column 'label' must hold class labels; found {found}\. "):
        raise ValueError(done.stderr)
    assert not (tmp_path / "model").exists()


def test_large_integer_labels_stay_distinct():
    """Without missing labels integers are exact."""
    from peerloss.cli._fit import as_task  # noqa: PLC0415 - used here only

    table = pd.DataFrame({"x": [1.0, 2.0], "label": [2**53, 2**53 + 1]})
    assert as_task(Reading(table), target="label", drop=[], where="t.csv").y.tolist() == [2**53, 2**53 + 1]


def test_unreadable_files_are_refused(tmp_path):
    """A record with too many fields is reported with its line; a missing file by name."""
    (tmp_path / "data.csv").write_text("a,label\n1,yes\n2,no,maybe\n")
    done = run(tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "model")
    assert (done.exit_code, "line 3" in done.stderr) == (2, True)
    done = run(tmp_path / "absent.csv", "--target", "label", "-o", tmp_path / "model")
    assert (done.exit_code, "does not exist" in done.stderr) == (2, True)


def test_a_folder_without_a_model_is_not_overwritten(fitted, tmp_path):
    """The command refuses it before the training."""
    _, folder, _ = fitted
    (tmp_path / "mine.txt").write_text("mine")
    done = run(folder.parent / "data.csv", "--target", "label", "-o", tmp_path)
    assert (done.exit_code, "is not a model folder; it was not changed" in done.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_minus_one_is_a_missing_label(tmp_path, monkeypatch):
    """The summary counts such rows as rows without a label, and -1 is not a class."""
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"linear": LogisticRegression()})
    table = make_table().assign(label=[-1, 0, 1, 2, 0] * (ROWS // 5))
    table.to_csv(tmp_path / "data.csv", index=False)
    # The labels do not depend on the columns.
    done = run(tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "model", "--json", "--force")
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout)
    assert summary["classes"] == {"0": 40, "1": 20, "2": 20}
    assert (summary["rows"], summary["rows_without_label"]) == (80, 20)


def test_rows_with_gaps_are_predicted_though_training_had_none(tmp_path, monkeypatch):
    """The saved model fills them; rows without gaps are predicted as before."""
    monkeypatch.setattr(_fit_portfolio, "candidate_models", lambda *_, **__: {"linear": LogisticRegression()})
    rng = np.random.default_rng(0)
    x = rng.normal(size=ROWS)
    table = pd.DataFrame({"x": x, "z": rng.normal(size=ROWS), "label": np.where(x > 0, "good", "bad")})
    table.to_csv(tmp_path / "data.csv", index=False)
    done = run(tmp_path / "data.csv", "--target", "label", "-o", tmp_path / "model")
    assert done.exit_code == 0, done.output
    found = []
    for name, gap in (("full", x[4]), ("gap", None)):
        table.assign(x=table["x"].where(table.index != 4, gap)).to_csv(tmp_path / "new.csv", index=False)
        output = tmp_path / f"{name}.csv"
        predict = ["predict", str(tmp_path / "model"), str(tmp_path / "new.csv"), "-o", str(output)]
        done = CliRunner().invoke(app, predict)
        assert done.exit_code == 0, done.output
        found.append(pd.read_csv(output))
    pd.testing.assert_frame_equal(found[0].drop(index=4), found[1].drop(index=4), rtol=1e-12)
    assert np.isfinite(found[1].loc[4, "probability_good"])
