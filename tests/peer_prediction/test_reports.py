"""Tables of reports as integer codes."""

import numpy as np
import pandas as pd
import pytest

from peerloss.exceptions import InvalidInputError
from peerloss.peer_prediction import Reports

TRIPLES = [("b", "zoe", "yes"), ("a", "ann", "no"), ("b", "ann", "no"), ("a", "zoe", "no")]


def test_codes_give_the_table_back():
    """Names indexed by codes are the columns of the table; labels are sorted, other names by appearance."""
    reports = Reports.from_table(TRIPLES)
    rows = zip(
        reports.tasks[reports.task_codes],
        reports.workers[reports.worker_codes],
        reports.labels[reports.label_codes],
        strict=True,
    )
    assert list(rows) == TRIPLES
    assert reports.tasks.tolist() == ["b", "a"]
    assert reports.workers.tolist() == ["zoe", "ann"]
    assert reports.labels.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(reports.counts.toarray(), [[1, 1], [2, 0]])
    assert len(reports) == 4


@pytest.mark.parametrize("first", ["task", "item"])
def test_frame_and_triples_are_the_same(first):
    """A frame with a task or an item column gives the same codes as triples, whatever its order and index."""
    frame = pd.DataFrame(TRIPLES, columns=[first, "worker", "label"], index=[9, 9, 3, 1])[
        ["label", first, "worker"]
    ]
    one, two = Reports.from_table(frame), Reports.from_table(iter(TRIPLES))
    for name in ("tasks", "workers", "labels", "task_codes", "worker_codes", "label_codes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))


def test_task_column_wins_over_item():
    """If a table has both columns, the column task is used."""
    frame = pd.DataFrame({"item": [1, 1], "task": [5, 6], "worker": ["a", "b"], "label": [0, 1]})
    assert Reports.from_table(frame).tasks.tolist() == [5, 6]


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA, pd.NaT])
def test_missing_labels_are_not_answers(missing):
    """A missing label is dropped; a worker without answers is kept."""
    reports = Reports.from_table([*TRIPLES, ("a", "bob", missing), ("b", "bob", missing)])
    assert len(reports) == 4
    assert reports.workers.tolist() == ["zoe", "ann", "bob"]
    assert reports.labels.tolist() == ["no", "yes"]


@pytest.mark.parametrize(
    "labels", [["x", "y"], [True, False], [1.5, -2.0], [3, 7], pd.Categorical(["b", "a"])]
)
def test_labels_of_any_type(labels):
    """Strings, booleans, floats, integers and categories are labels, sorted by value."""
    reports = Reports.from_table(pd.DataFrame({"task": [0, 0], "worker": [0, 1], "label": labels}))
    assert reports.labels.tolist() == sorted(labels)


def test_listed_labels_fix_the_order_and_number():
    """Listed labels that do not occur have a column."""
    reports = Reports.from_table(TRIPLES, labels=["yes", "unsure", "no"])
    assert reports.labels.tolist() == ["no", "unsure", "yes"]
    np.testing.assert_array_equal(reports.counts.toarray(), [[1, 0, 1], [2, 0, 0]])


@pytest.mark.parametrize(("duplicates", "label"), [("first", "yes"), ("last", "no")])
def test_one_of_several_labels_is_kept(duplicates, label):
    """Of two labels of one worker for one task the first or the last is kept; missing labels are ignored."""
    table = [("b", "zoe", None), *TRIPLES, ("c", "ann", "yes"), ("b", "zoe", "no"), ("b", "zoe", None)]
    reports = Reports.from_table(table, duplicates=duplicates)
    assert len(reports) == 5
    kept = (reports.tasks[reports.task_codes] == "b") & (reports.workers[reports.worker_codes] == "zoe")
    assert reports.labels[reports.label_codes[kept]].tolist() == [label]


@pytest.mark.parametrize("first", ["task", "item"])
def test_the_error_about_duplicates_names_the_columns(first):
    """The message names the columns of the table and the argument that helps."""
    frame = pd.DataFrame([*TRIPLES, TRIPLES[0]], columns=[first, "worker", "label"])
    message = f"columns '{first}' and 'worker'.*{first} b, worker zoe has more.*duplicates='first'"
    with pytest.raises(InvalidInputError, match=message):
        Reports.from_table(frame)


def test_caller_table_is_unchanged():
    """The caller's frame is not changed."""
    frame = pd.DataFrame(TRIPLES, columns=["task", "worker", "label"])
    copy = frame.copy()
    Reports.from_table(frame)
    pd.testing.assert_frame_equal(frame, copy)


def test_repr_counts():
    """The representation shows the sizes."""
    assert repr(Reports.from_table(TRIPLES)) == "Reports(4 reports, 2 tasks, 2 workers, 2 labels)"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ([], "`table`.*empty"),
        (pd.DataFrame(columns=["task", "worker", "label"]), "`table`.*empty"),
        (pd.DataFrame({"task": [1], "annotator": [2], "label": [3]}), "`table`.*worker missing.*'annotator'"),
        (pd.DataFrame({"question": [1]}), "`table`.*task, worker, label missing.*'question'"),
        ([(1, 2)], "`table`.*triples"),
        (["abc"], "`table`.*triples"),
        (None, "`table`.*triples"),
        ({"task": [1], "worker": [2], "label": [3]}, "`table`.*triples"),
        ([(1, "a", None), (1, "b", np.nan)], "`table`.*with a label; got none"),
        ([(1, "a", 0), (1, "b", 0)], "`table`.*two different labels; every label is 0"),
        ([(1, "a", 0), (1, "b", 1), (1, "a", 1), (1, "b", 1)], "`table`.*task 1, worker a has more"),
        ([(None, "a", 0), (1, "b", 1)], "`table`.*task of every report; row 0"),
        ([(1, "a", 0), (1, None, 1)], "`table`.*worker of every report; row 1"),
        ([(1, "a", {1}), (1, "b", 2)], "`table`.*sorted"),
    ],
)
def test_bad_tables_are_refused(table, message):
    """Each message names the fault and what was found."""
    with pytest.raises(InvalidInputError, match=message):
        Reports.from_table(table)


@pytest.mark.parametrize(
    ("labels", "message"), [(["no"], "`labels`.*yes is not listed"), (["no", "no", "yes"], "`labels`.*twice")]
)
def test_bad_label_lists_are_refused(labels, message):
    """The list must hold each label that occurs exactly once."""
    with pytest.raises(InvalidInputError, match=message):
        Reports.from_table(TRIPLES, labels=labels)
