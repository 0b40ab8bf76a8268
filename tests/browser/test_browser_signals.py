"""Answers to pictures and to sound in a real browser: weights lie over the picture, and under the spectrogram."""

from __future__ import annotations

import base64
import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from chromium import Open, all_of, one_of, overflows, press, show, shows, some_of, texts
from explanations import END, looks, made, small_tree, spread, told
from seqloom.probe.explain import Explanation

pytestmark = pytest.mark.xdist_group("browser")

ROWS, COLUMNS = 2, 3
FRAMES = 12


def drawn() -> str:
    """A picture as a page holds it: red on the left, white on the right."""
    image = Image.new("RGB", (60, 40), (250, 250, 250))
    image.paste((220, 30, 30), (0, 0, 20, 40))
    file = io.BytesIO()
    image.save(file, "PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def captioned() -> Explanation:
    """`red` looks at one region with all it has; `left` at two, half of a half each; the end looks nowhere inside."""
    regions = [f"{row},{column}" for row in (1, 2) for column in (1, 2, 3)]
    weights = looks([0.8, 0, 0, 0, 0, 0, 0.2], [0.2, 0, 0, 0.2, 0, 0, 0.6], [0, 0, 0, 0, 0, 0, 1])
    words = [-1] * 7, [0, 1, -1]
    shown = made([*regions, END], [told("red", 0.9), told("left", 0.4, rank=2), told(END, 0.9)], weights, words)
    return replace(shown, text="blocks/0.png", frames=6, grid=(ROWS, COLUMNS), picture=drawn(), tree=small_tree())


def spoken() -> Explanation:
    """`low` is heard in the first third, `high` in the last one."""
    weights = np.zeros((1, 1, 3, FRAMES + 1), dtype=np.float32)
    weights[0, 0, 0, :4] = weights[0, 0, 1, 8:12] = 0.25
    weights[0, 0, 2, -1] = 1
    source = [*(f"{place / 50:.2f}s" for place in range(FRAMES)), END]
    words = [-1] * (FRAMES + 1), [0, 1, -1]
    shown = made(source, [told("low", 0.9), told("high", 0.4), told(END, 0.9)], weights, words)
    signal = np.zeros((FRAMES, 8), dtype=np.float32)
    signal[:4, 1] = signal[8:, 6] = 1
    return replace(shown, text="tones/0.wav", frames=FRAMES, signal=signal)


def hover(browser: webdriver.Chrome, element: WebElement) -> None:
    ActionChains(browser).move_to_element(element).perform()


def readout(browser: webdriver.Chrome) -> str:
    """Without the marks that isolate a text's direction."""
    return one_of(browser, "main .readout").text.replace("\u2068", "").replace("\u2069", "")


def darkness(browser: webdriver.Chrome, figure: int) -> list[int]:
    """How dark each region of one picture is veiled, from 0 to 255."""
    return list(
        browser.execute_script(
            "const veil = document.querySelectorAll('.looks figure canvas')[arguments[0]];"
            "const { width, height } = veil;"
            "const points = veil.getContext('2d').getImageData(0, 0, width, height).data;"
            "return Array.from({ length: width * height }, (_, place) => points[4 * place + 3]);",
            figure,
        )
    )


# --- pictures ------------------------------------------------------------------------------------------------------


def test_every_word_has_the_picture_with_what_it_looked_at(opened: Open) -> None:
    browser = opened(captioned())
    shows(lambda: texts(browser, ".looks figure .label"), ["red", "left", END])
    loaded = (
        "return [...document.querySelectorAll('img')].every((image) => image.complete && image.naturalWidth === 60)"
    )
    shows(lambda: browser.execute_script(loaded), True)
    shows(lambda: texts(browser, ".looks figure:nth-child(2) .soft"), ["p 40.0 %", "at most 20 %", "60 % elsewhere"])


def test_pictures_share_one_scale_which_is_shown(opened: Open) -> None:
    browser = opened(captioned())
    some_of(browser, ".looks figure", 3)
    red, left, end = (darkness(browser, place) for place in range(3))
    assert red[0] == 0, "the brightest region of all"
    assert 60 < left[0] == left[3] < 180, "a quarter of that is half as bright, however little else this word looked at"
    assert set(red[1:]) == set(end) == {max(end)}
    shows(lambda: one_of(browser, ".controls .scale").text, "0\n80 % of its look in a region")


def test_a_picture_answers_to_pointer_click_and_keys(opened: Open) -> None:
    browser = opened(captioned())
    shows(lambda: "all pictures on one scale" in readout(browser), True)
    figures = some_of(browser, ".looks figure", 3)
    hover(browser, figures[1])
    shows(lambda: readout(browser), f"“left” looked at “{END}” 60 %, “1,1” 20 %, “2,1” 20 %")
    shows(lambda: "left" in one_of(browser, ".detail").text, True)
    shows(lambda: "lit" in (all_of(browser, ".looks figure")[1].get_attribute("class") or ""), True)
    figures[0].click()
    hover(browser, one_of(browser, "h1"))
    shows(lambda: readout(browser).startswith("“red” looked at “1,1” 80 %"), True)
    press(browser, Keys.ARROW_RIGHT)
    shows(lambda: readout(browser).startswith("“left” looked at"), True)


def test_a_picture_is_a_map_and_ribbons_too(opened: Open) -> None:
    browser = opened(captioned())
    one_of(browser, "[value=map]").find_element("xpath", "..").click()
    shows(lambda: len(all_of(browser, "td[data-row]")), 3 * 7)
    one_of(browser, "[value=ribbons]").find_element("xpath", "..").click()
    shows(lambda: len(all_of(browser, ".ribbons path")), 6)
    one_of(browser, "[value=picture]").find_element("xpath", "..").click()
    shows(lambda: len(all_of(browser, ".looks figure")), 3)


def test_in_the_dark_a_veil_is_dark_still(opened: Open) -> None:
    """Bright is where it looked, whatever the colours of the page."""
    browser = opened(captioned())
    show(browser, dark=True)
    shows(lambda: one_of(browser, ".looks canvas").value_of_css_property("filter"), "none")
    show(browser)


# --- sound ---------------------------------------------------------------------------------------------------------


def test_a_spectrogram_stands_above_its_map(opened: Open) -> None:
    browser = opened(spoken())
    shows(lambda: len(all_of(browser, ".signal canvas")), 1)
    heard, first = one_of(browser, ".map .heard canvas").rect, one_of(browser, "td[data-row='0'][data-column='0']").rect
    last = one_of(browser, f"td[data-row='0'][data-column='{FRAMES - 1}']").rect
    assert heard["y"] < first["y"]
    assert abs(heard["x"] - first["x"]) < 3, "the sound begins above its first column"
    assert abs(heard["x"] + heard["width"] - last["x"] - last["width"]) < 3, "and ends above its last"
    assert not all_of(browser, ".tokens [data-side=source]"), "hundreds of frames are no words"


def test_a_spectrogram_answers_to_pointer_and_click(opened: Open) -> None:
    browser = opened(spoken())
    hover(browser, one_of(browser, "td[data-row='1'][data-column='8']"))
    shows(lambda: readout(browser).startswith("“high” looked at “0.16s”: 25 %"), True)
    some_of(browser, ".tokens [data-side=output]", 3)[0].click()
    hover(browser, one_of(browser, "h1"))
    shows(lambda: readout(browser).startswith("“low” looked at “0.00s” 25 %"), True)


@pytest.mark.parametrize("width", [360, 800, 1280])
@pytest.mark.parametrize("make", [captioned, spoken])
def test_neither_is_wider_than_the_screen(opened: Open, make: object, width: int) -> None:
    assert callable(make)
    long = replace(spoken(), **_many(300)) if make is spoken else make()
    browser = opened(long)
    show(browser, width)
    shows(lambda: overflows(browser), False)
    assert base64.b64decode(browser.print_page()).startswith(b"%PDF")


def _many(frames: int) -> dict[str, object]:
    """So many frames as a page of them has."""
    source = (*(f"{place / 50:.2f}s" for place in range(frames)), END)
    signal = np.random.default_rng(1).normal(size=(frames, 8)).astype(np.float32)
    none = np.zeros((0, 0, frames + 1, frames + 1), dtype=np.float32)
    weights = spread((1, 2, 3, frames + 1))
    read = (-1,) * (frames + 1)
    return {
        "source": source,
        "read": read,
        "weights": weights,
        "within_source": none,
        "frames": frames,
        "signal": signal,
    }
