"""One report with everything in it, written once."""

import pytest

from peerloss.report import build_report, write_report
from tests.report.made_up import everything, store


@pytest.fixture(scope="session")
def report(tmp_path_factory):
    return build_report(store(tmp_path_factory.mktemp("results"), everything()))


@pytest.fixture(scope="session")
def page(report, tmp_path_factory):
    pytest.importorskip("matplotlib", reason="pages need peerloss[report]")
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_report(report, path)
    return path
