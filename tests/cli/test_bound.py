"""The statements of the paper on the command line."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from peerloss.cli import app
from peerloss.cli._bound import BoundQuestion, bound_rows
from peerloss.exceptions import InvalidInputError, NotIdentifiableError
from peerloss.noise import NoiseModel
from peerloss.theory import (
    calibration_transform,
    deviation_bound,
    excess_risk_bound,
    generalization_bound,
    optimal_alpha,
    peer_transform,
    rademacher_linear,
    rademacher_two_layer,
    required_samples,
)

NOISE = NoiseModel.binary(0.25, 0.35)
SIZES = {"lipschitz": 1.0, "weight_norm": 1.0, "input_norm": 2.0}
STATEMENTS = [
    "Lemma 1",
    "Lemma 2",
    "Theorems 2, 3",
    "Theorem 4",
    "Theorem 4",
    "Theorem 5",
    "Theorem 5",
    "Theorem 6",
    "Lemma 4",
    "Appendix Lemma 3",
    "Theorem 7",
]


def rows_for(**options):
    """Return the rows for the rates of this module and other options."""
    rows = bound_rows(BoundQuestion(**{"samples": 10**9, "e_neg": 0.25, "e_pos": 0.35, **options}))
    assert [row.statement for row in rows] == STATEMENTS
    return rows


def test_rows_without_optional_options_name_what_they_need():
    """Rates and N are enough for the noise statements and Theorem 5; other rows name missing options."""
    rows = rows_for()
    assert [row.value is not None for row in rows] == [i in (0, 1, 5) for i in range(11)]
    assert rows[0].value == [[1, 0], [0, 1]]
    assert rows[1].value == pytest.approx(0.4)
    assert rows[2].needs == rows[3].needs == rows[7].needs == "--clean-prior"
    assert rows[6].needs == "--target-excess"
    assert rows[9].needs == rows[10].needs == "--lipschitz, --weight-norm, --input-norm"
    assert rows[5].value == excess_risk_bound(10**9, NOISE, alpha=1.0)
    assert "α = 1" in rows[5].note


def test_rows_with_everything_equal_the_theory():
    """With all options every row has the value of its theory function, at α = α*."""
    rows = rows_for(
        clean_prior=0.25, target_excess=0.05, confidence=0.9, hypotheses=7, loss_range=2.0, **SIZES
    )
    alpha = optimal_alpha(NOISE, 0.25)
    assert rows[2].value == 0.5
    assert rows[3].value == alpha
    assert rows[4].value == pytest.approx(alpha, abs=1e-12)
    common = {"alpha": alpha, "confidence": 0.9}
    assert rows[5].value == excess_risk_bound(10**9, NOISE, n_hypotheses=7, **common)
    assert rows[6].value == required_samples(0.05, NOISE, n_hypotheses=7, **common)
    assert (rows[7].value, rows[8].value) == (True, True)
    sizes = {
        "lipschitz": 1.0,
        "rademacher": rademacher_linear(10**9, weight_norm=1, input_norm=2),
        "loss_range": 2.0,
    }
    assert rows[9].value == deviation_bound(10**9, **sizes, **common)
    psi = peer_transform(calibration_transform("logistic"), NOISE, alpha=alpha)
    assert rows[10].value == generalization_bound(10**9, NOISE, transform=psi, **sizes, **common)
    assert 0 < rows[10].value < 1


def test_hidden_norm_means_two_layers():
    """--hidden-norm switches to the two-layer complexity."""
    rows = rows_for(hidden_norm=3.0, **SIZES)
    complexity = rademacher_two_layer(10**9, output_norm=1.0, hidden_norm=3.0, input_norm=2.0)
    assert rows[9].value == deviation_bound(10**9, alpha=1.0, lipschitz=1.0, rademacher=complexity)


def test_theorem_7_needs_a_calibrated_loss():
    """At p = ½ logistic is not worst on flipped labels and sigmoid is; unhinged has no transform."""
    assert "Theorem 6" in rows_for(clean_prior=0.5, **SIZES)[10].needs
    assert rows_for(clean_prior=0.5, base="sigmoid", **SIZES)[10].value is not None
    assert "unhinged" in rows_for(clean_prior=0.5, base="unhinged", **SIZES)[10].needs
    assert rows_for(**SIZES)[10].needs == "--clean-prior"
    assert "Theorem 6" in rows_for(clean_prior=0.25, alpha=1.5, **SIZES)[10].needs


def test_theorem_7_needs_a_minimum():
    """Condition 2 as printed at α* > Σe: the logistic peer risk has no minimum, so there is no bound."""
    rows = bound_rows(BoundQuestion(samples=10**9, e_neg=0.1, e_pos=0.3, clean_prior=0.45, **SIZES))
    assert rows[7].value is True
    assert rows[10].value is None
    assert "bounded below" in rows[10].needs


def test_theorem_7_covers_the_margin_square_at_every_alpha_below_1():
    """(1 − t)² has a minimum at α* > Σe as well; Ψ is checked against minima found on a grid."""
    options = {"samples": 10**9, "e_neg": 0.1, "e_pos": 0.3, "clean_prior": 0.45, "base": "margin_square"}
    rows = bound_rows(BoundQuestion(**options, **SIZES))
    alpha, factor = optimal_alpha(NoiseModel.binary(0.1, 0.3), 0.45), 0.6
    assert alpha > 1 - factor
    excess = math.sqrt(2 * rows[9].value * (1 - alpha))
    assert rows[10].value == pytest.approx(min(excess, factor) / factor, abs=1e-9)
    assert "has a minimum for every α < 1" in rows[7].note
    scores = np.linspace(-10, 10, 200_001)
    for eta in (0.55, 0.8, 1.0):  # the largest has an excess above 1 − α
        u = factor * (2 * eta - 1)
        right, wrong = (1 - alpha + u) / 2, (1 - alpha - u) / 2
        losses = right * (1 - scores) ** 2 + wrong * (1 + scores) ** 2
        assert losses[scores <= 0].min() - losses.min() == pytest.approx(u**2 / (1 - alpha), abs=1e-6)


def test_lemma_4_requires_a_convex_base():
    """Sigmoid is not convex; hinge is convex, and its peer risk too at a small α."""
    assert rows_for(clean_prior=0.25, base="sigmoid")[8].value is False
    assert rows_for(clean_prior=0.25, base="hinge")[8].value is True


def test_a_given_alpha_is_used_and_marked():
    """An α other than α* is used, with a note that Theorem 5 needs α*; α* itself has no note."""
    row = rows_for(clean_prior=0.25, alpha=0.9)[5]
    assert row.value == excess_risk_bound(10**9, NOISE, alpha=0.9)
    assert "only if" in row.note
    assert rows_for(clean_prior=0.25, alpha=optimal_alpha(NOISE, 0.25))[5].note == ""


def test_a_missing_alpha_star_is_explained_in_its_row():
    """Balanced noisy labels with unequal rates: Theorem 4 explains, other rows have values."""
    rows = bound_rows(BoundQuestion(samples=10, e_neg=0.1, e_pos=0.3, clean_prior=2 / 3))
    assert rows[3].value is None
    assert "downsample" in rows[3].needs
    assert "vacuous" in rows[5].note


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"e_neg": 0.7}, NotIdentifiableError, "`noise` must be informative"),
        ({"e_neg": 1.7}, InvalidInputError, "`e_neg` must lie in"),
        ({"clean_prior": 1.0}, InvalidInputError, "`clean_prior` must lie in"),
        ({"base": "focal"}, InvalidInputError, "`base` must be one of"),
        ({"samples": 0}, InvalidInputError, "`n_samples` must be an integer"),
    ],
)
def test_wrong_options_are_named(options, error, match):
    """Every error names the option."""
    with pytest.raises(error, match=match):
        rows_for(**options)


def test_table_and_summary():
    """The command prints one row per statement, missing options, and a summary line."""
    arguments = ["bound", "--samples", "5000", "--e-neg", "0.2", "--e-pos", "0.4"]
    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "200"})
    assert result.exit_code == 0, result.output
    for part in ("Lemma 1", "((1, 0), (0, 1))", "Theorem 7", "needs --clean-prior", "0.1921"):
        assert part in result.stdout
    assert result.stdout.rstrip().splitlines()[-1].startswith("3 of 11 statements evaluated")


def test_json_is_the_only_output_and_in_order():
    """--json prints one list, rows in the paper's order, null and "needs" if an option is missing."""
    arguments = [
        "bound",
        "--samples",
        "5000",
        "--e-neg",
        "0.2",
        "--e-pos",
        "0.4",
        "--clean-prior",
        "0.4",
        "--json",
    ]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [row["statement"] for row in rows] == STATEMENTS
    assert list(rows[0]) == ["statement", "quantity", "value", "note", "needs"]
    assert rows[3]["value"] == pytest.approx(optimal_alpha(NoiseModel.binary(0.2, 0.4), 0.4))
    assert rows[-1]["value"] is None
    assert "--lipschitz" in rows[-1]["needs"]


def test_errors_go_to_stderr_with_code_2():
    """Σe ≥ 1 ends with exit code 2 and the message on stderr."""
    result = CliRunner().invoke(app, ["bound", "--samples", "10", "--e-neg", "0.6", "--e-pos", "0.6"])
    assert result.exit_code == 2
    assert "must be informative" in result.stderr
    assert result.stdout == ""


def test_importing_the_command_is_fast():
    """Neither NumPy, SciPy nor torch is imported by the module itself, only when the command runs."""
    probe = (
        "import sys, types; package = types.ModuleType('peerloss'); import importlib.util as u;"
        "spec = u.find_spec('peerloss'); package.__path__ = list(spec.submodule_search_locations);"
        "sys.modules['peerloss'] = package; cli = types.ModuleType('peerloss.cli');"
        "cli.__path__ = [package.__path__[0] + '/cli']; sys.modules['peerloss.cli'] = cli;"
        "import peerloss.cli._bound;"
        "print([m for m in ('numpy', 'scipy', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
