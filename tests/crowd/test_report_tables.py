"""Reading tables of reports, long and wide."""

import numpy as np
import pandas as pd
import pytest

from peerloss.crowd import read_reports, report_tables
from peerloss.datasets import iter_table
from peerloss.exceptions import InvalidInputError


@pytest.fixture
def small_chunks(monkeypatch):
    """Read three rows at a time."""

    def three(path, *, chunk_rows, **options):
        return iter_table(path, chunk_rows=min(chunk_rows, 3), **options)

    monkeypatch.setattr(report_tables, "iter_table", three)


@pytest.mark.usefixtures("small_chunks")
def test_codes_stay_as_written_whatever_the_chunk(tmp_path):
    """007 is not 7, an empty cell is a missing label, and a name in different chunks is one name."""
    path = tmp_path / "c.csv"
    rows = [("007", "a", "1"), ("7", "a", ""), ("007", "b", "2"), ("x", "a", "1"), ("7", "b", "2")]
    path.write_text("label,task,worker,note\n" + "".join(f"{y},{t},{w},-\n" for t, w, y in rows))
    table = read_reports(path)
    assert table["task"].tolist() == [t for t, _, _ in rows]
    assert table["worker"].tolist() == [w for _, w, _ in rows]
    assert table["label"].astype(object).where(table["label"].notna(), "").tolist() == [y for _, _, y in rows]
    assert table["task"].cat.categories.tolist() == ["007", "7", "x"]


def test_numbers_of_a_parquet_file_become_names(tmp_path):
    """Integers are read as text without a decimal point."""
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"item": [1, 1, 2], "worker": [10, 11, 10], "label": np.array([0, 1, 1], np.int8)})
    frame.to_parquet(tmp_path / "c.parquet")
    assert read_reports(tmp_path / "c.parquet").to_numpy().tolist() == frame.astype(str).to_numpy().tolist()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("task", ["task", "item"])
def test_wide_tables_become_long(tmp_path, task):
    """One column per worker, whatever the workers are called; empty cells are missing labels."""
    path = tmp_path / "w.csv"
    path.write_text(f"{task},worker,label\n01,a,b\n02,,b\n03,b,a\n04,a,a\n")
    table = read_reports(path, wide=True)
    assert table["task"].tolist() == ["01", "01", "02", "02", "03", "03", "04", "04"]
    assert table["worker"].tolist() == ["worker", "label"] * 4
    assert table["label"].isna().sum() == 1


def test_missing_columns_are_listed(tmp_path):
    """The message names the missing columns and those that exist."""
    path = tmp_path / "c.csv"
    path.write_text("task,annotator,answer\n1,a,x\n")
    with pytest.raises(InvalidInputError, match=r"worker, label missing among \['task', 'annotator'"):
        read_reports(path)


@pytest.mark.parametrize("wide", [False, True])
def test_one_label_of_each_worker_and_task_is_kept(tmp_path, wide):
    """The first or last in the order of the file, also if a wide table has two rows of one task."""
    path = tmp_path / "c.csv"
    if wide:
        path.write_text("item,ann,bob\n1,x,\n1,y,x\n2,y,y\n")
    else:
        path.write_text("item,worker,label\n1,ann,x\n1,ann,y\n1,bob,x\n2,ann,y\n2,bob,y\n")
    with pytest.raises(InvalidInputError, match="--duplicates first"):
        read_reports(path, wide=wide)
    for duplicates, label in (("first", "x"), ("last", "y")):
        table = read_reports(path, wide=wide, duplicates=duplicates).dropna()
        assert set(table.itertuples(index=False, name=None)) == {
            ("1", "ann", label),
            ("1", "bob", "x"),
            ("2", "ann", "y"),
            ("2", "bob", "y"),
        }


def test_abstentions_are_missing_labels(tmp_path):
    """The abstention label is read as missing, and is not one of two labels of a worker."""
    path = tmp_path / "c.csv"
    path.write_text("task,worker,label\n1,ann,-1\n1,ann,y\n1,bob,x\n")
    table = read_reports(path, abstain="-1")
    assert table["label"].isna().tolist() == [True, False, False]
    assert table["label"].dropna().tolist() == ["y", "x"]


def test_columns_may_have_other_names(tmp_path):
    """`columns` names them; the result has the usual names."""
    path = tmp_path / "c.csv"
    path.write_text("image,rater,answer,label\n01,a,x,1\n01,b,y,2\n")
    names = {"task": "image", "worker": "rater", "label": "answer"}
    table = read_reports(path, columns=names)
    assert table.astype(str).to_dict("list") == {
        "task": ["01", "01"],
        "worker": ["a", "b"],
        "label": ["x", "y"],
    }
    path.write_text("image,ann,bob\n01,x,y\n")
    wide = read_reports(path, columns={"task": "image"}, wide=True)
    assert wide.astype(str)["task"].tolist() == ["01", "01"]


def test_unknown_roles_are_refused(tmp_path):
    """The message lists what `columns` may name."""
    path = tmp_path / "c.csv"
    path.write_text("task,worker,label\n1,a,x\n")
    with pytest.raises(
        InvalidInputError, match="`columns` must name the columns of 'task', 'worker', 'label'"
    ):
        read_reports(path, columns={"item": "task"})
    with pytest.raises(
        InvalidInputError, match="`columns` must name the columns of 'task' only; got 'label'"
    ):
        read_reports(path, columns={"label": "label"}, wide=True)


def test_frequent_words_such_as_none_are_labels(tmp_path):
    """As with one column of labels; rare words and empty cells are missing, and codes stay as written."""
    labels = ["None", "defect"] * 20 + ["NA", "", "007"]
    path = tmp_path / "reports.csv"
    path.write_text("task,worker,label\n" + "".join(f"{i},w,{label}\n" for i, label in enumerate(labels)))
    found = read_reports(path)["label"]
    assert found.dropna().tolist() == ["None", "defect"] * 20 + ["007"]
    assert sorted(found.cat.categories) == ["007", "None", "defect"]
    assert found.isna().to_numpy().nonzero()[0].tolist() == [40, 41]
