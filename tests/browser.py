"""A real browser for the tests: Chromium without a window, driven by Selenium."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from django.conf import settings
from django.test import Client

FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-background-networking --disable-component-update "
    "--disable-sync --no-first-run --window-size=1280,900"
)

#: Shortens the pauses between refreshes, which last up to five seconds.
HURRY = """
const wait = window.setTimeout;
window.setTimeout = (call, pause, ...given) => wait(call, pause > 5000 ? pause : pause / 10, ...given);
"""


def start(directory: Path) -> Any:
    """Start a browser whose profile is in this directory. It keeps what pages write to the console."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS.split(), f"--user-data-dir={directory}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    found = map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
    options.binary_location = next(path for path in found if path)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    driver.execute_cdp_cmd("Animation.enable", {})
    driver.execute_cdp_cmd("Animation.setPlaybackRate", {"playbackRate": 1000})  # transitions end at once
    driver.implicitly_wait(10)
    driver.set_script_timeout(60)
    return driver


def sign_in(browser: Any, url: str, user: Any) -> None:
    """Give the browser the session of a user on a site."""
    client = Client()
    client.force_login(user)
    browser.get(url + "/admin/login/")
    cookie = client.cookies[settings.SESSION_COOKIE_NAME]
    browser.add_cookie({"name": settings.SESSION_COOKIE_NAME, "value": cookie.value, "path": "/"})


def resize(browser: Any, width: int, height: int = 1000, dark: bool = False) -> None:
    """Show pages at this size, in the light or the dark theme."""
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    theme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": theme})


def complaints(browser: Any) -> list[str]:
    """Return what pages wrote to the console since the last look: broken policies, errors of scripts."""
    severe = [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    return [message for message in severe if "/favicon.ico" not in message]
