"""The device of all computations, and the limit on threads."""

import os

import pytest
import torch
from threadpoolctl import threadpool_info

from peerloss import PeerLoss, _device
from peerloss._device import GPU_WIDTH, available_memory, one_thread, resolve_device
from peerloss.exceptions import InvalidInputError
from peerloss.training import train_deep
from tests.training.deep.toy import RECIPE, images, small_net

GPU_OR_CPU = "cuda" if torch.cuda.is_available() else "cpu"


def test_a_usable_device_is_returned():
    """It is given by name, or as a torch device."""
    assert resolve_device("cpu") == resolve_device(torch.device("cpu")) == torch.device("cpu")


def test_the_automatic_device_is_a_gpu_for_large_work():
    """``"auto"`` and ``None`` choose a GPU if there is one, except for narrow networks."""
    assert resolve_device().type == resolve_device(None).type == GPU_OR_CPU
    assert resolve_device("auto", width=GPU_WIDTH).type == GPU_OR_CPU
    assert resolve_device("auto", width=GPU_WIDTH - 1).type == "cpu"
    assert resolve_device("auto", width=100, gpu_width=100).type == GPU_OR_CPU
    assert resolve_device("auto", width=99, gpu_width=100).type == "cpu"


def test_a_gpu_that_does_not_work_is_not_chosen(monkeypatch):
    """``"auto"`` tries the GPU that torch finds; if that fails, it chooses the CPU."""
    zeros = torch.zeros

    def fail_on_gpu(*args, device, **options):
        if torch.device(device).type == "cuda":
            raise RuntimeError("CUDA error: no kernel image is available for execution on the device")
        return zeros(*args, device=device, **options)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", fail_on_gpu)
    assert resolve_device("auto") == resolve_device(None) == torch.device("cpu")
    with pytest.raises(InvalidInputError, match=r"'cuda' cannot be used here \(CUDA error: no kernel image"):
        resolve_device("cuda")
    monkeypatch.setattr(torch, "zeros", lambda *args, **_: zeros(*args))
    assert resolve_device("auto") == torch.device("cuda")


@pytest.mark.parametrize("device", ["gpu", "meta", "cuda:99", 3.5])
def test_an_unusable_device_is_refused(device):
    """Unknown names, a device without memory, a missing GPU and other types are errors."""
    X, noisy, _ = images()
    with pytest.raises(InvalidInputError, match=f"`device` must be 'auto' or .*{device}'? cannot be used"):
        train_deep(small_net(), PeerLoss(), X, noisy, recipe=RECIPE, device=device)


def test_the_memory_of_a_device(monkeypatch):
    """For the CPU it is that of the machine, for a GPU what is free; for other devices it is not known."""
    monkeypatch.setattr(_device, "CONTAINER_LIMITS", ())
    assert available_memory(torch.device("cpu")) > 2**28
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (7, 9))
    assert available_memory(torch.device("cuda")) == 7.0
    assert available_memory(torch.device("meta")) == float("inf")


@pytest.mark.skipif(not hasattr(os, "sysconf"), reason="the memory of this system is not known")
def test_a_container_limits_the_memory_of_the_machine(tmp_path, monkeypatch):
    """The files of both versions of control groups; a limit of "max" means none."""
    files = [tmp_path / "memory.max", tmp_path / "memory.limit_in_bytes"]
    monkeypatch.setattr(_device, "CONTAINER_LIMITS", [str(file) for file in files])
    whole = available_memory(torch.device("cpu"))
    files[0].write_text("max\n")
    assert available_memory(torch.device("cpu")) == whole
    for limit, file in enumerate(reversed(files), start=4096):
        file.write_text(f"{limit}\n")
        assert available_memory(torch.device("cpu")) == limit


@pytest.mark.parametrize("blas", [False, True])
def test_threads_are_limited_and_restored(blas):
    """Torch has one thread inside the block and its former number afterwards, also after an error."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)

    def fail():
        with one_thread(blas=blas):
            assert torch.get_num_threads() == 1
            assert not blas or {pool["num_threads"] for pool in threadpool_info()} == {1}
            raise RuntimeError("on purpose")

    try:
        with pytest.raises(RuntimeError, match="on purpose"):
            fail()
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
