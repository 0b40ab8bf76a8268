"""The report in a real browser: its plots and tables, the way to a sentence and back, keys, phones, dark and paper."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from chromium import all_of, one_of, overflows, press, requests, show, shows, some_of, texts
from reports import judged, made_report
from seqloom.probe.report import Report, report_page

pytestmark = pytest.mark.xdist_group("browser")

Reported = Callable[..., webdriver.Chrome]


@pytest.fixture
def reported(browser: webdriver.Chrome, tmp_path: Path) -> Iterator[Reported]:
    """Open a report from disk; in the end it has said nothing and asked nobody but that file."""
    file = tmp_path / "report.html"

    def give(report: Report, place: str = "") -> webdriver.Chrome:
        file.write_text(report_page(report), encoding="utf-8")
        browser.get(file.as_uri() + place)
        return browser

    yield give
    assert browser.get_log("browser") == []
    assert {address.partition("#")[0] for address in requests(browser)} == {file.as_uri()}


def listed(browser: webdriver.Chrome) -> list[str]:
    return texts(browser, "#sentences tbody .texts a")


def heading(browser: webdriver.Chrome) -> str:
    return one_of(browser, ".one h2").text


# --- what is there -------------------------------------------------------------------------------------------------


def test_every_section_is_there_and_named_in_the_contents(reported: Reported) -> None:
    browser = reported(made_report(systems=("with attention", "without")))
    ids = [element.get_attribute("id") for element in some_of(browser, "main > section[id]", 11)]
    assert ids == [
        "scores",
        "lengths",
        "learning",
        "diagnosis",
        "gallery",
        "attention",
        "states",
        "words",
        "confidence",
        "sentences",
        "dataset",
    ]
    every = [element.get_attribute("id") for element in all_of(browser, "[id]")]
    assert len(set(every)) == len(every)
    shows(lambda: len(all_of(browser, ".contents a")), len(ids))
    shows(lambda: browser.title, "a run")
    shows(lambda: one_of(browser, ".one").is_displayed(), False)


def test_labels_have_a_table_instead_of_words(reported: Reported) -> None:
    row = {"label": EVIL, "precision": 50.0, "recall": 25.0, "f1": 33.3, "wanted": 4, "produced": 2}
    made = made_report(4)
    told = {**made.systems[0], "by_frequency": None, "by_label": [row], "by_span": None, "unseen_labels": {"odd": 3}}
    browser = reported(replace(made, systems=(told,)))
    shows(lambda: texts(browser, "#labels tbody td")[:3], [EVIL, "4", "2"])
    assert "odd 3" in one_of(browser, "#labels").text
    assert not all_of(browser, "#words")


def test_scores_stand_beside_each_other_with_intervals(reported: Reported) -> None:
    browser = reported(made_report(systems=("with attention", "without")))
    rows = [texts(row, "td") for row in all_of(browser, "#scores tbody tr")]
    assert rows[0] == ["BLEU", "with attention", "30.00", "28.00 to 32.00", "higher"]
    assert rows[1] == ["BLEU", "without", "35.00", "33.00 to 37.00", "higher"]
    assert rows[2][:3] == ["perplexity", "with attention", "12.50"]


def test_two_systems_share_one_plot_by_length_and_differ_in_more_than_colour(reported: Reported) -> None:
    browser = reported(made_report(systems=("with attention", "without")))
    plot = one_of(browser, "#lengths .plot svg")
    shows(lambda: texts(browser, "#lengths .fates span"), ["with attention", "without"])
    first, second = some_of(plot, "g.s0"), some_of(plot, "g.s1")
    assert len(all_of(first[0], "circle")) == len(all_of(second[0], "rect")) == 2
    shows(lambda: len(all_of(plot, ".whisker")), 4)
    dashes = [one_of(one, ".line").get_attribute("stroke-dasharray") for one in (first[0], second[0])]
    assert dashes[0] != dashes[1]
    heights = [float(circle.get_attribute("cy")) for circle in all_of(first[0], "circle")]
    assert heights[0] < heights[1], "35 stands above 25"
    title = all_of(first[0], "circle title")[0].get_attribute("textContent")
    assert title == "with attention: 35.00 (33.00 to 37.00), 10 sentences of 1-10 words"


def test_curves_run_against_steps_and_the_best_is_marked(reported: Reported) -> None:
    browser = reported(made_report())
    shows(lambda: texts(browser, "#learning figcaption"), ["loss"])
    shows(lambda: texts(browser, "#learning .fates span"), ["training", "validation"])
    line = one_of(browser, "#learning g.s0 .line").get_attribute("d")
    points = [tuple(map(float, point.split())) for point in line[1:].split("L")]
    assert len(points) == 3
    assert points[0][0] < points[1][0] < points[2][0]
    assert points[0][1] < points[1][1] < points[2][1], "a loss that falls goes down on the screen"
    shows(lambda: "best" in one_of(browser, "#learning .plot").text, True)


def test_a_caution_stands_out(reported: Reported) -> None:
    browser = reported(made_report())
    assert texts(browser, "#attention .caution") == ["caution: do not read these weights as reasons"]
    assert texts(browser, "#attention .soft") == ["attention and gradients: tau 0.10"]


def test_what_there_is_nothing_of_has_no_empty_table(reported: Reported) -> None:
    """All sentences alike: nobody is worst, and nothing is wrong with them."""
    report = made_report(2)
    diagnosis = {**report.diagnosis, "symptoms": []} if report.diagnosis else None
    alike = (replace(report.sentences[0], value=1.0, length=3), replace(report.sentences[1], value=1.0, length=3))
    browser = reported(replace(report, diagnosis=diagnosis, sentences=alike))
    shows(lambda: len(all_of(browser, "#diagnosis table")), 1)
    shows(lambda: texts(browser, "#gallery h3"), ["best"])


# --- tables --------------------------------------------------------------------------------------------------------


def head(browser: webdriver.Chrome, section: str, name: str) -> WebElement:
    heads = all_of(browser, f"#{section} th")
    return next(one for one in heads if one.text.startswith(name))


def test_tables_sort_by_click_and_by_key(reported: Reported) -> None:
    browser = reported(made_report(8))
    shows(lambda: listed(browser)[:2], ["sentence 1", "sentence 2"])
    one_of(head(browser, "sentences", "BLEU"), "button").click()
    shows(lambda: listed(browser)[:2], ["sentence 8", "sentence 7"])
    shows(lambda: head(browser, "sentences", "BLEU").get_attribute("aria-sort"), "descending")
    press(browser, Keys.ENTER)
    shows(lambda: listed(browser)[:2], ["sentence 1", "sentence 2"])
    shows(lambda: head(browser, "sentences", "BLEU").get_attribute("aria-sort"), "ascending")
    one_of(head(browser, "sentences", "length"), "button").click()
    shows(lambda: head(browser, "sentences", "BLEU").get_attribute("aria-sort"), None)
    shows(lambda: listed(browser)[0], "sentence 7")


def test_sentences_are_found_by_text_and_by_verdict(reported: Reported) -> None:
    browser = reported(made_report(60))
    shows(lambda: len(listed(browser)), 25)
    one_of(browser, "#sentences .listed > button").click()
    shows(lambda: len(listed(browser)), 50)
    one_of(browser, "input[type=search]").send_keys("WANTED sentence 60")
    shows(lambda: listed(browser), ["sentence 60"])
    one_of(browser, "input[type=search]").clear()
    one_of(browser, "input[type=search]").send_keys(" ", Keys.BACKSPACE)
    Select(one_of(browser, "[aria-label=verdict]:is(select)")).select_by_value("search error")
    shows(lambda: one_of(browser, "#sentences [role=status]").text, "15 of 60")
    shows(lambda: listed(browser)[:2], ["sentence 3", "sentence 7"])


def test_a_verdict_of_the_diagnosis_shows_its_sentences(reported: Reported) -> None:
    browser = reported(made_report(12))
    shows(lambda: texts(browser, "#diagnosis tbody tr:nth-child(3) td")[:2], ["search error", "3"])
    row = some_of(browser, "#diagnosis tbody tr", 3)[2]
    shows(lambda: texts(row, ".links a"), ["3", "7", "11"])  # the worst of them, worst first
    one_of(row, ".as-link").click()
    shows(lambda: listed(browser), ["sentence 3", "sentence 7", "sentence 11"])
    shows(lambda: Select(one_of(browser, "select[aria-label=verdict]")).first_selected_option.text, "search error")


# --- the way to a sentence and back --------------------------------------------------------------------------------


def test_a_link_opens_the_sentence_and_back_leads_to_where_one_was(reported: Reported) -> None:
    browser = reported(made_report(30))
    target = some_of(browser, "#sentences tbody a", 21)[20]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", target)
    before = browser.execute_script("return window.scrollY")
    assert before > 500
    target.click()
    shows(lambda: heading(browser), "Sentence 21 of 30")
    shows(lambda: browser.current_url.rpartition("#")[2], "sentence-21")
    shows(lambda: one_of(browser, "#scores").is_displayed(), False)
    shows(lambda: browser.execute_script("return window.scrollY"), 0)
    shows(lambda: browser.execute_script("return document.activeElement.textContent"), "Sentence 21 of 30")
    browser.back()
    shows(lambda: one_of(browser, "#scores").is_displayed(), True)
    shows(lambda: browser.execute_script("return window.scrollY"), pytest.approx(before, abs=2))


def test_the_page_of_a_sentence_says_all_of_it(reported: Reported) -> None:
    browser = reported(made_report(8), "#sentence-3")
    shows(lambda: texts(browser, ".judged dt"), ["reference", "BLEU", "log p a token", "diagnosis", "from"])
    about = texts(browser, ".judged dd")
    assert about[0] == "wanted sentence 3"
    assert about[3].startswith("search error: the reference scores -0.500, the output -1.000")
    shows(lambda: texts(browser, ".one .text"), ["sentence 3", "output sentence 3"])
    shows(lambda: len(all_of(browser, ".one td[data-row]")), 25)
    shows(lambda: one_of(browser, ".one main .readout").text.partition(":")[0], "the last layer, mean of its heads")
    shows(lambda: bool(all_of(browser, ".one .heads")), False)


def test_a_telling_one_comes_with_all_heads_and_the_beam(reported: Reported) -> None:
    browser = reported(made_report(8), "#sentence-1")
    shows(lambda: len(all_of(browser, ".one .heads button")), 2 * (3 + 1))
    shows(lambda: len(all_of(browser, ".one .beam .node")), 6)
    shows(lambda: "among the worst" in texts(browser, ".judged dd"), True)
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    shows(lambda: heading(browser), "Sentence 3 of 8")
    shows(lambda: one_of(browser, ".one .beam").is_displayed(), False)


def test_arrows_follow_the_table_and_back_skips_what_they_turned(reported: Reported) -> None:
    browser = reported(made_report(12))
    Select(one_of(browser, "select[aria-label=verdict]")).select_by_value("search error")
    shows(lambda: len(listed(browser)), 3)
    one_of(browser, "#sentences tbody a").click()
    shows(lambda: heading(browser), "Sentence 3 of 12")
    press(browser, Keys.ARROW_RIGHT)
    shows(lambda: heading(browser), "Sentence 7 of 12")
    one_of(browser, "[aria-label=next]").click()
    shows(lambda: heading(browser), "Sentence 11 of 12")
    press(browser, Keys.ARROW_RIGHT)
    shows(lambda: heading(browser), "Sentence 11 of 12")  # it was the last
    browser.back()
    shows(lambda: one_of(browser, "#scores").is_displayed(), True)


def test_a_sentence_without_an_inside_still_shows_its_texts(reported: Reported) -> None:
    browser = reported(
        replace(made_report(2), sentences=(judged(0), replace(judged(1), explanation=None))), "#sentence-2"
    )
    shows(lambda: texts(browser, ".judged dt")[:2], ["source", "output"])
    shows(lambda: texts(browser, ".judged dd")[:2], ["sentence 2", "output sentence 2"])
    shows(lambda: one_of(browser, ".one main").is_displayed(), False)
    press(browser, Keys.ARROW_LEFT)
    shows(lambda: one_of(browser, ".one main").is_displayed(), True)


def test_an_address_that_leads_nowhere_shows_the_report(reported: Reported) -> None:
    for place in ("#sentence-99", "#sentence-0", "#nothing", "#sentence-x"):
        scores = one_of(reported(made_report(3), place), "#scores")
        shows(scores.is_displayed, True)


# --- the map of states ---------------------------------------------------------------------------------------------


def test_points_of_the_map_say_their_sentence_and_lead_to_it(reported: Reported) -> None:
    browser = reported(made_report(8))
    dots = some_of(browser, "#states a", 8)
    assert len(dots) == 8
    across = [float(one_of(dot, "circle").get_attribute("cx")) for dot in dots]
    assert across == sorted(across), "arrows walk from left to right"
    ActionChains(browser).move_to_element(dots[4]).perform()
    readout = one_of(browser, "#states .readout")
    told = "5: “\u2068sentence 5\u2069”, BLEU 4.0, length 6"
    shows(lambda: readout.text, told)
    shades = [one_of(dot, "circle").value_of_css_property("fill") for dot in dots]
    Select(one_of(browser, "#states select")).select_by_visible_text("BLEU")
    shows(lambda: len({circle.value_of_css_property("fill") for circle in all_of(browser, "#states a circle")}), 8)
    assert shades != [circle.value_of_css_property("fill") for circle in all_of(browser, "#states a circle")]
    some_of(browser, "#states a", 8)[2].click()
    shows(lambda: heading(browser), "Sentence 3 of 8")


def test_keys_walk_over_the_map(reported: Reported) -> None:
    browser = reported(made_report(8))
    browser.execute_script("arguments[0].focus()", one_of(browser, "#states a"))
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    shows(lambda: browser.switch_to.active_element.get_attribute("data-index"), "2")
    shows(lambda: len(all_of(browser, "#states a[tabindex='0']")), 1)
    press(browser, Keys.ENTER)
    shows(lambda: heading(browser), "Sentence 3 of 8")


def test_all_controls_are_reached_by_tab(reported: Reported) -> None:
    browser = reported(made_report(4))
    seen: list[str] = []
    for _ in range(90):
        press(browser, Keys.TAB)
        where = browser.execute_script(
            "return document.activeElement.closest('.contents, section')?.id || document.activeElement.tagName"
        )
        if where not in seen:
            seen.append(where)
    wanted = ["scores", "diagnosis", "gallery", "states", "words", "sentences", "dataset"]
    assert [name for name in seen if name in wanted] == wanted


# --- text is text, every screen ------------------------------------------------------------------------------------

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"


def test_a_script_in_any_text_is_shown_and_not_run(reported: Reported) -> None:
    browser = reported(made_report(4, EVIL, systems=("a", "b")))
    shows(lambda: one_of(browser, "h1").text, EVIL)
    shows(lambda: EVIL in listed(browser), True)
    one_of(browser, "#sentences tbody a").click()
    shows(lambda: texts(browser, ".one .text")[0], EVIL)
    assert browser.execute_script("return window.hacked") is None
    assert len(all_of(browser, "script")) == 2
    assert not all_of(browser, "img")


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("place", ["", "#sentence-1"])
def test_nothing_is_wider_than_the_screen(reported: Reported, width: int, place: str) -> None:
    browser = reported(made_report(6, "w" * 200, systems=("a", "b"), tokens=60), place)
    show(browser, width)
    shows(lambda: overflows(browser), False)


def test_on_a_phone_plots_are_drawn_for_it(reported: Reported) -> None:
    browser = reported(made_report(30, systems=("a", "b")))
    show(browser, 360)
    for plot in all_of(browser, ".plot svg"):
        assert 200 < plot.rect["width"] <= 345
    shows(lambda: all_of(browser, "#sentences td.wide")[0].is_displayed(), False)


def test_dark_is_dark_and_letters_stand_out(reported: Reported) -> None:
    browser = reported(made_report(4))

    def brightness(element: WebElement, of: str) -> float:
        red, green, blue = (
            int(part) for part in element.value_of_css_property(of).split("(")[1].split(")")[0].split(",")[:3]
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for dark in (False, True):
        show(browser, dark=dark)
        paper = brightness(one_of(browser, "body"), "background-color")
        for selector, of in ((".rows td", "color"), (".plot text", "fill"), (".card", "color")):
            assert abs(brightness(one_of(browser, selector), of) - paper) > 140, (selector, dark)
        assert abs(brightness(one_of(browser, "g.s0 circle"), "fill") - paper) > 70


def test_it_prints_on_paper(reported: Reported) -> None:
    browser = reported(made_report(30, systems=("a", "b")))
    assert base64.b64decode(browser.print_page()).startswith(b"%PDF")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shows(lambda: one_of(browser, ".contents").is_displayed(), False)
    shows(lambda: one_of(browser, "#sentences .controls").is_displayed(), False)
    shows(lambda: one_of(browser, "#lengths .plot svg").is_displayed(), True)
    shows(lambda: one_of(browser, "#sentences .paper").text, "25 of 30 are on paper; the file itself shows all")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    shows(lambda: one_of(browser, "#sentences .paper").is_displayed(), False)
