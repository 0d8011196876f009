"""Settings shared by the tests of examples."""

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def one_thread():
    """Limit linear algebra to one thread, because tests share the cores."""
    with threadpool_limits(1):
        yield
