"""Settings shared by all tests."""

import shutil

import pytest
import torch
from hypothesis import HealthCheck, settings

from peerloss import _files

settings.register_profile(
    "default",
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,  # the checkout may be read-only; a failure prints how to reproduce it
    print_blob=True,
)
settings.load_profile("default")
torch.set_num_threads(1)

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Start a headless browser with a new profile; skip if there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium")
    if not (CHROMIUM and DRIVER):
        pytest.skip("needs Chromium and chromedriver (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    profile = tmp_path_factory.mktemp("profile")
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--user-data-dir={profile}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=DRIVER))
    driver.set_script_timeout(60)
    yield driver
    driver.quit()


@pytest.fixture(params=[True, False], ids=["exchange", "rename twice"])
def exchanging(request, monkeypatch):
    """Run with and without a system call that exchanges two folders in one step."""
    if not request.param:
        monkeypatch.setattr(_files, "exchange", lambda _one, _other: False)
    return request.param


def pytest_runtest_setup(item):
    """Skip tests that need a GPU if there is none."""
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU")
