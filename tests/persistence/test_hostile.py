"""Damaged, newer or crafted model folders are rejected before any object is built."""

import hashlib
import io
import json
import os
import re
import sys
import zipfile

import numpy as np
import pytest
import safetensors.numpy
import skops.io
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import FunctionTransformer
from sklearn.tree import DecisionTreeClassifier
from skops.io._protocol import PROTOCOL

from peerloss import (
    PeerPlugInClassifier,
    load_model,
    save_model,
)
from peerloss.exceptions import InvalidInputError, ModelFolderError
from peerloss.persistence import _skops_parts
from tests.persistence.saved_models import CODES, X, assert_same


def rewrite(folder, name, content):
    """Replace a file of a folder and update its hash in the manifest."""
    (folder / name).write_bytes(content)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"][name] = hashlib.sha256(content).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def copy_of(saved, tmp_path):
    """Copy a saved model."""
    target = tmp_path / "copy"
    target.mkdir()
    for file in saved.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
    return target


def test_folders_that_are_not_models(tmp_path):
    """The error names the reason: missing, a file, empty, of another format, damaged."""
    with pytest.raises(ModelFolderError, match="does not exist"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(ModelFolderError, match=r"it has no manifest.json"):
        load_model(tmp_path)
    manifest = tmp_path / "manifest.json"
    manifest.write_text("{}")
    with pytest.raises(ModelFolderError, match="is a file"):
        load_model(manifest)
    with pytest.raises(ModelFolderError, match="belongs to another format"):
        load_model(tmp_path)
    manifest.write_text("{")
    with pytest.raises(ModelFolderError, match=r"manifest.json is damaged"):
        load_model(tmp_path)
    manifest.write_text(json.dumps({"format": "peerloss model", "format_version": "1", "files": {}}))
    with pytest.raises(ModelFolderError, match="damaged"):
        load_model(tmp_path)
    manifest.write_text(json.dumps({"format": "peerloss model", "format_version": 1, "files": {}}))
    with pytest.raises(ModelFolderError, match=r"does not list state.json"):
        load_model(tmp_path)


def test_a_newer_format_needs_a_newer_version(saved, tmp_path):
    """The error gives the command that installs it."""
    folder = copy_of(saved, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text()) | {"format_version": 2}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFolderError, match=r"newer peerloss: format 2.*pip install --upgrade \."):
        load_model(folder)


@pytest.mark.parametrize("name", ["state.json", "arrays.safetensors"])
def test_a_changed_file_is_detected(saved, tmp_path, name):
    """A changed bit, a missing file and a file outside the folder are errors."""
    folder = copy_of(saved, tmp_path)
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(ModelFolderError, match=f"{name} was changed"):
        load_model(folder)
    (folder / name).unlink()
    with pytest.raises(ModelFolderError, match=f"{name} cannot be read"):
        load_model(folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"] = {"../model/state.json": "0"}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFolderError, match="is outside the folder"):
        load_model(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
@pytest.mark.parametrize("name", ["state.json", "manifest.json"])
def test_a_file_that_never_ends_is_not_read(saved, tmp_path, name):
    """Reading a pipe or a device instead of a file could block, or fill the memory."""
    folder = copy_of(saved, tmp_path)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    with pytest.raises(ModelFolderError, match="it is not a regular file"):
        load_model(folder)


def test_a_file_name_with_a_null_character_is_rejected(saved, tmp_path):
    """No file system allows it."""
    folder = copy_of(saved, tmp_path)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["files"]["a\0b"] = "0"
    (folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFolderError, match="cannot be read"):
        load_model(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s["objects"][0].update(type="os.system"), "names the type 'os.system'"),
        (lambda s: s["objects"][0]["fields"].pop("alpha"), "PeerPlugInClassifier lacks alpha"),
        (lambda s: s.update(root={"$": "exec"}), "contains 'exec'"),
        (lambda s: s.update(root=5), "contains a value of type int, not a classifier"),
        (lambda s: s.update(root={"$": "object", "number": 99}), "state is damaged"),
        (lambda s: s.update(root={"$": "part", "number": 0}), "state is damaged"),
        (lambda s: s["objects"][0]["fields"].update(cv={"$": "object", "number": 0}), "contains itself"),
        (lambda s: s.update(root={"$": "values", "items": [1], "dtype": "V8", "shape": [1]}), "dtype 'V8'"),
        (lambda s: s.clear(), "state cannot be read"),
    ],
)
def test_a_crafted_state_builds_nothing_else(saved, tmp_path, change, message):
    """Only listed types with all their parameters are built; everything else is a ModelFolderError."""
    folder = copy_of(saved, tmp_path)
    state = json.loads((folder / "state.json").read_text())
    change(state)
    rewrite(folder, "state.json", json.dumps(state).encode())
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


def tree_arrays(folder):
    """Return the arrays of a saved forest, and the names of those of the first tree."""
    state = json.loads((folder / "state.json").read_text())
    trees = [
        f for o in state["objects"] for f in o["fields"].values() if isinstance(f, dict) and f["$"] == "tree"
    ]
    places = {key: array["name"] for key, array in trees[0]["arrays"]}
    return safetensors.numpy.load_file(folder / "arrays.safetensors"), places


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("node_left_child", 10**6, "point outside it"),
        ("node_right_child", 0, "point outside it"),
        ("node_left_child", -7, "point outside it"),
        ("node_feature", 10**6, "unknown features"),
        ("node_feature", -5, "unknown features"),
        ("sizes", 3, "unknown features|other features"),
        ("n_classes", 0, "without classes"),
    ],
)
def test_a_crafted_tree_is_rejected(saved, tmp_path, name, value, message):
    """Compiled code would follow these indices outside the arrays."""
    folder = copy_of(saved, tmp_path)
    arrays, places = tree_arrays(folder)
    changed = arrays[places[name]].copy()
    changed[0] = value
    rewrite(folder, "arrays.safetensors", safetensors.numpy.save({**arrays, places[name]: changed}))
    with pytest.raises(ModelFolderError, match=message):
        load_model(folder)


def test_a_tree_that_is_deeper_than_declared_is_rejected(saved, tmp_path):
    """The memory for a decision path is reserved according to the declared depth."""
    folder = copy_of(saved, tmp_path)
    arrays, places = tree_arrays(folder)
    changed = arrays[places["sizes"]].copy()
    changed[2] = 1
    rewrite(folder, "arrays.safetensors", safetensors.numpy.save({**arrays, places["sizes"]: changed}))
    with pytest.raises(ModelFolderError, match="deeper than declared"):
        load_model(folder)


@pytest.mark.parametrize(
    "estimator",
    [KNeighborsClassifier(), KNeighborsClassifier(algorithm="brute"), MLPClassifier(max_iter=2)],
    ids=["tree of neighbours", "neighbours", "network"],
)
@pytest.mark.filterwarnings("ignore:Stochastic Optimizer")
def test_unlisted_estimators_need_trust(estimator, tmp_path):
    """The error names the types and the argument; with it the model is saved and loaded."""
    model = PeerPlugInClassifier(estimator, cv=2).fit(X, CODES)
    with pytest.raises(InvalidInputError, match=r"content is checked.*trusted=\['sklearn") as caught:
        save_model(model, tmp_path / "model")
    trusted = re.findall(r"'(sklearn[^']*)'", str(caught.value))
    folder = save_model(model, tmp_path / "model", trusted=trusted)
    with pytest.raises(ModelFolderError, match=r"not trusted: sklearn.*cannot be checked.*trusted=\[...\]"):
        load_model(folder)
    assert_same(model, load_model(folder, trusted=trusted))


def test_a_tree_in_the_parts_is_not_built(saved, tmp_path):
    """Compiled code copies the sizes of a tree when it is built, before they can be checked."""
    folder = copy_of(saved, tmp_path)
    rewrite(folder, "parts.skops", skops.io.dumps([DecisionTreeClassifier().fit(X, CODES)]))
    with pytest.raises(
        ModelFolderError, match=r"not trusted: .*DecisionTreeClassifier, sklearn.tree._tree.Tree"
    ):
        load_model(folder)


def test_a_listed_type_under_another_kind_of_entry_is_rejected(saved, tmp_path):
    """An entry that calls a class differs from an entry that only sets its attributes."""
    folder = copy_of(saved, tmp_path)
    empty = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}
    schema = {
        "__class__": "LogisticRegression",
        "__module__": "sklearn.linear_model._logistic",
        "__loader__": "ConstructorFromReduceNode",
        "content": empty,
        "protocol": PROTOCOL,
    }
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as file:
        file.writestr("schema.json", json.dumps(schema))
    rewrite(folder, "parts.skops", (tmp_path / "parts.zip").read_bytes())
    with pytest.raises(ModelFolderError, match=r"not trusted: .*LogisticRegression"):
        load_model(folder)


def test_parts_that_unpack_to_too_much_are_rejected(saved, tmp_path, monkeypatch):
    """A file of zeros, and a file that many entries name."""
    monkeypatch.setattr(_skops_parts, "_FREE_BYTES", 10**6)
    folder = copy_of(saved, tmp_path)
    rewrite(folder, "parts.skops", skops.io.dumps([np.zeros(10**6)], compression=zipfile.ZIP_DEFLATED))
    with pytest.raises(
        ModelFolderError, match=r"unpacks to more than .* 8\d+ bytes are more than a model needs"
    ):
        load_model(folder)
    once = json.loads(zipfile.ZipFile(io.BytesIO(skops.io.dumps(np.zeros(1000)))).read("schema.json"))
    del once["__id__"]
    many = {"__class__": "list", "__module__": "builtins", "__loader__": "ListNode", "content": [once] * 1000}
    with zipfile.ZipFile(tmp_path / "parts.zip", "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("schema.json", json.dumps(many | {"protocol": PROTOCOL}))
        file.writestr(once["file"], bytes(8128))
    rewrite(folder, "parts.skops", (tmp_path / "parts.zip").read_bytes())
    with pytest.raises(ModelFolderError, match=r"8128000 bytes are more than"):
        load_model(folder)


def test_a_random_generator_with_a_long_pool_is_rejected(saved, tmp_path):
    """Mixing a pool takes quadratic time; an identifier shared by two numbers does not hide the length."""
    folder = copy_of(saved, tmp_path)
    with zipfile.ZipFile(io.BytesIO(skops.io.dumps([10**6, np.random.default_rng(0)]))) as archive:
        schema = json.loads(archive.read("schema.json"))
        files = {name: archive.read(name) for name in archive.namelist() if name != "schema.json"}
    number, generator = schema["content"]
    size = generator["content"]["seed_seq"]["content"]["pool_size"]
    for change in ({"content": "1000000"}, {"content": "4", "__id__": number["__id__"]}):
        size.update(change)
        with zipfile.ZipFile(tmp_path / "parts.zip", "w") as file:
            for name, content in (files | {"schema.json": json.dumps(schema)}).items():
                file.writestr(name, content)
        rewrite(folder, "parts.skops", (tmp_path / "parts.zip").read_bytes())
        with pytest.raises(ModelFolderError, match="a random generator with a pool of another length"):
            load_model(folder)


def test_a_text_array_of_huge_width_is_rejected(saved, tmp_path):
    """A few bytes cannot declare gigabytes of text."""
    folder = copy_of(saved, tmp_path)
    wide = {"$": "values", "items": ["a", "b"], "dtype": "<U500000000", "shape": [2]}
    rewrite(folder, "state.json", json.dumps({"root": wide, "objects": []}).encode())
    with pytest.raises(ModelFolderError, match="text array that would need 4000000000 bytes"):
        load_model(folder)


def test_a_crafted_part_cannot_name_another_type(saved, tmp_path):
    """A skops file with a function of the standard library is rejected before anything is built."""
    folder = copy_of(saved, tmp_path)
    part = [FunctionTransformer(os.system)]
    rewrite(folder, "parts.skops", skops.io.dumps(part))
    with pytest.raises(ModelFolderError, match=r"not trusted: .*system"):
        load_model(folder)
    rewrite(folder, "parts.skops", b"PK nonsense")
    with pytest.raises(ModelFolderError, match="parts cannot be read"):
        load_model(folder)


@pytest.mark.parametrize("loader", ["ObjectNode", "LossNode", "TypeNode", "FunctionNode", "MethodNode"])
def test_a_crafted_part_imports_nothing(saved, tmp_path, loader):
    """A module that the file names is not imported, whatever the kind of the entry."""
    folder = copy_of(saved, tmp_path)
    empty = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "content": []}
    named = {"__class__": "anything", "__module__": "this", "__loader__": loader}
    content = (
        {"func": "anything", "obj": named | {"__loader__": "TypeNode"}} if loader == "MethodNode" else empty
    )
    schema = named | {"content": content, "__reduce__": {"args": empty}, "protocol": PROTOCOL}
    with zipfile.ZipFile(tmp_path / "parts.zip", "w") as file:
        file.writestr("schema.json", json.dumps(schema))
    rewrite(folder, "parts.skops", (tmp_path / "parts.zip").read_bytes())
    with pytest.raises(ModelFolderError, match=r"not trusted: .*this\.anything"):
        load_model(folder)
    assert "this" not in sys.modules
