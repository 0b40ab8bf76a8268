"""Pictures and sounds of a study in a real browser: seen, played by a key, and said where they are gone."""

from __future__ import annotations

from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys

from chromium import all_of, one_of, overflows, press, requests, show, shows, some_of, texts
from rated_files import file_study
from rating import serving

pytestmark = pytest.mark.xdist_group("browser")

GONE = (
    "The picture is not shown: the picture of this item is not there any more as it was; tell whoever made the study."
)


def natural(browser: webdriver.Chrome) -> list[int | None]:
    """How large the picture is that is shown; nothing while there is none."""
    look = "const one = document.querySelector('.media img'); return [one?.naturalWidth, one?.naturalHeight]"
    found: list[int | None] = browser.execute_script(look)
    return found


def test_a_picture_is_shown_and_rated(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with serving(file_study(tmp_path, "picture")) as served:
        browser.get(served.link())
        shows(lambda: natural(browser), [16, 16])
        assert "blocks/" not in one_of(browser, "main").text
        first = one_of(browser, ".media img").get_attribute("src")
        assert first.startswith("blob:")
        press(browser, "y", "1", "y", "2", " ")
        shows(lambda: one_of(browser, "#place").text, "Item 2 of 3, 1 done")
        shows(lambda: one_of(browser, ".media img").get_attribute("src") != first, True)
        shows(lambda: natural(browser), [16, 16])
        for width in (360, 768, 1440):
            show(browser, width)
            assert not overflows(browser)
        assert browser.get_log("browser") == []
        asked = [one for one in requests(browser) if not one.startswith("about:")]
        assert any(one.endswith("/api/tasks/1/media") for one in asked)
        assert all(one.startswith((served.url, f"blob:{served.url}")) for one in asked), asked
    browser.get("about:blank")


def test_a_sound_is_played_by_a_key(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with serving(file_study(tmp_path, "sound")) as served:
        browser.get(served.link())
        one_of(browser, ".media audio")
        state = "const one = document.querySelector('audio'); return "
        shows(lambda: browser.execute_script(f"{state} one.readyState >= 3 && one.duration > 0.1"), True)
        assert one_of(browser, "audio").get_attribute("aria-label") == "The source, a sound"
        browser.execute_script("document.querySelector('audio').loop = true")  # however slow the machine is
        press(browser, "p")
        shows(lambda: browser.execute_script(f"{state} !one.paused && one.currentTime > 0"), True)
        press(browser, "p")
        shows(lambda: browser.execute_script(f"{state} one.paused"), True)
        browser.execute_script("document.querySelector('audio').focus()")
        press(browser, " ", Keys.ARROW_RIGHT)  # its own keys: nothing is turned or answered
        shows(lambda: one_of(browser, "#place").text, "Item 1 of 3, 0 done")
        assert served.store.clicks("anna") == []
        browser.execute_script("document.querySelector('.option').focus()")
        press(browser, "y")
        shows(lambda: len(served.store.clicks("anna")), 1)
        assert browser.get_log("browser") == []
    browser.get("about:blank")


def test_a_picture_that_is_gone_is_said_and_asked_for_again(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with serving(file_study(tmp_path, "picture", 1)) as served:
        picture = tmp_path / "blocks/0.png"
        kept = picture.read_bytes()
        picture.unlink()
        browser.get(served.link())
        shows(lambda: texts(browser, ".media [role=alert]"), [GONE])
        some_of(browser, ".question")
        press(browser, "y")
        shows(lambda: len(served.store.clicks("anna")), 1)
        picture.write_bytes(kept)
        one_of(browser, ".media button").click()
        shows(lambda: natural(browser), [16, 16])
        assert not all_of(browser, ".media [role=alert]")
    browser.get("about:blank")
