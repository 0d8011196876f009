"""Settings shared by the tests of examples."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def one_thread():
    """Keep linear algebra to one thread: tests share the cores, and idle threads that wait cost them."""
    with threadpool_limits(1):
        yield
