"""Chromium, driven by Selenium: pages from the disk, with no network to go to."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIZE = (1360, 1000)


def why_missing() -> str:
    """Why no browser can be driven here; empty: one can."""
    if importlib.util.find_spec("selenium") is None:
        return "Selenium is not installed: scripts/setup_browser"
    if not any(map(shutil.which, NAMES)) or shutil.which("chromedriver") is None:
        return "Chromium and chromedriver are not installed: scripts/setup_browser"
    return ""


needs_chromium = pytest.mark.skipif(bool(why_missing()), reason=why_missing())


@dataclass(frozen=True)
class Browser:
    """A browser and what it has told so far.

    Attributes:
        driver: Selenium's.
    """

    driver: Any

    def open(self, path: Path) -> None:
        """Opens a file."""
        self.driver.get(path.as_uri())

    def run(self, script: str, *arguments: object) -> Any:
        """Value that a script returns."""
        return self.driver.execute_script(script, *arguments)

    def requested(self) -> list[str]:
        """Addresses that a page from the disk asked for since it was last asked.

        What the empty first page of a browser asks for (chrome://) is no page's.
        """
        messages = [
            json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")
        ]
        wanted = "Network.requestWillBeSent"
        asked = [m["params"] for m in messages if m["method"] == wanted]
        return [p["request"]["url"] for p in asked if p["documentURL"].startswith("file:")]

    def complaints(self) -> list[str]:
        """Messages of the console since it was last asked, refusals of the policy among them."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@contextlib.contextmanager
def open_browser(folder: Path) -> Iterator[Browser]:
    """A browser with an empty profile.

    Args:
        folder: for the profile.
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    for flag in (*FLAGS, f"--user-data-dir={folder}", f"--window-size={SIZE[0]},{SIZE[1]}"):
        options.add_argument(flag)
    options.binary_location = next(path for path in map(shutil.which, NAMES) if path)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
