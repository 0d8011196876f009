"""Paired tests, against scipy used by hand."""

import numpy as np
import pytest
from scipy.stats import wilcoxon

from peerloss._holm import holm
from peerloss.report import build_report
from peerloss.report._compare import signed_rank
from tests.report.made_up import row, store

PEER = [[0.81, 0.85, 0.83], [0.72, 0.71, 0.78], [0.90, 0.94, 0.88]]
NN = [[0.80, 0.79, 0.80], [0.74, 0.74, 0.74], [0.85, 0.85, 0.86]]


def compared(folder, **extra):
    records = []
    for data_set, peer, nn in zip(("heart", "thyroid", "breast"), PEER, NN, strict=True):
        records += row({"peer": peer, "nn": nn, **extra}, data_set=data_set)
    return build_report(store(folder, records)).sections[0].tests


def test_one_test_by_hand(tmp_path):
    """Over nine pairs and over three data sets; one test needs no correction."""
    (test,) = compared(tmp_path)
    differences = np.subtract(PEER, NN)
    assert (test.reference, test.baseline, test.prior) == ("peer", "nn", "original")
    assert (test.rows, test.better, test.worse, test.pairs, test.data_sets) == (3, 2, 1, 9, 3)
    assert test.difference == pytest.approx(differences.mean())
    assert test.p_pairs == wilcoxon(differences.ravel().round(12)).pvalue
    assert test.p_data_sets == wilcoxon(differences.mean(axis=1)).pvalue == 0.5


def test_every_baseline_and_a_second_reference_once(tmp_path):
    """Peer against all; PeerClassifier against all but peer; corrected for the number of tests."""
    alone = compared(tmp_path / "a")[0]
    tests = compared(tmp_path / "b", dmi=[0.5, 0.5, 0.5], **{"peer-classifier": [0.9, 0.9, 0.9]})
    assert [(test.reference, test.baseline) for test in tests] == [
        ("peer", "dmi"),
        ("peer", "nn"),
        ("peer", "peer-classifier"),
        ("peer-classifier", "dmi"),
        ("peer-classifier", "nn"),
    ]
    assert tests[1].difference == alone.difference
    raw = [
        signed_rank(np.subtract(PEER, 0.5).ravel()),
        alone.p_pairs,
        signed_rank(np.subtract(PEER, 0.9).ravel()),
    ]
    raw += [signed_rank([0.4] * 9), signed_rank(np.subtract(0.9, NN).ravel())]
    assert [test.p_pairs for test in tests] == holm(raw).tolist() != raw


def test_incomplete_rows_are_left_out(tmp_path):
    """Pairs need both."""
    records = row({"peer": [0.8, 0.9], "nn": [0.7, 0.7]}) + row({"peer": [0.1, 0.1]}, data_set="thyroid")
    (test,) = build_report(store(tmp_path, records)).sections[0].tests
    assert (test.rows, test.pairs) == (1, 2)


def test_without_differences_there_is_no_evidence():
    """Zeros are ignored, also after rounding."""
    assert signed_rank([0.0, 0.1 + 0.2 - 0.3]) == 1.0
    assert signed_rank([0.1, 0.2, 0.0]) == signed_rank([0.1, 0.2]) == 0.5
