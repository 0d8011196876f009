"""Audits of several labels per row say whether the noise depends on the row."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from peerloss import NoiseModel, find_label_issues, flip_labels
from peerloss.audit._audit_page import audit_page
from peerloss.cli import app
from peerloss.noise import InstanceNoise


def labelled_twice(kind, n=500):
    """Return features and the labels of two annotators, as a table."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(n, 2))
    clean = (X[:, 0] > 0).astype(int)
    by_row = InstanceNoise.from_margins(clean, 3 * X[:, 0], rate=0.2)
    noise = by_row if kind == "row" else NoiseModel.binary(0.1, 0.3)
    reports = [flip_labels(clean, noise, random_state=seed) for seed in range(2)]
    return pd.DataFrame(X, columns=["u", "v"]), pd.DataFrame({"ann": reports[0], "bob": reports[1]})


@pytest.fixture(scope="module", params=["row", "class"])
def case(request):
    X, labels = labelled_twice(request.param)
    return request.param, find_label_issues(X, labels, estimator=LogisticRegression())


def test_the_audit_has_the_result_of_the_test(case):
    """Refused for noise near the boundary and not for class-conditional noise; also after an update."""
    kind, audit = case
    assert audit.row_noise.refused == (kind == "row")
    assert audit.row_noise.n_rows == 500
    assert audit.update({0: audit.table["given"].iloc[0]}).row_noise == audit.row_noise


def test_it_is_reported_as_text_numbers_and_on_the_page(case):
    """The summary always has it; text and page mention it only if the model is refused."""
    kind, audit = case
    summary = audit.summary()
    assert summary["row_noise_p_value"] == pytest.approx(audit.row_noise.p_value, abs=1e-6)
    assert summary["row_noise"] == str(audit.row_noise)
    for text in (str(audit), audit_page(audit, title="Labels")):
        assert ("The noise depends on the row" in text) == (kind == "row")


def test_one_label_per_row_and_few_rows_are_not_tested():
    """There is no result for one label per row, without probabilities, and for fewer than 100 rows."""
    X, labels = labelled_twice("class")
    one = find_label_issues(X, labels["ann"], estimator=LogisticRegression())
    few = find_label_issues(X.head(90), labels.head(90), estimator=LogisticRegression())
    alone = find_label_issues(labels=labels)
    for audit in (one, few, alone):
        assert audit.row_noise is None
        assert audit.summary()["row_noise_p_value"] is None


def test_the_command_reports_it(tmp_path):
    """``peerloss audit`` with two label columns prints the sentence, and --json has the p-value."""
    X, labels = labelled_twice("row", n=300)
    data = tmp_path / "data.csv"
    pd.concat([X, labels], axis=1).to_csv(data, index=False)
    pd.DataFrame({"0": 0.5 - X["u"] / 2, "1": 0.5 + X["u"] / 2}).to_csv(tmp_path / "p.csv", index=False)
    options = ["audit", data, "--target", "ann", "--target", "bob", "--probabilities", tmp_path / "p.csv"]
    shown = CliRunner().invoke(app, [str(part) for part in [*options, "-o", tmp_path / "a"]])
    assert shown.exit_code == 0, shown.output
    assert "The noise depends on the row" in " ".join(shown.output.split())
    as_json = CliRunner().invoke(app, [str(part) for part in [*options, "-o", tmp_path / "b", "--json"]])
    assert json.loads(as_json.stdout)["row_noise_p_value"] < 0.01
