"""Model folders: the same predictions in a fresh process, and nothing from a folder that is not one."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.ensemble import (
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from peerloss import (
    CostSensitiveSVC,
    MarginPerceptron,
    NoiseModel,
    PeerBoostingClassifier,
    PeerClassifier,
    PeerPlugInClassifier,
    RobustMLPClassifier,
    load_model,
    save_model,
)
from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.persistence import _model_folder, read_manifest
from tests.persistence.saved_models import CODES, LABELS, X, assert_same

X_THREE, CODES_THREE = make_classification(150, 5, n_informative=3, n_classes=3, random_state=0)

MODELS = {
    "mlp": RobustMLPClassifier(max_steps=20, n_members=3, early_stopping=True, random_state=0),
    "mlp, α searched": RobustMLPClassifier(alpha="auto", max_steps=20, random_state=0),
    "mlp, noise given": RobustMLPClassifier("forward", noise=NoiseModel.binary(0.1, 0.2), max_steps=20),
    "mlp, generator": RobustMLPClassifier(max_steps=20, random_state=np.random.default_rng(0)),
    "plug-in": PeerPlugInClassifier(LogisticRegression(), alpha="auto"),
    "plug-in, balanced": PeerPlugInClassifier(LogisticRegression(), metric="balanced_accuracy"),
    "plug-in, forest": PeerPlugInClassifier(RandomForestClassifier(5, random_state=0)),
    "plug-in, extra trees": PeerPlugInClassifier(
        ExtraTreesClassifier(5, random_state=0), cv=StratifiedKFold(3)
    ),
    "plug-in, boosting": PeerPlugInClassifier(GradientBoostingClassifier(n_estimators=5)),
    "plug-in, exponential": PeerPlugInClassifier(
        GradientBoostingClassifier(n_estimators=5, loss="exponential")
    ),
    "plug-in, histograms": PeerPlugInClassifier(HistGradientBoostingClassifier(max_iter=5)),
    "plug-in, pipeline": PeerPlugInClassifier(make_pipeline(StandardScaler(), LogisticRegression())),
    "lightgbm": PeerBoostingClassifier(n_estimators=8, early_stopping_rounds=3, random_state=0),
    "xgboost": PeerBoostingClassifier(
        backend="xgboost", n_estimators=8, early_stopping_rounds=3, random_state=0
    ),
    "svm": CostSensitiveSVC(cv=2, class_weight_grid=(0.5, 1.0)),
    "perceptron": MarginPerceptron(margin_grid=[0.0, 1.0]),
    "pipeline": make_pipeline(StandardScaler(), MarginPerceptron(margin_grid=[0.0, 1.0])),
}


@pytest.fixture(scope="module")
def peer_classifier():
    return PeerClassifier(cv=2, random_state=0).fit(X, LABELS)


@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_predicts_the_same(name, tmp_path):
    """Every classifier, to the last bit."""
    model = MODELS[name].fit(X, LABELS)
    assert_same(model, load_model(save_model(model, tmp_path / "model")))


@pytest.mark.parametrize("dtype", [int, bool, np.int8, float, object, "U3"])
def test_labels_keep_their_dtype(dtype, tmp_path):
    """Whatever the labels are, predictions are of the same kind."""
    labels = LABELS.astype(object) if dtype is object else CODES.astype(dtype)
    model = MarginPerceptron(margin_grid=[1.0]).fit(X, labels)
    assert_same(model, load_model(save_model(model, tmp_path / "model")))


@pytest.mark.parametrize(
    "name",
    ["mlp", "plug-in", "plug-in, balanced", "plug-in, forest", "lightgbm", "xgboost", "perceptron"],
)
def test_three_classes(name, tmp_path):
    """More than two classes change shapes everywhere."""
    model = MODELS[name].fit(X_THREE, CODES_THREE)
    assert_same(model, load_model(save_model(model, tmp_path / "model")), X_THREE)


def test_peer_classifier_keeps_its_report(peer_classifier, tmp_path):
    """The portfolio and what it says of itself come back, in a format without one byte of pickle."""
    folder = save_model(peer_classifier, tmp_path / "model")
    loaded = load_model(folder)
    assert_same(peer_classifier, loaded)
    assert str(loaded.report_) == str(peer_classifier.report_)
    pd.testing.assert_frame_equal(loaded.report_.candidates, peer_classifier.report_.candidates)
    assert loaded.noise_ == peer_classifier.noise_
    nets = [m.trained for member in loaded.members_ for m in member.models if hasattr(m, "trained")]
    assert all(net is nets[0] for net in nets), "what was shared stays shared"
    kinds = {".json", ".safetensors", ".skops"}
    assert {file.suffix for file in folder.iterdir()} == kinds


def test_three_classes_of_peer_classifier(tmp_path):
    """Without the two-class posterior the state has other parts."""
    model = PeerClassifier(cv=2, random_state=0).fit(X_THREE[:90], CODES_THREE[:90])
    assert_same(model, load_model(save_model(model, tmp_path / "model")), X_THREE)


def test_categories_of_boosting(tmp_path):
    """Categories of text and of numbers, missing and unseen ones too."""
    table = pd.DataFrame(X[:, :2], columns=["a", "b"])
    table["text"] = pd.Categorical(np.where(X[:, 2] > 0, "up", "down"))
    table["number"] = pd.Categorical(np.round(X[:, 3]).astype(int))
    model = PeerBoostingClassifier(n_estimators=8, min_child_samples=2).fit(table, LABELS)
    loaded = load_model(save_model(model, tmp_path / "model"))
    table["text"] = table["text"].astype(object).where(X[:, 4] > 0, "never seen")
    assert_same(model, loaded, table)
    assert loaded.feature_names_in_.tolist() == ["a", "b", "text", "number"]


def test_a_fresh_process_gives_the_same(peer_classifier, tmp_path):
    """Nothing depends on what this process holds."""
    folder = save_model(peer_classifier, tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    code = (
        "import numpy as np; from peerloss import load_model\n"
        f"X = np.load({str(tmp_path / 'X.npy')!r}); model = load_model({str(folder)!r})\n"
        f"np.save({str(tmp_path / 'proba.npy')!r}, model.predict_proba(X))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "proba.npy"), peer_classifier.predict_proba(X))


def test_the_manifest_says_what_is_inside(saved):
    """Class, labels, versions and a checksum of each file, without loading."""
    manifest = read_manifest(saved)
    assert manifest["class"] == "PeerPlugInClassifier"
    assert manifest["steps"] == ["PeerPlugInClassifier"]
    assert manifest["classes"] == ["no", "yes"]
    assert manifest["versions"]["numpy"] == np.__version__
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((saved / name).read_bytes()).hexdigest() == digest


# -- what is not saved ----------------------------------------------------------------------------------


def test_an_unfitted_model_is_refused(tmp_path):
    """And nothing is written."""
    with pytest.raises(NotFittedError, match="not fitted yet"):
        save_model(MarginPerceptron(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_another_library_s_model_is_refused(tmp_path):
    """With where to turn."""
    with pytest.raises(InvalidInputError, match="Save other models with skops"):
        save_model(LogisticRegression().fit(X, CODES), tmp_path / "model")


def test_what_cannot_be_saved_is_named(tmp_path):
    """The attribute, not only its type."""
    model = MarginPerceptron(margin_grid=[1.0]).fit(X, CODES)
    model.cv = (pair for pair in ())
    with pytest.raises(
        InvalidInputError, match=r"`MarginPerceptron\.cv` \(generator\) cannot be saved without pickle"
    ):
        save_model(model, tmp_path / "model")
    model.cv = np.zeros(2, dtype=complex)
    with pytest.raises(InvalidInputError, match=r"`MarginPerceptron\.cv` is an array of dtype complex128"):
        save_model(model, tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_an_estimator_of_another_library_needs_trust(tmp_path):
    """The error names the types and how to pass them; with them it is saved, without them not loaded."""
    lightgbm = pytest.importorskip("lightgbm")
    model = PeerPlugInClassifier(lightgbm.LGBMClassifier(n_estimators=3, verbose=-1), cv=2).fit(X, LABELS)
    with pytest.raises(InvalidInputError, match=r"trusted=\['collections.OrderedDict', 'lightgbm.basic"):
        save_model(model, tmp_path / "model")
    trusted = ["collections.OrderedDict", "lightgbm.basic.Booster", "lightgbm.sklearn.LGBMClassifier"]
    folder = save_model(model, tmp_path / "model", trusted=trusted)
    assert_same(model, load_model(folder, trusted=trusted))
    with pytest.raises(ModelFolderError, match=r"not trusted: .*LGBMClassifier.*load_model\(folder, trusted"):
        load_model(folder)


def test_a_search_around_our_classifier_is_refused(tmp_path):
    """Its best estimator can be saved."""
    search = GridSearchCV(MarginPerceptron(margin_grid=[1.0]), {"n_epochs": [2]}, cv=2).fit(X, CODES)
    with pytest.raises(InvalidInputError, match="got GridSearchCV"):
        save_model(search, tmp_path / "model")
    save_model(search.best_estimator_, tmp_path / "model")


# -- where it is written --------------------------------------------------------------------------------


def test_a_model_replaces_a_model_only(tmp_path):
    """An older model gives way; other folders, other files and models with files beside them stay."""
    model = MarginPerceptron(margin_grid=[1.0]).fit(X, CODES)
    folder = save_model(model, tmp_path / "deep" / "model")
    again = MarginPerceptron(margin_grid=[2.0]).fit(X, LABELS)
    save_model(again, folder)
    assert load_model(folder).margin_ == 2.0
    assert [path.name for path in folder.parent.iterdir()] == ["model"], "no leftovers"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ModelFolderError, match=r"holds more than a model \(notes.txt\)"):
        save_model(model, folder)
    assert (folder / "notes.txt").exists()
    with pytest.raises(ModelFolderError, match="exists and is no model folder"):
        save_model(model, tmp_path)
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ModelFolderError, match="exists and is no model folder"):
        save_model(model, file)
    empty = tmp_path / "empty"
    empty.mkdir()
    save_model(model, empty)


def test_a_crash_leaves_the_old_model(tmp_path, monkeypatch):
    """Whether it comes while writing or while renaming."""
    old = MarginPerceptron(margin_grid=[1.0]).fit(X, CODES)
    folder = save_model(old, tmp_path / "model")
    new = MarginPerceptron(margin_grid=[2.0]).fit(X, CODES)

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            save_model(new, folder)
    rename = _model_folder.Path.rename

    def fail_second(self, target):
        if self.name.endswith(".partial"):
            raise OSError("disk gone")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr("peerloss._files.exchange", lambda *_: False)  # as on systems that rename twice
        patch.setattr(_model_folder.Path, "rename", fail_second)
        with pytest.raises(OSError, match="disk gone"):
            save_model(new, folder)
    assert load_model(folder).margin_ == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
