"""The view of annotators' scores in a notebook."""

import pickle

import numpy as np
import pandas as pd

from peerloss import score_annotators
from peerloss.crowd._score_view import MAX_WORKERS
from tests.crowd.test_copies import as_table, crowd


def scores(n_workers=4, **options):
    answers = crowd(np.random.default_rng(0), n_workers, 60)
    answers["<i>always</i>"] = np.zeros(60, int)
    return score_annotators(as_table(answers), n_bootstrap=20, random_state=0, **options)


def test_the_view_has_the_columns_that_people_ask_for():
    """Accuracy with its interval, score, suspects and, with a budget, payments; names are escaped."""
    table = scores(budget=100)
    view = table._repr_html_()
    assert "<i>" not in view
    assert "&lt;i&gt;always" in view
    assert f"{table['payment'].iloc[0]:.2f}" in view
    assert "payment</th>" not in scores()._repr_html_()
    assert "1 seems to guess" in view


def test_suspects_come_first_and_many_workers_are_cut():
    """The number of workers that are not shown is named."""
    view = scores(n_workers=MAX_WORKERS + 4)._repr_html_()
    assert view.index("always") < view.index("w0<")
    assert view.count("<tr>") == MAX_WORKERS + 1
    assert "5 more not shown." in view


def test_missing_scores_are_dashes():
    """A worker without shared tasks has no score."""
    rows = [(t, w, t % 2) for t in range(8) for w in "ab"] + [(99, "alone", 0)]
    assert ">–</td>" in score_annotators(rows, n_bootstrap=20, random_state=0)._repr_html_()


def test_what_is_computed_is_an_ordinary_frame():
    """Only the result itself has the view; it can be pickled and compared."""
    table = scores()
    assert type(table[["score"]]) is type(table.reset_index()) is pd.DataFrame
    again = pickle.loads(pickle.dumps(table))  # noqa: S301
    assert type(again) is type(table)
    pd.testing.assert_frame_equal(again, table)
