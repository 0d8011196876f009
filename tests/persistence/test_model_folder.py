"""Save and load models: equal predictions, what can be saved, and what may be replaced."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace

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
from peerloss.estimators import TableEncoder
from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.persistence import model_folder, read_manifest
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
    "lightgbm, peer loss": PeerBoostingClassifier(
        alpha=1.0, n_estimators=8, early_stopping_rounds=3, random_state=0
    ),
    "xgboost, peer loss": PeerBoostingClassifier(
        alpha=1.0, backend="xgboost", n_estimators=8, early_stopping_rounds=3, random_state=0
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
    """Every classifier, bit for bit."""
    model = MODELS[name].fit(X, LABELS)
    assert_same(model, load_model(save_model(model, tmp_path / "model")))


@pytest.mark.parametrize("dtype", [int, bool, np.int8, float, object, "U3"])
def test_labels_keep_their_dtype(dtype, tmp_path):
    """Predictions have the dtype of the labels."""
    labels = LABELS.astype(object) if dtype is object else CODES.astype(dtype)
    model = MarginPerceptron(margin_grid=[1.0]).fit(X, labels)
    assert_same(model, load_model(save_model(model, tmp_path / "model")))


@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "plug-in",
        "plug-in, balanced",
        "plug-in, forest",
        "lightgbm",
        "lightgbm, peer loss",
        "xgboost",
        "xgboost, peer loss",
        "perceptron",
    ],
)
def test_three_classes(name, tmp_path):
    """Models of three classes are saved too; their arrays have other shapes."""
    model = MODELS[name].fit(X_THREE, CODES_THREE)
    assert_same(model, load_model(save_model(model, tmp_path / "model")), X_THREE)


def test_peer_classifier_keeps_its_report(peer_classifier, tmp_path):
    """The portfolio and its report are restored from files without pickle."""
    folder = save_model(peer_classifier, tmp_path / "model")
    loaded = load_model(folder)
    assert_same(peer_classifier, loaded)
    assert str(loaded.report_) == str(peer_classifier.report_)
    pd.testing.assert_frame_equal(loaded.report_.candidates, peer_classifier.report_.candidates)
    assert loaded.noise_ == peer_classifier.noise_
    nets = [m.trained for member in loaded.members_ for m in member.models if hasattr(m, "trained")]
    assert all(net is nets[0] for net in nets), "shared networks stay shared"
    kinds = {".json", ".safetensors", ".skops", ".txt"}  # .txt: the trees of LightGBM
    assert {file.suffix for file in folder.iterdir()} == kinds


def test_three_classes_of_peer_classifier(tmp_path):
    """Three classes have no two-class posterior."""
    model = PeerClassifier(cv=2, random_state=0).fit(X_THREE[:90], CODES_THREE[:90])
    assert_same(model, load_model(save_model(model, tmp_path / "model")), X_THREE)


@pytest.mark.parametrize("name", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("three", [False, True])
def test_a_loaded_booster_is_complete(name, three, tmp_path):
    """Importances, out-of-fold probabilities, and the probabilities of the booster itself are restored."""
    features, labels = (X_THREE, CODES_THREE) if three else (X, LABELS)
    model = MODELS[name].fit(features, labels)
    loaded = load_model(save_model(model, tmp_path / "model"))
    np.testing.assert_allclose(loaded.feature_importances_, model.feature_importances_, rtol=1e-4)
    np.testing.assert_array_equal(loaded.oof_proba_, model.oof_proba_)
    rows = (
        features
        if name == "lightgbm"
        else pytest.importorskip("xgboost").DMatrix(features, feature_types=["q"] * features.shape[1])
    )
    np.testing.assert_array_equal(loaded.booster_.predict(rows), model.booster_.predict(rows))
    contributions = {"pred_contrib" if name == "lightgbm" else "pred_contribs": True}
    np.testing.assert_allclose(
        loaded.booster_.predict(rows, **contributions),
        model.booster_.predict(rows, **contributions),
        atol=1e-5,
    )


def test_categories_of_boosting(tmp_path):
    """Categories of text and of numbers, also missing and unseen ones."""
    table = pd.DataFrame(X[:, :2], columns=["a", "b"])
    table["text"] = pd.Categorical(np.where(X[:, 2] > 0, "up", "down"))
    table["number"] = pd.Categorical(np.round(X[:, 3]).astype(int))
    model = PeerBoostingClassifier(n_estimators=8, min_child_samples=2).fit(table, LABELS)
    loaded = load_model(save_model(model, tmp_path / "model"))
    table["text"] = table["text"].astype(object).where(X[:, 4] > 0, "never seen")
    assert_same(model, loaded, table)
    assert loaded.feature_names_in_.tolist() == ["a", "b", "text", "number"]


def test_a_new_process_predicts_the_same(peer_classifier, tmp_path):
    """The predictions do not depend on the state of this process."""
    folder = save_model(peer_classifier, tmp_path / "model")
    np.save(tmp_path / "X.npy", X)
    code = (
        "import numpy as np; from peerloss import load_model\n"
        f"X = np.load({str(tmp_path / 'X.npy')!r}); model = load_model({str(folder)!r})\n"
        f"np.save({str(tmp_path / 'proba.npy')!r}, model.predict_proba(X))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "proba.npy"), peer_classifier.predict_proba(X))


def test_the_manifest_describes_the_model(saved):
    """It has the class, labels, versions and a checksum of each file, without loading the model."""
    manifest = read_manifest(saved)
    assert manifest["class"] == "PeerPlugInClassifier"
    assert manifest["steps"] == ["PeerPlugInClassifier"]
    assert manifest["classes"] == ["no", "yes"]
    assert manifest["versions"]["numpy"] == np.__version__
    for name, digest in manifest["files"].items():
        assert hashlib.sha256((saved / name).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize(
    ("model", "changes"),
    [
        (PeerPlugInClassifier(LogisticRegression()), {"random_state": None}),
        (RobustMLPClassifier(max_steps=5, random_state=0), {"warm_up_fraction": "warm_start_fraction"}),
    ],
    ids=["new parameter", "renamed parameter"],
)
def test_folders_of_earlier_versions_load(model, changes, tmp_path):
    """A parameter that an earlier version did not have, or saved under another name, is set."""
    folder = save_model(model.fit(X, LABELS), tmp_path / "model")
    make_older(folder, type(model).__name__, changes)
    assert_same(model, load_model(folder))


def test_table_encoders_of_earlier_versions_load(tmp_path):
    """They have no values for gaps; rows without gaps are predicted as before."""
    table = pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])
    model = make_pipeline(TableEncoder(output="table"), PeerPlugInClassifier(LogisticRegression()))
    folder = save_model(model.fit(table, LABELS), tmp_path / "model")
    make_older(folder, "TableEncoder", {"_medians": None})
    np.testing.assert_array_equal(load_model(folder).predict_proba(table), model.predict_proba(table))


def test_classifiers_of_earlier_versions_decide_as_before(peer_classifier, tmp_path):
    """Their files have no weight of the plain decision, so class-conditional noise alone decides."""
    folder = save_model(peer_classifier, tmp_path / "model")
    make_older(folder, "CleanMap", {"plain_share": None})
    assert peer_classifier.clean_map_.plain_share > 0.0
    before = replace(peer_classifier.clean_map_, plain_share=0.0)
    expected = before.transform(peer_classifier.predict_noisy_proba(X))
    np.testing.assert_allclose(load_model(folder).predict_proba(X), expected)


def make_older(folder, name, changes):
    """Remove fields of an object, or rename them, as an earlier version would have saved it."""
    state = json.loads((folder / "state.json").read_text())
    (fields,) = [o["fields"] for o in state["objects"] if o["type"] == name]
    for new, old in changes.items():
        value = fields.pop(new)
        if old is not None:
            fields[old] = value
    content = json.dumps(state).encode()
    (folder / "state.json").write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["state.json"] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


# -- what cannot be saved -------------------------------------------------------------------------------


def test_an_unfitted_model_is_rejected(tmp_path):
    """The error is raised before anything is written."""
    with pytest.raises(NotFittedError, match="not fitted yet"):
        save_model(MarginPerceptron(), tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_a_model_of_another_library_is_rejected(tmp_path):
    """The error recommends skops."""
    with pytest.raises(InvalidInputError, match="Save other models with skops"):
        save_model(LogisticRegression().fit(X, CODES), tmp_path / "model")


def test_an_attribute_that_cannot_be_saved_is_named(tmp_path):
    """The error names the attribute, not only its type."""
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
    """The error names the types; with them the model is saved, without them it is not loaded."""
    lightgbm = pytest.importorskip("lightgbm")
    model = PeerPlugInClassifier(lightgbm.LGBMClassifier(n_estimators=3, verbose=-1), cv=2).fit(X, LABELS)
    with pytest.raises(InvalidInputError, match=r"trusted=\['collections.OrderedDict', 'lightgbm.basic"):
        save_model(model, tmp_path / "model")
    trusted = ["collections.OrderedDict", "lightgbm.basic.Booster", "lightgbm.sklearn.LGBMClassifier"]
    folder = save_model(model, tmp_path / "model", trusted=trusted)
    assert_same(model, load_model(folder, trusted=trusted))
    with pytest.raises(ModelFolderError, match=r"not trusted: .*LGBMClassifier.*load_model\(folder, trusted"):
        load_model(folder)


def test_a_search_around_a_classifier_is_rejected(tmp_path):
    """Only its best estimator can be saved."""
    search = GridSearchCV(MarginPerceptron(margin_grid=[1.0]), {"n_epochs": [2]}, cv=2).fit(X, CODES)
    with pytest.raises(InvalidInputError, match="got GridSearchCV"):
        save_model(search, tmp_path / "model")
    save_model(search.best_estimator_, tmp_path / "model")


# -- replacing folders ---------------------------------------------------------------------------------


def test_a_model_replaces_only_a_model(tmp_path):
    """An older model is replaced; other folders, files, and models with additional files are not."""
    model = MarginPerceptron(margin_grid=[1.0]).fit(X, CODES)
    folder = save_model(model, tmp_path / "deep" / "model")
    again = MarginPerceptron(margin_grid=[2.0]).fit(X, LABELS)
    save_model(again, folder)
    assert load_model(folder).margin_ == 2.0
    assert [path.name for path in folder.parent.iterdir()] == ["model"], "no leftovers"
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(ModelFolderError, match=r"contains more than a model \(notes.txt\)"):
        save_model(model, folder)
    assert (folder / "notes.txt").exists()
    with pytest.raises(ModelFolderError, match="exists and is not a model folder"):
        save_model(model, tmp_path)
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(ModelFolderError, match="exists and is not a model folder"):
        save_model(model, file)
    empty = tmp_path / "empty"
    empty.mkdir()
    save_model(model, empty)


def test_a_crash_leaves_the_old_model(tmp_path, monkeypatch):
    """A crash while writing or while renaming changes nothing."""
    old = MarginPerceptron(margin_grid=[1.0]).fit(X, CODES)
    folder = save_model(old, tmp_path / "model")
    new = MarginPerceptron(margin_grid=[2.0]).fit(X, CODES)

    def fail(*_):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="disk full"):
            save_model(new, folder)
    rename = model_folder.Path.rename

    def fail_second(self, target):
        if self.name.endswith(".partial"):
            raise OSError("disk gone")
        return rename(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(
            "peerloss._files.exchange", lambda *_: False
        )  # as on systems without an atomic exchange
        patch.setattr(model_folder.Path, "rename", fail_second)
        with pytest.raises(OSError, match="disk gone"):
            save_model(new, folder)
    assert load_model(folder).margin_ == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
