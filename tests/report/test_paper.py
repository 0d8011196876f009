"""The printed numbers and the rule for bold face."""

import numpy as np
import pytest

from peerloss.report._paper import Row, near_best, printed, printed_table

METHODS = ("peer", "surrogate", "symmetric", "dmi", "nn", "c-svm")


def test_the_printed_table_is_whole():
    """Ten data sets, five noise pairs, two priors, six methods, all of them accuracies."""
    table = printed_table()
    assert len(table) == 100
    assert len({row.data_set for row in table}) == 10
    assert len({(row.e_neg, row.e_pos) for row in table}) == 5
    assert all(tuple(row) == METHODS for row in table.values())
    assert all(0.3 < accuracy < 1 for row in table.values() for accuracy in row.values())


@pytest.mark.parametrize(("prior", "peer"), [("equalized", 0.820), ("original", 0.834)])
def test_its_means_are_those_the_paper_is_quoted_with(prior, peer):
    """They would reveal an error in copying 600 numbers."""
    accuracies = [by_method["peer"] for row, by_method in printed_table().items() if row.prior == prior]
    assert np.mean(accuracies) == pytest.approx(peer, abs=5e-4)


def test_the_row_of_the_authors_readme():
    """Heart .1, .3 with the original prior, as printed; what the paper lacks is None."""
    row = Row("heart", 0.1, 0.3, "original")
    assert [printed(row, method) for method in METHODS] == [0.856, 0.802, 0.803, 0.83, 0.75, 0.788]
    assert printed(row, "pam") is None
    assert printed(row._replace(data_set="circles"), "peer") is None


def test_bold_is_within_two_points_the_border_included():
    """Points, not per cent of the best; floating point does not lose the border."""
    assert near_best({"a": 0.9, "b": 0.88, "c": 0.8799}) == {"a", "b"}
    assert near_best({"a": 0.5, "b": 0.485}) == {"a", "b"}
    assert near_best({}) == frozenset()
    assert all(near_best({"a": k / 1000, "b": (k - 20) / 1000}) == {"a", "b"} for k in range(20, 1001))
