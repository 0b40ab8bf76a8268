"""A real browser without a window: Debian's chromium, driven by selenium. Where there is none, these tests skip."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from chromium import Open, requests, show
from seqloom.probe.explain import Explanation
from seqloom.probe.page import page

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--use-fake-device-for-media-stream",  # a microphone that beeps, and nobody who must allow it
    "--use-fake-ui-for-media-stream",
]


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    browser = launched(tmp_path_factory.mktemp("chromium"))
    yield browser
    browser.quit()


@pytest.fixture
def hearing(tmp_path: Path) -> Iterator[Callable[[Path], webdriver.Chrome]]:
    """Another browser, whose microphone hears a WAV file, again and again."""
    begun: list[webdriver.Chrome] = []

    def give(clip: Path) -> webdriver.Chrome:
        begun.append(launched(tmp_path / "chromium", f"--use-file-for-fake-audio-capture={clip}"))
        return begun[-1]

    yield give
    for one in begun:
        one.quit()


def launched(folder: Path, *more: str) -> webdriver.Chrome:
    """A browser with a folder of its own; where there is none, the test skips."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        what = "no browser here: apt-get install chromium chromium-driver"
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail(what)
        pytest.skip(what)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for flag in [*FLAGS, *more, f"--user-data-dir={folder}"]:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return webdriver.Chrome(options=options, service=Service(driver))


@pytest.fixture
def browser(chromium: webdriver.Chrome) -> webdriver.Chrome:
    """Light, as wide as a desk, with nothing said before."""
    show(chromium)
    chromium.get("about:blank")
    for name in ("browser", "performance"):
        chromium.get_log(name)
    return chromium


@pytest.fixture
def opened(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Open]:
    """Open a page of these explanations from disk; in the end it has said nothing and asked nobody but that file."""
    file = tmp_path / "page.html"

    def give(*explanations: Explanation, title: str = "a page", **more: object) -> webdriver.Chrome:
        file.write_text(page(explanations, title=title, **more), encoding="utf-8")  # type: ignore[arg-type]
        browser.get(file.as_uri())
        return browser

    yield give
    assert browser.get_log("browser") == []
    asked = requests(browser)
    assert asked, "not even the page itself was seen: the log does not work"
    assert {address.partition("#")[0] for address in asked} == {file.as_uri()}
