"""Load data sets of OpenML; a fake replaces the download."""

import json
from types import SimpleNamespace
from urllib.error import URLError

import pandas as pd
import pytest

from peerloss import load_dataset
from peerloss.datasets import _openml
from peerloss.exceptions import InvalidInputError

TABLE = pd.DataFrame(
    {
        "x": [0.1, None, 1 / 3, 4.0],
        "code": pd.Categorical(["1", "02", None, "NA"]),
        "class": pd.Categorical(["good", "bad", "good", "good"]),
    }
)


class FakeOpenML:
    """Counts the downloads; raises ``error`` if it is set."""

    def __init__(self):
        self.calls = 0
        self.error = None
        self.target_names = ["class"]

    def __call__(self, *, data_id, as_frame, cache, parser):
        """Return what fetch_openml returns."""
        assert (data_id, as_frame, cache, parser) == (31, True, False, "liac-arff")
        self.calls += 1
        if self.error:
            raise self.error
        return SimpleNamespace(
            frame=TABLE, target_names=self.target_names, details={"name": "credit", "citation": "H. Hofmann"}
        )


@pytest.fixture
def openml(monkeypatch):
    fake = FakeOpenML()
    monkeypatch.setattr(_openml, "fetch_openml", fake)
    return fake


def test_a_data_set_is_downloaded_once(openml, tmp_path):
    """Later reads use the cache and are equal: numbers, codes and missing values are kept."""
    first, second = (load_dataset("openml:31", data_dir=tmp_path) for _ in range(2))
    assert openml.calls == 1
    pd.testing.assert_frame_equal(first.X, second.X)
    assert first.X["x"].tolist()[::2] == pytest.approx([0.1, 1 / 3], rel=1e-14)
    assert first.X["code"].dropna().tolist() == ["1", "02", "NA"]
    assert first.X.isna().sum().tolist() == [1, 1]
    assert first.y.tolist() == [1, 0, 1, 1]
    assert (first.name, first.target_names, first.citation) == ("openml:31", ("bad", "good"), "H. Hofmann")
    assert sorted(path.name for path in (tmp_path / "openml").iterdir()) == ["31.csv.gz", "31.json"]


@pytest.mark.usefixtures("openml")
def test_without_a_folder_the_cache_is_the_data_folder_of_scikit_learn(tmp_path, monkeypatch):
    """It is set by SCIKIT_LEARN_DATA."""
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    load_dataset("openml:31")
    assert (tmp_path / "peerloss" / "openml" / "31.json").exists()


def test_a_changed_file_is_refused(openml, tmp_path):
    """Its checksum differs; the message names the files to delete, after which loading works again."""
    load_dataset("openml:31", data_dir=tmp_path)
    table, record = tmp_path / "openml" / "31.csv.gz", tmp_path / "openml" / "31.json"
    table.write_bytes(table.read_bytes()[:-1] + b"x")
    with pytest.raises(InvalidInputError, match=r"has changed since it was downloaded.*Delete .*31\.csv\.gz"):
        load_dataset("openml:31", data_dir=tmp_path)
    table.unlink()
    record.unlink()
    assert len(load_dataset("openml:31", data_dir=tmp_path).y) == 4
    record.write_text(json.dumps({"sha256": "?"}))
    with pytest.raises(InvalidInputError, match=r"31\.json is not a valid cache record"):
        load_dataset("openml:31", data_dir=tmp_path)
    assert openml.calls == 2


def test_the_offline_error_has_advice(openml, tmp_path):
    """It explains how to fill the cache; no file is left behind, and a cached data set loads offline."""
    openml.error = URLError("no route to host")
    with pytest.raises(InvalidInputError, match=r"be downloaded.*no route.*copy 31\.csv\.gz.*`target`"):
        load_dataset("openml:31", data_dir=tmp_path)
    assert not list(tmp_path.iterdir())
    openml.error = None
    load_dataset("openml:31", data_dir=tmp_path)
    openml.error = URLError("no route to host")
    assert len(load_dataset("openml:31", data_dir=tmp_path).y) == 4


def test_an_unknown_number_is_refused(openml, tmp_path):
    """The message contains the answer of OpenML, or an example of a number."""
    openml.error = ValueError("Dataset with data_id 31 not found.")
    with pytest.raises(InvalidInputError, match="OpenML data set 31 cannot be loaded: Dataset with"):
        load_dataset("openml:31", data_dir=tmp_path)
    for wrong in ("openml:credit-g", "openml:", "openml:../31"):
        with pytest.raises(InvalidInputError, match="'openml:' and a number"):
            load_dataset(wrong, data_dir=tmp_path)


def test_the_target_may_be_chosen(openml, tmp_path):
    """It must be, if OpenML has no default target."""
    openml.target_names = []
    with pytest.raises(InvalidInputError, match=r"`target` must name.*credit.*'class'"):
        load_dataset("openml:31", data_dir=tmp_path)
    assert load_dataset("openml:31", data_dir=tmp_path, target="class").y.tolist() == [1, 0, 1, 1]
    assert openml.calls == 1


def test_a_cache_that_cannot_be_written_is_reported(openml, tmp_path):
    """Here a file has the name of the folder."""
    (tmp_path / "openml").write_text("in the way")
    with pytest.raises(InvalidInputError, match=r"cannot be written.*data_dir"):
        load_dataset("openml:31", data_dir=tmp_path)
    assert openml.calls == 1
