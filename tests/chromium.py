"""What tests in a browser share: how it shows a page, and whom the page asked."""

from __future__ import annotations

import json
from collections.abc import Callable

from selenium import webdriver

Open = Callable[..., webdriver.Chrome]  # explanations, and the other arguments of `page`


def show(browser: webdriver.Chrome, width: int = 1280, dark: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def requests(browser: webdriver.Chrome) -> list[str]:
    """What was asked for since the log was last read."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    return [
        message["params"]["request"]["url"] for message in messages if message["method"] == "Network.requestWillBeSent"
    ]
