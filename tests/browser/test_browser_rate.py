"""A study in a real browser: rated by keys and by pointer, loaded again, its server killed; text stays text."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from chromium import all_of, one_of, overflows, press, requests, show, shows, some_of, texts
from rating import Served, material, process, serving, study
from seqloom.rate.blind import View
from seqloom.rate.material import Material
from seqloom.rate.questions import Answer

pytestmark = pytest.mark.xdist_group("browser")


@contextmanager
def watched(browser: webdriver.Chrome, path: Path) -> Iterator[Served]:
    """The study's page, opened by its rater's link; in the end it has said nothing and asked nobody but its server."""
    with serving(path) as served:
        browser.get(served.link())
        some_of(browser, ".question")
        yield served
        assert browser.get_log("browser") == []
        asked = [address for address in requests(browser) if not address.startswith("about:")]
        assert asked
        assert all(address.startswith(f"{served.url}/") for address in asked), asked
        assert not any(served.store.token("anna") in address.partition("#")[0] for address in asked)
    browser.get("about:blank")


def answers(served: Served, rater: str = "anna") -> list[tuple[int, str, Answer | None]]:
    """What is kept: item as the rater numbers it, letter with question, answer; in the order of clicks."""
    view = View(served.store.plan, rater)
    found = []
    for click in served.store.clicks(rater):
        letters = {place: letter for letter, place in view.letters(click.task).items()}
        found.append((view.number(click.task), f"{letters[click.candidate]} {click.question}", click.answer))
    return found


def place(browser: webdriver.Chrome) -> str:
    return one_of(browser, "#place").text


def pressed(browser: webdriver.Chrome) -> list[str]:
    return texts(browser, ".option[aria-pressed=true]")


def test_a_study_is_rated_by_keys_alone(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with watched(browser, study(tmp_path / "study", items=2, checks=0)) as served:
        shows(lambda: place(browser), "Item 1 of 2, 0 done")
        press(browser, "y", "n", "1")
        shows(lambda: len(answers(served)), 3)
        assert answers(served) == [(1, "A adequate", True), (1, "A fluent", False), (1, "A rank", 1)]
        press(browser, "n", "y", "2", " ")
        shows(lambda: place(browser), "Item 2 of 2, 1 done")
        press(browser, "y", Keys.ARROW_DOWN, "1", Keys.ARROW_UP, Keys.ARROW_UP, "y")
        shows(
            lambda: [row[1:] for row in answers(served)[6:]], [("A adequate", True), ("A rank", 1), ("A fluent", True)]
        )
        press(browser, "n", "n", "2", " ")
        shows(lambda: one_of(browser, ".end p").text, "Everything is rated. Thank you!")
        shows(lambda: browser.title, "Rate: 2 of 2")
        press(browser, Keys.ENTER)
        shows(lambda: place(browser), "Item 1 of 2, 2 done")
        shows(lambda: pressed(browser), ["Yes", "No", "1", "No", "Yes", "2"])


def test_back_undo_and_the_next_open_question(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with watched(browser, study(tmp_path / "study", items=3, checks=0, questions="adequacy")) as served:
        press(browser, "4")
        shows(lambda: len(answers(served)), 1)
        press(browser, Keys.ARROW_RIGHT)
        shows(lambda: place(browser), "Item 2 of 3, 0 done")
        press(browser, "2", "u")
        shows(lambda: [len(answers(served)), pressed(browser)], [1, []])
        press(browser, Keys.ARROW_LEFT)
        shows(lambda: [place(browser), pressed(browser)], ["Item 1 of 3, 0 done", ["4"]])
        one_of(browser, "#next").click()  # goes to what is open, not on
        shows(lambda: "current" in all_of(browser, ".question")[1].get_attribute("class"), True)
        ActionChains(browser).key_down(Keys.CONTROL).send_keys("z").key_up(Keys.CONTROL).perform()
        shows(lambda: answers(served), [])
        shows(lambda: pressed(browser), [])
        one_of(browser, "#undo").click()
        shows(lambda: one_of(browser, "#saved").text, "Nothing to undo")


def test_loaded_again_in_the_middle_it_goes_on(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with watched(browser, study(tmp_path / "study", items=3, checks=0, questions="adequate")) as served:
        press(browser, "y", "n", " ")
        shows(lambda: place(browser), "Item 2 of 3, 1 done")
        shown = texts(browser, ".text")
        press(browser, "y")
        shows(lambda: len(answers(served)), 3)
        browser.refresh()
        shows(lambda: place(browser), "Item 2 of 3, 1 done")
        shows(lambda: [texts(browser, ".text"), pressed(browser)], [shown, ["Yes"]])
        press(browser, "n", " ")
        shows(lambda: place(browser), "Item 3 of 3, 2 done")


def test_a_server_that_is_killed_loses_nothing(browser: webdriver.Chrome, tmp_path: Path) -> None:
    path = study(tmp_path / "study", items=2, checks=0, questions="adequate,fluent")
    with process(path) as (running, links):
        port = int(links["anna"].partition("/#")[0].rpartition(":")[2])
        browser.get(links["anna"])
        some_of(browser, ".question")
        press(browser, "y")
        shows(lambda: one_of(browser, "#saved").text, "Saved")
        running.send_signal(signal.SIGKILL)
        running.wait(10)
    press(browser, "n", "n")
    told = "Not saved yet (2), and kept: the server does not answer. Trying again …"
    shows(lambda: one_of(browser, "#trouble").text, told)
    press(browser, "y")
    shows(lambda: pressed(browser), ["Yes", "No", "No", "Yes"])
    with serving(path, port=port) as served:
        shows(lambda: len(answers(served)), 4)
        assert [answer for _, _, answer in answers(served)] == [True, False, False, True]
        shows(lambda: one_of(browser, "#trouble").is_displayed(), False)
        press(browser, " ")
        shows(lambda: place(browser), "Item 2 of 2, 1 done")
    browser.get("about:blank")


def test_a_slider_says_nothing_until_it_is_moved(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with watched(browser, study(tmp_path / "study", items=1, checks=0, questions="direct")) as served:
        shows(lambda: texts(browser, ".range output"), ["–", "–"])
        press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.PAGE_UP)
        shows(lambda: answers(served), [(1, "A direct", 62)])
        press(browser, Keys.HOME, Keys.ARROW_DOWN, Keys.END, " ")
        shows(lambda: answers(served)[1:], [(1, "A direct", 0), (1, "B direct", 100)])
        shows(lambda: one_of(browser, ".end p").text, "Everything is rated. Thank you!")
        press(browser, Keys.ARROW_LEFT)
        shows(lambda: texts(browser, ".range output"), ["0", "100"])
        slider = all_of(browser, ".range input")[0]
        ActionChains(browser).move_to_element_with_offset(slider, slider.size["width"] // 4, 0).click().perform()
        shows(lambda: len(answers(served)), 4)
        value = answers(served)[3][2]
        assert isinstance(value, int)
        assert 65 <= value <= 85


def errors_of(served: Served, text: str) -> list[tuple[str, str]]:
    """The parts that are marked in the newest answer."""
    answer = answers(served)[-1][2]
    assert isinstance(answer, list)
    return [(text[span["start"] : span["end"]], span["severity"]) for span in answer]


def test_errors_are_marked_by_keys_and_by_pointer(browser: webdriver.Chrome, tmp_path: Path) -> None:
    text = "𝔘nd the dog bark , loudly"
    given = material(["x"], ["y"], one=[text])
    with watched(browser, study(tmp_path / "study", given, checks=0, questions="errors")) as served:
        words = some_of(browser, ".word")
        assert texts(browser, ".word") == [*text.split(), "+ missing"]
        press(browser, Keys.ARROW_RIGHT, "1")
        shows(lambda: len(answers(served)), 1)
        assert errors_of(served, text) == [("the", "minor")]
        held = ActionChains(browser).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT).key_up(Keys.SHIFT)
        press(browser, Keys.ARROW_RIGHT)
        held.perform()
        press(browser, "2")
        shows(lambda: len(answers(served)), 2)
        assert errors_of(served, text) == [("the", "minor"), ("dog bark", "major")]
        words[1].click()  # minor -> major -> none
        shows(lambda: "major" in words[1].get_attribute("class"), True)
        words[1].click()
        shows(lambda: len(answers(served)), 4)
        assert errors_of(served, text) == [("dog bark", "major")]
        ActionChains(browser).click_and_hold(words[4]).move_to_element(words[5]).release().perform()
        shows(lambda: len(answers(served)), 5)
        assert errors_of(served, text) == [("dog bark", "major"), (", loudly", "minor")]
        words[6].click()
        shows(lambda: len(answers(served)), 6)
        assert errors_of(served, text)[-1] == ("", "minor")
        assert words[6].get_attribute("aria-label") == "something is missing: minor error"
        shows(lambda: texts(browser, ".marking .soft"), ["2 minor, 1 major"])
        browser.refresh()
        shows(lambda: one_of(browser, ".end p").text, "Everything is rated. Thank you!")
        press(browser, Keys.ARROW_LEFT)
        shows(lambda: texts(browser, ".word.major"), ["dog", "bark"])
        press(browser, "n")
        shows(lambda: answers(served)[-1][2], [])
        shows(lambda: one_of(browser, ".marking .option").get_attribute("aria-pressed"), "true")


def test_errors_can_be_marked_after_other_questions(browser: webdriver.Chrome, tmp_path: Path) -> None:
    given = material(["x"], ["y"], one=["the dog bark loudly"])
    with watched(browser, study(tmp_path / "study", given, checks=0, questions="errors,adequacy")) as served:
        press(browser, "1", " ", "3")
        shows(lambda: len(answers(served)), 2)
        some_of(browser, ".word")[2].click()
        shows(lambda: len(answers(served)), 3)
        assert errors_of(served, "the dog bark loudly") == [("the", "minor"), ("bark", "minor")]
        some_of(browser, ".option")[1].click()
        shows(lambda: answers(served)[-1], (1, "A adequacy", 1))
        some_of(browser, ".word")[2].click()
        shows(lambda: len(answers(served)), 5)
        assert errors_of(served, "the dog bark loudly") == [("the", "minor"), ("bark", "major")]


ATTACK = "<img src=x onerror=alert(1)><script>alert(2)</script>&amp;\u202e{{7*7}}"


def attacks() -> Material:
    return material(
        [ATTACK] * 2, [ATTACK + " r"] * 2, one=[ATTACK + " a b c d"] * 2, two=["<b>bold</b> words are here"] * 2
    )


@pytest.mark.parametrize("questions", ["adequate,rank", "errors"])
def test_text_is_text(browser: webdriver.Chrome, tmp_path: Path, questions: str) -> None:
    with watched(browser, study(tmp_path / "study", attacks(), checks=0, questions=questions)):
        assert one_of(browser, ".source").get_property("textContent") == ATTACK
        assert one_of(browser, ".reference").get_property("textContent") == ATTACK + " r"
        assert all_of(browser, "main img, main script, main b") == []
        shown = {element.get_property("textContent") for element in all_of(browser, ".said")}
        assert shown == {ATTACK + " a b c d", "<b>bold</b> words are here"}


def test_the_browser_never_learns_who_said_what(browser: webdriver.Chrome, tmp_path: Path) -> None:
    given = material(unmistakable=[f"a b c d {n}" for n in range(12)], indubitable=[f"e f g h {n}" for n in range(12)])
    with watched(browser, study(tmp_path / "study", given)) as served:
        press(browser, "y", "n", "1")
        shows(lambda: len(answers(served)), 3)
        known = browser.execute_script(
            "return Promise.all(performance.getEntriesByType('resource')"
            ".filter((one) => !one.name.endsWith('rating')).map((one) => "
            "fetch(one.name, {headers: {Authorization: `Bearer ${location.hash.slice(1)}`}})"
            ".then((answer) => answer.text())))"
        )
        everything = "".join(known) + browser.page_source
        assert "a b c d" in everything or "e f g h" in everything
        assert not any(word in everything for word in ("unmistakable", "indubitable", '"damaged"', "test.tsv"))


def test_a_link_that_does_not_open(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with serving(study(tmp_path / "study")) as served:
        for link in (served.url, f"{served.link()}x"):
            browser.get(link)
            shows(lambda: one_of(browser, ".end").text, "This page opens by a rater's own link.")
            shows(lambda: "this link does not open the study" in one_of(browser, "#trouble").text, True)
        browser.get(served.link())  # only what follows the # has changed
        shows(lambda: place(browser)[:6], "Item 1")
    browser.get("about:blank")


@pytest.mark.parametrize("questions", ["adequate,fluent,rank", "errors,adequacy,direct"])
def test_narrow_and_wide_nothing_runs_over_the_edge(browser: webdriver.Chrome, tmp_path: Path, questions: str) -> None:
    long = "Donaudampfschifffahrtsgesellschaft" * 4
    arabic = "أظن أن القط يرى الكلب في المساء، نعم 12 مرة."
    given = material([long], ["an end"], one=[long + " one"], two=[arabic], three=["short"])
    with watched(browser, study(tmp_path / "study", given, checks=0, questions=questions)):
        for width in (320, 390, 768, 1280):
            for dark in (False, True):
                show(browser, width, dark)
                shows(lambda: overflows(browser), False)
        (right,) = [
            one for one in all_of(browser, ".text") if "الكلب" in one.get_property("textContent") and one.is_displayed()
        ]
        assert right.value_of_css_property("direction") == "rtl"


def test_screen_readers_are_told_what_is_what(browser: webdriver.Chrome, tmp_path: Path) -> None:
    with watched(browser, study(tmp_path / "study", checks=0, questions="adequate,direct,errors")):
        labels = [one.accessible_name for one in all_of(browser, "[role=group], input")]
        assert any(name.startswith("Output A: Adequate. Does it say") for name in labels)
        assert any(name.startswith("Output B: Quality. ") for name in labels)
        assert all(labels)
        buttons = [one.accessible_name for one in all_of(browser, "button") if one.is_displayed()]
        assert all(buttons)
        assert one_of(browser, "progress").accessible_name == "items done"
        press(browser, "?")
        shows(lambda: one_of(browser, "#help").is_displayed(), True)
        assert one_of(browser, "#keys").get_attribute("aria-expanded") == "true"
