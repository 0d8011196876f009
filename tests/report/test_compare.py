"""Counts and sentences of the comparison with the paper."""

import math

import pytest
import torch

from peerloss.functional import plain_loss
from peerloss.report import build_report
from peerloss.report._exports import findings
from tests.report.made_up import row, store

# Printed, original prior. heart .1, .3: peer .856, surrogate .802, nn .75; thyroid .1, .3 is looked up below.
ACCURACIES = {"peer": [0.84, 0.86], "surrogate": [0.85, 0.85], "nn": [0.70, 0.72]}


def section_of(folder, records):
    return build_report(store(folder, records)).sections[0]


def test_the_summary_counts_both_sides_on_the_same_rows_and_methods(tmp_path):
    """PAM has no printed number: it counts for the best of all, not in the comparison with the paper."""
    records = row(ACCURACIES | {"pam": [0.95, 0.95]})
    records += row(
        {"peer": [0.9, 0.9], "surrogate": [0.95, 0.95], "nn": [0.94, 0.94], "pam": [0.1, 0.1]}, e_pos=0.4
    )
    (summary,) = section_of(tmp_path, records).summaries
    assert (summary.rows, summary.printed_rows, summary.incomplete) == (2, 2, 0)
    assert not summary.all_printed
    by_method = {entry.method: entry for entry in summary.methods}
    assert by_method["peer"].mean == pytest.approx(0.875)
    assert {name: entry.near_best for name, entry in by_method.items()} == {
        "peer": 0, "surrogate": 1, "nn": 1, "pam": 1,
    }  # fmt: skip
    assert by_method["pam"].beside_paper is None
    comparison = {name: entry.beside_paper for name, entry in by_method.items() if name != "pam"}
    assert {name: entry.near_best for name, entry in comparison.items()} == {
        "peer": 1,
        "surrogate": 2,
        "nn": 1,
    }
    assert {name: entry.printed_near_best for name, entry in comparison.items()} == {
        "peer": 2,
        "surrogate": 0,
        "nn": 0,
    }
    assert comparison["peer"].printed_mean == pytest.approx((0.856 + 0.859) / 2)
    assert comparison["peer"].difference == pytest.approx(0.875 - (0.856 + 0.859) / 2)


@pytest.mark.parametrize(
    ("surrogate", "order", "holds"),
    [(0.80, ("peer", "surrogate", "nn"), True), (0.90, ("surrogate", "peer", "nn"), False)],
)
def test_the_order_of_the_paper_is_checked(tmp_path, surrogate, order, holds):
    """By the means over complete rows."""
    section = section_of(tmp_path, row(ACCURACIES | {"surrogate": [surrogate] * 2}))
    (summary,) = section.summaries
    assert (summary.ordering_here, summary.ordering_holds) == (order, holds)
    assert summary.ordering_printed == ("peer", "surrogate", "nn")
    verdict = "holds here" if holds else "does not hold here"
    assert any(f"Peer > Surr > NN, {verdict}" in sentence for sentence in findings(section))


def test_without_one_of_the_three_nothing_is_said_about_the_order(tmp_path):
    """Rather than about another order."""
    (summary,) = section_of(tmp_path, row({"peer": [0.8], "nn": [0.7]})).summaries
    assert summary.ordering_here is summary.ordering_holds is None


def test_the_row_of_the_readme_is_compared_by_the_spread_over_seeds(tmp_path):
    """Peer .84 and .86: spread .014 around .85, paper .856; the surrogate has no spread, paper .802."""
    (sentence,) = [s for s in findings(section_of(tmp_path, row(ACCURACIES))) if "README" in s]
    assert "within one standard deviation over seeds for Peer; not for Surr, NN." in sentence


@pytest.mark.parametrize("protocol", ["paper", "fair"])
def test_differences_from_the_paper_are_told(tmp_path, protocol):
    """Of the methods that are there: peers from the batch, no tanh, a start with cross entropy."""
    sentences = findings(
        section_of(
            tmp_path / "all",
            row(ACCURACIES | {"symmetric": [0.8, 0.8], "dmi": [0.8, 0.8]}, protocol=protocol),
        )
    )
    known = [s for s in sentences if s.startswith("Known difference from the paper: ")]
    words = ["chose width", "peers are drawn from the batch", "|y − tanh z|", "500 steps of cross entropy"]
    words += ["only peer loss searches its base"] if protocol == "fair" else []
    assert len(known) == len(words)
    assert all(word in sentence for word, sentence in zip(words, known, strict=True))
    fewer = findings(section_of(tmp_path / "three", row(ACCURACIES, protocol=protocol)))
    assert len([s for s in fewer if s.startswith("Known")]) == len(words) - 2


def test_symm_is_the_authors_loss_but_for_the_size_of_the_logit():
    """|y − tanh z| for labels ±1 is twice the sigmoid loss of 2z, as the report states."""
    z = torch.linspace(-4, 4, 41, dtype=torch.float64)
    for label in (0, 1):
        y = torch.full((len(z),), label)
        ours = plain_loss(2 * z, y, base="sigmoid", reduction="none")
        torch.testing.assert_close(2 * ours, (2.0 * label - 1.0 - torch.tanh(z)).abs())


def test_incomplete_rows_are_told(tmp_path):
    """And what remains."""
    section = section_of(tmp_path, row(ACCURACIES) + row({"peer": [0.8, 0.8]}, e_pos=0.4))
    assert any("1 row is incomplete" in s and "1 remain" in s for s in findings(section))


def test_rows_that_the_paper_lacks_are_summarised_alone(tmp_path):
    """No sentence mentions printed numbers."""
    section = section_of(tmp_path, row(ACCURACIES, data_set="mine"))
    assert section.summaries[0].printed_rows == 0
    assert section.summaries[0].methods[0].mean == pytest.approx(0.85)
    assert findings(section) == []
    assert section.deviations == ()


def test_cells_far_from_the_paper_are_listed_with_the_reason(tmp_path):
    """More than 3 points; the standard error is that of two means, eight seeds in the paper."""
    accuracies = {"peer": [0.80, 0.90], "surrogate": [0.85, 0.85], "nn": [0.70, 0.72], "c-svm": [0.60, 0.61]}
    section = section_of(tmp_path, row(accuracies))
    found = {entry.method: entry for entry in section.deviations}
    assert set(found) == {"surrogate", "nn", "c-svm"}, "peer is .006 from the paper"
    nn = found["nn"]
    spread = math.sqrt(2) * 0.01
    assert nn.difference == pytest.approx(0.71 - 0.75)
    assert nn.error == pytest.approx(spread * math.sqrt(1 / 2 + 1 / 8))
    assert "the test set has 40 rows, so one row is 2.5 points" in nn.reason
    assert "3.6 standard errors: more than chance; the authors chose settings on test" in nn.reason
    assert "no spread over seeds: more than chance" in found["surrogate"].reason
    assert "never tunes the class weight" in found["c-svm"].reason


def test_exactly_three_points_are_not_far(tmp_path):
    """Whatever floating point makes of .856 − .03."""
    assert section_of(tmp_path, row({"peer": [0.826], "nn": [0.78]})).deviations == ()


def test_differences_within_the_spread_can_be_chance(tmp_path):
    """With one seed, the spread is the binomial standard deviation over the test rows."""
    (found,) = section_of(tmp_path / "a", row({"peer": [0.80], "nn": [0.75]}, n_test=20)).deviations
    assert found.error == pytest.approx(math.sqrt(0.8 * 0.2 / 20) * math.sqrt(1 + 1 / 8))
    assert "0.6 standard errors: can be chance" in found.reason
    (german,) = section_of(
        tmp_path / "b", row({"peer": [0.1], "nn": [0.1]}, data_set="german", n_test=999)
    ).deviations[:1]
    assert "german reversed" in german.reason
    assert "test set" not in german.reason
