"""Screens, keys and console messages of the browser in tests."""

from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Screen:
    """Size and colours of a screen."""

    width: int
    is_dark: bool

    @property
    def is_wide(self):
        """Whether there is room for two columns."""
        return self.width > 1000

    def __str__(self):
        return f"{'wide' if self.is_wide else 'narrow'}-{'dark' if self.is_dark else 'light'}"


SCREENS = [Screen(width, is_dark) for width in (1300, 400) for is_dark in (False, True)]


@contextmanager
def show_on(browser, screen):
    """Emulate a screen; afterwards, the browser's own."""
    colours = [{"name": "prefers-color-scheme", "value": "dark" if screen.is_dark else "light"}]
    size = {"width": screen.width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": colours})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    yield
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def console_errors(browser):
    """Return the messages of the console, except for the icon that browsers ask for."""
    return [entry for entry in browser.get_log("browser") if "favicon" not in entry["message"]]


def keys(browser, *pressed):
    """Press keys as a person does, at the element that has the focus."""
    from selenium.webdriver import ActionChains  # noqa: PLC0415 - optional

    for key in pressed:
        ActionChains(browser, duration=0).send_keys(key).perform()
