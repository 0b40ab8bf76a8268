"""What tests in a browser share: how it shows a page, what it shows in the end, and whom the page asked.

A page answers clicks and keys when it gets round to it, on a busy machine late: what is looked for is waited for.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import TypeVar

from selenium import webdriver
from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

Open = Callable[..., webdriver.Chrome]  # explanations, and the other arguments of `page`
Where = webdriver.Chrome | WebElement
T = TypeVar("T")

PATIENCE = 20.0  # seconds
_NOT_YET = (NoSuchElementException, StaleElementReferenceException, IndexError, StopIteration)


def shows(look: Callable[[], T], wanted: T) -> None:
    """Look until it is what is wanted; after a while it must be."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            if look() == wanted:
                return
        except _NOT_YET:
            pass
        time.sleep(0.05)
    assert look() == wanted


def all_of(where: Where, selector: str) -> list[WebElement]:
    """What is there now: of this kind there may be none."""
    return where.find_elements(By.CSS_SELECTOR, selector)


def some_of(where: Where, selector: str, least: int = 1) -> list[WebElement]:
    """As soon as there are so many."""
    shows(lambda: len(all_of(where, selector)) >= least, True)
    return all_of(where, selector)


def one_of(where: Where, selector: str) -> WebElement:
    """The first, as soon as it is there."""
    return some_of(where, selector)[0]


def keys_to(where: Where, selector: str, *keys: str) -> None:
    """Into the first, drawn anew between finding and typing or not: what is gone takes no key."""

    def typed() -> bool:
        one_of(where, selector).send_keys(*keys)
        return True

    shows(typed, True)


def texts(where: Where, selector: str) -> list[str]:
    return [element.text for element in all_of(where, selector)]


def press(browser: webdriver.Chrome, *keys: str) -> None:
    ActionChains(browser).send_keys(*keys).perform()


def overflows(browser: webdriver.Chrome) -> bool:
    return bool(browser.execute_script("return document.documentElement.scrollWidth > window.innerWidth"))


def show(browser: webdriver.Chrome, width: int = 1280, dark: bool = False) -> None:
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def requests(browser: webdriver.Chrome) -> list[str]:
    """What was asked for since the log was last read; what a page holds itself (data:) is asked of nobody."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [message for message in messages if message["method"] == "Network.requestWillBeSent"]
    addresses = [message["params"]["request"]["url"] for message in sent]
    return [address for address in addresses if not address.startswith("data:")]
