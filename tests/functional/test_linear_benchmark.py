"""The benchmark of linear_peer_loss runs on the CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.is_dir(), reason="the source distribution has no benchmarks")


def test_the_smoke_run_writes_a_table(tmp_path):
    """One row for each loss, with ratios to stored logits and to fused cross entropy."""
    path = tmp_path / "table.md"
    command = [sys.executable, str(BENCHMARKS / "bench_linear.py"), "--smoke", "--write", str(path)]
    subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, capture_output=True)
    rows = [line.split("|") for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    names = [row[3].strip() for row in rows[2:]]
    assert names[0] == "F.cross_entropy"
    assert {"fused cross entropy", "linear_peer_loss", "LinearPeerLoss"} < set(names)
    assert all(len(row) == len(rows[0]) for row in rows)


def test_the_reference_for_speed_is_cross_entropy(monkeypatch):
    """Its loss and gradients are those of torch, in one chunk and in several."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from fused_cross_entropy import fused_cross_entropy  # noqa: PLC0415 (not a package)

    generator = torch.Generator().manual_seed(0)
    h, w = (torch.randn(shape, generator=generator, requires_grad=True) for shape in ((10, 3), (6, 3)))
    y = torch.randint(6, (10,), generator=generator)
    expected = torch.nn.functional.cross_entropy(h @ w.T, y)
    for chunk in (10, 4):
        loss = fused_cross_entropy(h, w, y, chunk=chunk)
        torch.testing.assert_close(loss, expected)
        for one, other in zip(
            torch.autograd.grad(loss, (h, w)),
            torch.autograd.grad(expected, (h, w), retain_graph=True),
            strict=True,
        ):
            torch.testing.assert_close(one, other)


def test_calls_that_cannot_be_captured_have_empty_cells(monkeypatch):
    """A call that fails while a CUDA graph is recorded is left out, and the others are measured."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import bench_linear  # noqa: PLC0415 (not a package)

    def capture(function):
        if function is None:
            raise RuntimeError("operation not permitted when stream is capturing")
        return function

    streams = []
    monkeypatch.setattr(bench_linear, "capture", capture)
    monkeypatch.setattr(bench_linear, "event_times", lambda replays, _: dict.fromkeys(replays, 2e-3))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: "stream")
    monkeypatch.setattr(torch.cuda, "set_stream", streams.append)
    calls = {bench_linear.STORED: print, bench_linear.FUSED[0]: None, bench_linear.FUSED[1]: print}
    times = bench_linear.graph_times(calls, 1)
    fused = bench_linear.faster_fused(times)
    rows = [bench_linear.cells(times, name, fused, 1e-3, "{:.2f} ms") for name in calls]
    assert rows == [["2.00 ms", "1.000", "1.000"], ["", "", ""], ["2.00 ms", "1.000", "1.000"]]
    assert streams == ["stream"]
    assert bench_linear.faster_fused({}) == ""
