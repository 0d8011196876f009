"""Classes that are hard to tell apart: overlap, not noise."""

import re

import numpy as np
import pytest
from scipy.special import softmax

from peerloss import NoiseModel, find_label_issues, flip_labels
from peerloss.audit._confusable_classes import confusable_classes
from peerloss.posterior.label_posterior import overlap_of


def test_overlap_by_enumeration():
    """[i, j] sums P(class i) over the rows for which j is the most probable class."""
    clean = np.array([[0.7, 0.2, 0.1], [0.4, 0.6, 0.0], [0.1, 0.8, 0.1]])
    expected = [[0.7, 0.5, 0.0], [0.2, 1.4, 0.0], [0.1, 0.1, 0.0]]
    assert overlap_of(clean, 3) == pytest.approx(np.array(expected))
    assert overlap_of(clean, 6) == pytest.approx(2 * np.array(expected))


def test_pairs_are_ordered_by_the_number_of_rows():
    """Rows of either class that look like the other are added; pairs without any are left out."""
    overlap = np.array([[90.0, 6.0, 0.1], [4.0, 80.0, 20.0], [0.1, 10.0, 40.0]])
    pairs = confusable_classes(overlap, np.array(["a", "b", "c"]))
    assert pairs[["first", "second", "rows"]].to_numpy().tolist() == [["b", "c", 30.0], ["a", "b", 10.0]]
    assert pairs["share"].tolist() == pytest.approx([30 / (104 + 50.1), 10 / (96.1 + 104)])
    assert confusable_classes(None, np.array(["a", "b"])).empty


def test_noise_between_two_classes_is_not_overlap(tmp_path):
    """Classes 0 and 1 overlap; labels of 2 and 3 are exchanged: only the former are confusable."""
    rng = np.random.default_rng(0)
    kind = np.arange(2000) % 4
    logits = 0.3 * rng.normal(size=(2000, 4)) + 6.0 * np.eye(4)[kind]
    alike = kind < 2
    logits[alike, :2] = 6.0 + 1.5 * rng.normal(size=(1000, 2))
    clean_proba = softmax(logits, axis=1)
    clean = np.array([rng.choice(4, p=p) for p in clean_proba])
    T = NoiseModel([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0.7, 0.3], [0, 0, 0.3, 0.7]])
    noisy, proba = flip_labels(clean, T, random_state=0), clean_proba @ T.transition
    audit = find_label_issues(labels=np.array(list("abcd"))[noisy], pred_proba=proba)
    rows = audit.confusable.set_index(["first", "second"])["rows"]
    assert rows.index[0] == ("a", "b")
    exact = overlap_of(clean_proba, 2000)
    assert rows["a", "b"] == pytest.approx(exact[0, 1] + exact[1, 0], rel=0.15)
    as_labelled = overlap_of(proba, 2000)
    assert rows["c", "d"] < (as_labelled[2, 3] + as_labelled[3, 2]) / 3  # some noise of T remains
    assert audit.summary()["confusable"][0]["first"] == "a"
    assert "hardest to tell apart are a and b" in str(audit)
    look_alike = r"about \d+ rows of these two classes \(\d+%\) look more like the other class\."
    assert re.search(look_alike, str(audit))
    audit.to_html(tmp_path / "audit.html")
    assert "Classes that are hard to tell apart" in (tmp_path / "audit.html").read_text(encoding="utf-8")
