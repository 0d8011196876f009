"""The limit on threads."""

import pytest
import torch
from threadpoolctl import threadpool_info

from peerloss._threads import one_thread


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
