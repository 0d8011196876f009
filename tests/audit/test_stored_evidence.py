"""The numbers behind an audit are read as they were written, or refused."""

import hashlib
import json

import numpy as np
import pandas as pd
import pytest

from peerloss import NoiseModel, find_label_issues, flip_labels
from peerloss.audit._stored_evidence import read_evidence
from peerloss.audit.folder import read_folder, write_folder
from peerloss.exceptions import InvalidInputError


def written(folder, audit, n):
    """Write the folder of an audit."""
    data = folder / "data.csv"
    data.write_text("x\n" + "1\n" * n)
    write_folder(folder / "audit", audit, data, rows=np.arange(n), labels=[], title="")
    return read_folder(folder / "audit")


def of_one_annotator(n=60, **options):
    rng = np.random.default_rng(0)
    clean = np.arange(n) % 3
    proba = NoiseModel.uniform(3, 0.2).transition[clean] + 0.1 * rng.random((n, 3))
    y = pd.Series(np.array(["a", "b", "c"])[flip_labels(clean, NoiseModel.uniform(3, 0.2), random_state=0)])
    return find_label_issues(labels=y, pred_proba=proba / proba.sum(axis=1, keepdims=True), **options)


def of_several_annotators(n=60, k=12):
    """Labels 0 to 11: as text, 10 comes before 2."""
    rng = np.random.default_rng(0)
    clean = np.arange(n) % k
    noise = NoiseModel.uniform(k, 0.3)
    wide = pd.DataFrame({i: flip_labels(clean, noise, random_state=i) for i in range(4)})
    wide = wide.mask(rng.random(wide.shape) < 0.3)
    wide[0] = wide[0].fillna(0)
    proba = noise.transition[clean]
    return find_label_issues(labels=wide, pred_proba=proba)


@pytest.mark.parametrize("gold", [None, {0: "a", 1: "c"}])
@pytest.mark.parametrize("target", ["auto", "f1", "precision"])
def test_one_annotator(tmp_path, gold, target):
    """The audit that is computed again has the same ranking."""
    audit = of_one_annotator(gold=gold, target=target)
    evidence = read_evidence(written(tmp_path, audit, 60))
    assert evidence.posterior().p_error == pytest.approx(audit.table["p_error"].to_numpy())
    assert evidence.rule == audit.evidence.rule
    assert (evidence.gold is None) == (gold is None)


def test_several_annotators(tmp_path):
    """Reports are stored, too; labels are matched by their code, whatever order their text has."""
    audit = of_several_annotators()
    evidence = read_evidence(written(tmp_path, audit, 60))
    assert evidence.classes.tolist() == [str(label) for label in audit.classes]
    assert evidence.codes.tolist() == audit.evidence.codes.tolist()
    assert evidence.posterior().p_error == pytest.approx(audit.table["p_error"].to_numpy(), abs=1e-6)


def refused(folder, message):
    with pytest.raises(InvalidInputError, match=message):
        read_evidence(read_folder(folder))


def test_changed_and_missing_files_are_refused(tmp_path):
    """A file that differs from its SHA-256, or that is missing, makes the audit damaged."""
    written(tmp_path, of_one_annotator(), 60)
    path = tmp_path / "audit" / "probabilities.npy"
    content = path.read_bytes()
    path.write_bytes(content[:-8])
    refused(tmp_path / "audit", r"is a damaged audit: probabilities\.npy was changed since the audit")
    path.unlink()
    refused(tmp_path / "audit", "is a damaged audit: .*No such file")


@pytest.mark.parametrize("missing", [["evidence"], ["evidence", "flags"]])
def test_folders_of_earlier_versions_are_refused(tmp_path, missing):
    """They have no probabilities, or not the rule by which rows were flagged."""
    written(tmp_path, of_one_annotator(), 60)
    manifest = tmp_path / "audit" / "audit.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    *parents, last = missing
    part = content
    for name in parents:
        part = part[name]
    del part[last]
    manifest.write_text(json.dumps(content), encoding="utf-8")
    refused(tmp_path / "audit", "does not contain everything .* an earlier version wrote it")


def replaced(folder, name, array, **options):
    """Write another array with its digest to a folder."""
    np.save(folder / name, array, **options)
    manifest = folder / "audit.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    content["evidence"]["sha256"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    manifest.write_text(json.dumps(content), encoding="utf-8")


HOSTILE = {
    "objects": ("probabilities.npy", np.array([{}] * 60, dtype=object), "is a damaged audit"),
    "shape": ("probabilities.npy", np.full((60, 2), 0.5), "one column for each class"),
    "values": ("probabilities.npy", np.full((60, 3), 0.5), "must hold probabilities that sum to 1"),
    "gold": ("gold.npy", np.full(60, 7), r"gold\.npy must hold one code per row"),
    "rows": ("reports.npy", np.array([[60, 0, 0]]), r"reports\.npy must hold row, worker and label"),
    "labels": ("reports.npy", np.tile([0, 0, 9], (60, 1)), r"reports\.npy must hold row, worker and label"),
    "floats": ("reports.npy", np.zeros((60, 3)), r"reports\.npy must hold row, worker and label"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_arrays_are_refused(tmp_path, case):
    """Pickled objects are never loaded, and values must be probabilities or codes."""
    written(tmp_path, of_one_annotator(), 60)
    name, array, message = HOSTILE[case]
    replaced(tmp_path / "audit", name, array, allow_pickle=True)
    refused(tmp_path / "audit", message)


def test_evidence_without_numbers_is_refused(tmp_path):
    """Neither probabilities nor reports: nothing can be computed."""
    written(tmp_path, of_one_annotator(), 60)
    replaced(tmp_path / "audit", "gold.npy", np.full(60, -1))
    manifest = tmp_path / "audit" / "audit.json"
    content = json.loads(manifest.read_text(encoding="utf-8"))
    del content["evidence"]["sha256"]["probabilities.npy"]
    manifest.write_text(json.dumps(content), encoding="utf-8")
    refused(tmp_path / "audit", "it has neither probabilities nor reports")
