"""Real label noise from a folder: published files have known counts; other folders are refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from peerloss.datasets import list_real_noise, load_real_noise
from peerloss.exceptions import InvalidInputError

#: name → reports, workers, tasks with reports, gold labels, classes, as published.
COUNTS = {
    "dog": (8070, 109, 807, 807, 4),
    "labelme": (2547, 59, 1000, 2688, 8),
    "product": (24945, 176, 8315, 8315, 2),
    "weather_sentiment": (6030, 110, 300, 300, 5),
    "web": (15567, 177, 2665, 2653, 5),
    "youtube": (3260, 10, 1728, 1956, 2),
}


@pytest.mark.parametrize("name", COUNTS)
def test_published_files_have_known_counts(name):
    """Reports are also correct more often than chance, so columns are not mixed up."""
    if not Path(os.environ.get("PEERLOSS_DATA", "nowhere"), "real_noise").is_dir():
        pytest.skip("needs the folder real_noise in PEERLOSS_DATA")
    data = load_real_noise(name)
    reports = data.reports
    found = (
        len(reports),
        reports["worker"].nunique(),
        reports["task"].nunique(),
        len(data.gold),
        data.n_classes,
    )
    assert found == COUNTS[name]
    assert list(reports) == ["task", "worker", "label"]
    known = reports[reports["task"].isin(data.gold.index)]
    right = known["label"].to_numpy() == data.gold[known["task"]].to_numpy()
    assert right.mean() > 1.5 / data.n_classes
    if data.features is not None:
        assert len(data.features) == len(data.gold) == len(data.split)
        assert set(data.split) == {"train", "valid", "test"}


def write_crowd(folder, labels, truth):
    target = folder / "real_noise" / "crowd" / "dog"
    target.mkdir(parents=True)
    (target / "label.csv").write_text("item,worker,label\n" + labels)
    (target / "truth.csv").write_text("item,truth\n" + truth)


def test_a_crowd_is_read_from_a_folder(tmp_path):
    """The folder may be real_noise or contain it; columns get the names that scoring expects."""
    write_crowd(tmp_path, "7,1,1\n7,2,0\n9,1,2\n", "7,1\n9,2\n")
    for folder in (tmp_path, tmp_path / "real_noise"):
        data = load_real_noise("dog", data_dir=folder)
        assert data.reports.to_numpy().tolist() == [[7, 1, 1], [7, 2, 0], [9, 1, 2]]
        assert data.gold.to_dict() == {7: 1, 9: 2}
        assert data.n_classes == 3
        assert data.features is None


def test_youtube_rules_that_abstain_report_nothing(tmp_path):
    """Tasks are numbered across the three parts; the features are the text."""
    folder = tmp_path / "youtube"
    folder.mkdir()
    for part, weak in (("train", [-1, 1]), ("valid", [0, -1]), ("test", [-1, -1])):
        row = {"label": 1, "data": {"text": part}, "weak_labels": weak}
        (folder / f"{part}.json").write_text(json.dumps({"0": row}))
    data = load_real_noise("youtube", data_dir=tmp_path)
    assert data.reports.to_numpy().tolist() == [[0, 1, 1], [1, 0, 0]]
    assert data.features["text"].tolist() == data.split.tolist() == ["train", "valid", "test"]


@pytest.mark.parametrize(
    ("labels", "truth", "message"),
    [
        ("1,1,x\n", "1,0\n", "does not contain the files of 'dog' as published"),
        ("1,1,0\n", "1,0\n1,1\n", "task 1 has more than one gold label"),
        ("1,1,-1\n", "1,0\n", "found a negative label"),
        ("1,1\n", "1,0\n", r"label\.csv, line 2: expected 3 fields"),
    ],
)
def test_inconsistent_files_are_refused(tmp_path, labels, truth, message):
    """The message names the data set, or the file and the line."""
    write_crowd(tmp_path, labels, truth)
    with pytest.raises(InvalidInputError, match=message):
        load_real_noise("dog", data_dir=tmp_path)


def test_pickled_features_are_refused(tmp_path):
    """An array of objects would have to be unpickled."""
    folder = tmp_path / "labelme"
    folder.mkdir()
    (folder / "answers.txt").write_text("0 -1\n")
    for part in ("train", "valid", "test"):
        (folder / f"LabelMe_Z_{part}.txt").write_text("0\n1\n")
        np.save(folder / f"LabelMe_VGG_avg_{part}.npy", np.array([{}, {}]), allow_pickle=True)
    with pytest.raises(InvalidInputError, match=r"files of 'labelme' as published.*allow_pickle"):
        load_real_noise("labelme", data_dir=tmp_path)
    for part in ("train", "valid", "test"):
        np.save(folder / f"LabelMe_VGG_avg_{part}.npy", np.zeros((1, 4)))
    with pytest.raises(InvalidInputError, match="3 rows of features for 6 gold labels"):
        load_real_noise("labelme", data_dir=tmp_path)


def test_the_folder_is_required(tmp_path, monkeypatch):
    """As an argument or an environment variable; the error for an unknown name contains the list."""
    monkeypatch.delenv("PEERLOSS_DATA", raising=False)
    with pytest.raises(InvalidInputError, match=r"`data_dir` must be the folder.*PEERLOSS_DATA"):
        load_real_noise("dog")
    with pytest.raises(InvalidInputError, match="must contain the folder real_noise/crowd/dog"):
        load_real_noise("dog", data_dir=tmp_path)
    with pytest.raises(InvalidInputError, match=r"`name` must be one of 'dog', 'labelme'.*'cats'"):
        load_real_noise("cats")
    assert list_real_noise() == sorted(COUNTS)
