"""The page of Smart Reply in a real browser: suggestions, what led to them, editing, the log; in all sizes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium import webdriver

import served_runs
from chromium import all_of, keys_to, one_of, overflows, requests, show, shows, texts
from replying_served import serving_replies
from serving import serving

pytestmark = pytest.mark.xdist_group("browser")

QUESTION = "are you coming to the party tonight?"
MARKUP = "<img src=x onerror=alert(1)><script>alert(2)</script> " + QUESTION


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log") / "feedback.jsonl"


@pytest.fixture(scope="module")
def client(log: Path) -> Iterator[httpx.Client]:
    with serving_replies(log=log) as client:
        yield client


@pytest.fixture
def page(browser: webdriver.Chrome, client: httpx.Client, log: Path) -> Iterator[webdriver.Chrome]:
    """The page, opened; in the end it has complained of nothing and asked nobody but its server."""
    log.unlink(missing_ok=True)
    browser.get(f"{client.base_url}/reply")
    shows(lambda: "permitted replies" in one_of(browser, ".about").text, True)
    yield browser
    assert browser.get_log("browser") == []
    assert all(address.startswith(str(client.base_url)) for address in requests(browser))


def ask(page: webdriver.Chrome, message: str, anyway: bool = True) -> None:
    if anyway and not one_of(page, "#anyway").is_selected():
        one_of(page, "#anyway").click()
    one_of(page, "#text").clear()
    keys_to(page, "#text", message)
    one_of(page, "[data-do=suggest]").click()


def written(log: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def test_a_message_gets_suggestions_and_all_that_led_to_them(page: webdriver.Chrome) -> None:
    ask(page, QUESTION)
    shows(lambda: len(all_of(page, ".choice")), 3)
    assert len(set(texts(page, ".choice .intent"))) == 3
    assert [one.get_attribute("data-step") for one in all_of(page, "[data-step]")][:3] == [
        "text",
        "quotes",
        "signature",
    ]
    assert texts(page, "h2") == ["Suggestions", "Preprocessing", "Sensitivity", "Trigger", "Ranking"]
    assert len(all_of(page, ".ranking tbody tr")) > 3
    assert len(all_of(page, ".ranking .shown")) >= 2


def test_a_suggestion_is_edited_and_only_logged(page: webdriver.Chrome, log: Path) -> None:
    ask(page, QUESTION)
    shows(lambda: len(all_of(page, ".choice")), 3)
    chosen = one_of(page, ".choice .words").text
    one_of(page, ".choice").click()
    shows(lambda: one_of(page, "#reply").get_attribute("value"), chosen)
    keys_to(page, "#reply", ", at ten")
    one_of(page, "[data-do=send]").click()
    shows(lambda: one_of(page, ".outcome").text, "Logged as sent edited. Nothing was sent.")
    (line,) = written(log)
    assert (line["outcome"], line["chosen"], line["sent"]) == ("edited", chosen, f"{chosen}, at ten")
    assert not one_of(page, "[data-do=send]").is_enabled()


def test_a_suggestion_sent_as_it_is_and_none_at_all(page: webdriver.Chrome, log: Path) -> None:
    ask(page, QUESTION)
    shows(lambda: len(all_of(page, ".choice")), 3)
    all_of(page, ".choice")[1].click()
    one_of(page, "[data-do=send]").click()
    shows(lambda: [line["outcome"] for line in written(log)], ["unchanged"])
    ask(page, "did you finish the report?")
    shows(lambda: all(one.is_enabled() for one in all_of(page, ".choice")), True)
    one_of(page, "[data-do=ignore]").click()
    shows(lambda: [line["outcome"] for line in written(log)], ["unchanged", "ignored"])


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        ("My uncle died on Sunday.", "No suggestion: the message seems sensitive: death: died."),
        ("> are you coming?", "No suggestion: nothing of its own: all of it is quoted or forwarded."),
    ],
)
def test_no_suggestion_says_why(page: webdriver.Chrome, message: str, reason: str) -> None:
    ask(page, message)
    shows(lambda: one_of(page, ".reason").text, reason)
    assert all_of(page, ".choice") == []
    assert texts(page, "[data-step] h3")[0] == "1. text"


def test_markup_is_shown_as_text_and_never_run(page: webdriver.Chrome) -> None:
    ask(page, MARKUP)
    shows(lambda: one_of(page, "[data-step=text] pre").text, MARKUP)
    assert page.execute_script("return document.querySelectorAll('main img, main script').length") == 0


def test_by_keyboard(page: webdriver.Chrome) -> None:
    from selenium.webdriver.common.keys import Keys

    one_of(page, "#anyway").click()
    keys_to(page, "#text", QUESTION, Keys.CONTROL + Keys.ENTER)
    shows(lambda: len(all_of(page, ".choice")), 3)
    all_of(page, ".choice")[2].send_keys(Keys.ENTER)
    shows(lambda: one_of(page, ".choice:nth-child(3)").get_attribute("aria-pressed"), "true")
    shows(lambda: page.switch_to.active_element.get_attribute("id"), "reply")


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_runs_over_the_edge(page: webdriver.Chrome, width: int, dark: bool) -> None:
    show(page, width, dark)
    ask(page, QUESTION + " " + "x" * 300)
    shows(lambda: len(all_of(page, ".choice")), 3)
    one_of(page, ".choice").click()
    assert not overflows(page)


def test_when_the_server_refuses_the_text_is_kept(page: webdriver.Chrome) -> None:
    long = "word " * 2_500
    page.execute_script("document.querySelector('#text').value = arguments[0]", long)
    one_of(page, "[data-do=suggest]").click()
    shows(lambda: "characters: 12,500 characters, the limit is 10,000" in one_of(page, ".trouble").text, True)
    assert one_of(page, "#text").get_attribute("value") == long
    log = page.get_log("browser")  # the browser itself notes the refused request, and nothing else
    assert [entry["source"] for entry in log] == ["network"]


def test_the_page_of_other_runs_leads_here(browser: webdriver.Chrome) -> None:
    with serving_replies(served_runs.reversing()) as client:
        browser.get(str(client.base_url))
        one_of(browser, "a[href='/reply']:not([hidden])").click()
        shows(lambda: "permitted replies" in one_of(browser, ".about").text, True)


def test_without_a_smart_reply_the_page_says_so(browser: webdriver.Chrome) -> None:
    with serving(served_runs.reversing()) as (client, _):
        browser.get(str(client.base_url))
        shows(lambda: one_of(browser, "a[href='/reply']").is_displayed(), False)
        browser.get(f"{client.base_url}/reply")
        shows(lambda: "no Smart Reply is served here" in one_of(browser, ".trouble").text, True)
