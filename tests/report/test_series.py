"""The data of the plots, computed by hand."""

import numpy as np
import pytest

from peerloss.report import build_report
from tests.report.made_up import curve, record, store


def test_everything_has_its_series(report):
    """Curves of each method, slopes of both parts, boundaries with plain training first."""
    table, curves, boundary, invariance = report.sections
    assert table.curves == table.boundaries == table.invariance == ()
    (panel,) = curves.curves
    assert [c.method for c in panel.curves] == ["peer", "nn"]
    np.testing.assert_allclose(panel.curves[0].mean, [0.5, 0.65])
    np.testing.assert_allclose(panel.curves[0].spread, [0.0, 0.1 / np.sqrt(2)])
    assert panel.curves[0].step.tolist() == [10, 20]
    assert [b.method for b in boundary.boundaries] == ["nn", "peer"]
    (panel,) = invariance.invariance
    assert panel.expected == pytest.approx(0.6)
    assert [(part.name, len(part.slopes)) for part in panel.parts] == [("train", 2), ("validation", 2)]
    assert [part.slope for part in panel.parts] == pytest.approx([0.7, 0.6])
    assert panel.parts[0].error == pytest.approx(0.0, abs=1e-12)


def test_slopes_go_through_the_origin(tmp_path):
    """Least squares without a constant: Σxy/Σx²."""
    losses = {"train_clean_peer_loss": [-1.0, -3.0], "train_noisy_peer_loss": [-1.0, -1.0]}
    (section,) = build_report(store(tmp_path, [record(curve=curve(**losses))])).sections
    (part,) = section.invariance[0].parts
    assert part.slope == pytest.approx(4 / 10)
    assert part.error is None


def test_curves_that_break_off_do_not_bend_the_mean(tmp_path):
    """A training that stopped early is left out of the mean of those that went on."""
    paths = [curve(test_accuracy=[0.5, 0.6]), curve(test_accuracy=[0.1]), curve(test_accuracy=[0.7, 0.8])]
    records = [record(seed=seed, curve=path) for seed, path in enumerate(paths)]
    (section,) = build_report(store(tmp_path, records)).sections
    (found,) = section.curves[0].curves
    assert found.seeds == 2
    np.testing.assert_allclose(found.mean, [0.6, 0.7])


def test_an_untrained_network_has_no_slope(tmp_path):
    """Peer loss 0 throughout: no line goes through one point."""
    losses = {"train_clean_peer_loss": [0.0, 0.0], "train_noisy_peer_loss": [0.0, 0.0]}
    (section,) = build_report(store(tmp_path, [record(curve=curve(**losses))])).sections
    assert section.invariance[0].parts == ()
