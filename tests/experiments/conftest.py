"""One undisturbed run with which the others are compared."""

import pytest

from tests.experiments.tiny import results, run_tiny, write_spec


@pytest.fixture(scope="session")
def spec(tmp_path_factory):
    return write_spec(tmp_path_factory.mktemp("spec"))


@pytest.fixture(scope="session")
def undisturbed(spec, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run_tiny(spec, folder)
    return results(folder)
