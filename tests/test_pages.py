"""The shared set-up of HTML pages."""

import base64
import hashlib
import re

import pytest

from tests.audit.made_up import HOSTILE, made_audit


@pytest.fixture
def page(tmp_path):
    pytest.importorskip("jinja2", reason="pages need peerloss[report]")
    audit, _, _ = made_audit()
    audit.to_html(tmp_path / "page.html", title=HOSTILE)
    return (tmp_path / "page.html").read_text(encoding="utf-8")


def test_text_is_escaped(page):
    """A script in a title, label or feature is shown as text."""
    assert HOSTILE not in page
    assert "&lt;script&gt;" in page


def test_only_the_sort_script_may_run(page):
    """The policy of the page allows its one script by hash, and nothing else."""
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in page
    )
