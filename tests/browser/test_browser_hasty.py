"""People without patience, and those who try everything: reload, switch, paste, two tabs, a server started anew."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select

import served_runs
from chromium import all_of, one_of, overflows, show, shows, some_of, texts
from seqloom.serve.batcher import Batcher
from seqloom.serve.keys import Keys as ServerKeys
from seqloom.serve.limits import Limits
from seqloom.serve.service import Service
from serving import serving

pytestmark = pytest.mark.xdist_group("browser")

TEXT = "ant bee cat"
Both = tuple[httpx.Client, Service]


@pytest.fixture(scope="module")
def served() -> Iterator[Both]:
    with serving(served_runs.reversing(), served_runs.heads(), limits=Limits(rate="none")) as both:
        yield both


@pytest.fixture
def page(browser: webdriver.Chrome, served: Both) -> Iterator[webdriver.Chrome]:
    """The page, just opened, with nothing remembered; in the end it has said nothing in the console."""
    address = str(served[0].base_url)
    browser.get(address)
    browser.execute_script("sessionStorage.clear()")
    opened(browser, address)
    yield browser
    assert browser.get_log("browser") == []


def opened(browser: webdriver.Chrome, address: str) -> None:
    browser.get("about:blank")
    browser.get(address)
    shows(lambda: one_of(browser, ".about").text != "", True)


def typed(browser: webdriver.Chrome, text: str) -> None:
    """At once, as it is pasted."""
    field = one_of(browser, "textarea")
    browser.execute_script(
        "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input'))", field, text
    )


def output(browser: webdriver.Chrome, place: int = 0) -> str:
    shows(lambda: "streaming" in some_of(browser, ".output", place + 1)[place].get_attribute("class"), False)
    return some_of(browser, ".output", place + 1)[place].text


def answer(both: Both, text: str = TEXT, **more: object) -> str:
    told = both[0].post("/v1/explain", json={"input": text, **more})
    assert told.status_code == 200, told.text
    return str(told.json()["answer"])


def value(browser: webdriver.Chrome) -> str:
    return str(one_of(browser, "textarea").get_property("value"))


def notice(browser: webdriver.Chrome) -> str:
    found = one_of(browser, "main > .trouble")
    return found.text if found.is_displayed() else ""


def trouble(browser: webdriver.Chrome) -> str:
    found = one_of(browser, ".panel .trouble")
    return found.text if found.is_displayed() else ""


def link(browser: webdriver.Chrome, **question: object) -> str:
    found: str = browser.execute_async_script(
        "const [asked, done] = arguments;"
        "import('/page/keeping.js').then(({ linked, EMPTY }) => done(linked({ ...EMPTY, ...asked })));",
        question,
    )
    return found


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Streams stop after every piece until this is set."""
    go, goes_on = threading.Event(), Batcher._goes_on

    def slowly(batcher: Batcher, stream: object) -> bool:
        more = goes_on(batcher, stream)  # type: ignore[arg-type]
        go.wait(20)
        return more

    monkeypatch.setattr(Batcher, "_goes_on", slowly)
    yield go
    go.set()


# --- in the middle of an answer --------------------------------------------------------------------------------------


def test_a_page_that_is_loaded_again_in_the_middle_of_an_answer_asks_again(
    page: webdriver.Chrome, served: Both, held: threading.Event
) -> None:
    typed(page, TEXT)
    shows(lambda: bool(one_of(page, ".output.streaming").text), True)
    page.refresh()
    shows(lambda: value(page), TEXT)
    held.set()
    shows(lambda: output(page), answer(served))


def test_another_model_in_the_middle_of_an_answer(page: webdriver.Chrome, served: Both, held: threading.Event) -> None:
    typed(page, TEXT)
    shows(lambda: bool(one_of(page, ".output.streaming").text), True)
    Select(one_of(page, "[data-control=model]")).select_by_visible_text("heads")
    held.set()
    shows(lambda: output(page), answer(served, model="heads"))
    assert texts(page, ".panel .model") == ["heads"]


def test_two_tabs_have_a_history_of_their_own(page: webdriver.Chrome, served: Both) -> None:
    typed(page, TEXT)
    shows(lambda: output(page), answer(served))
    first = page.current_window_handle
    page.switch_to.new_window("tab")
    try:
        opened(page, str(served[0].base_url))
        assert not one_of(page, ".history").is_displayed()
        typed(page, "dog eel")
        shows(lambda: output(page), answer(served, "dog eel"))
    finally:
        page.close()
        page.switch_to.window(first)
    assert texts(page, ".history summary") == ["History (1)"]
    assert (value(page), output(page)) == (TEXT, answer(served))


def test_the_history_has_the_first_models_answers(page: webdriver.Chrome, served: Both) -> None:
    Select(one_of(page, "[data-control=other]")).select_by_visible_text("heads")
    typed(page, TEXT)
    shows(lambda: (output(page), output(page, 1)), (answer(served), answer(served, model="heads")))
    one_of(page, ".history summary").click()
    shows(lambda: texts(page, ".history li .soft"), [answer(served)])


def test_a_full_history_forgets_the_oldest(page: webdriver.Chrome, served: Both) -> None:
    asked = {"model": "reversing", "begin": [], "attend": [], "masks": []}
    entries = [{"question": {**asked, "text": f"{number} dog"}, "answer": "dog"} for number in range(30)]
    page.execute_script("sessionStorage.setItem('seqloom-history', arguments[0])", json.dumps(entries))
    opened(page, str(served[0].base_url))
    shows(lambda: texts(page, ".history summary"), ["History (30)"])
    typed(page, TEXT)
    shows(lambda: output(page), answer(served))
    shows(lambda: texts(page, ".history summary"), ["History (30)"])
    one_of(page, ".history summary").click()
    shows(lambda: [text.split("\n")[0] for text in texts(page, ".history li")][::29], [TEXT, "28 dog"])


# --- texts that nobody expects ---------------------------------------------------------------------------------------


def test_ten_thousand_words_are_refused_by_their_number_and_kept(page: webdriver.Chrome) -> None:
    text = "word " * 10_000
    typed(page, text)
    shows(lambda: "characters: 50,000 characters, the limit is 10,000" in trouble(page), True)
    assert value(page) == text
    assert not overflows(page)
    page.get_log("browser")  # a refusal stands there too
    page.refresh()
    shows(lambda: value(page), text)
    shows(lambda: "the limit is 10,000" in trouble(page), True)
    page.get_log("browser")


def test_eighty_lines_leave_room_for_the_rest_of_the_page(page: webdriver.Chrome, served: Both) -> None:
    show(page, 360)
    typed(page, "ant\n" * 80)
    shows(lambda: len(all_of(page, ".sentences button")), 80)
    assert one_of(page, ".sentences").rect["height"] < 200
    some_of(page, ".sentences button", 80)[3].click()
    shows(lambda: some_of(page, ".sentences button", 80)[3].get_attribute("aria-pressed"), "true")


@pytest.mark.parametrize(
    "text",
    [
        "שלום ant مرحبا",
        "👩‍👩‍👧‍👦 ant 🏳️‍🌈 🇩🇪",
        "e\u0301a\u0323\u0302 ant Z\u0335\u0321\u0327\u0322",
        "\u202eant\u202c \u200fbee\u2069",
        "ant\u0000bee\ufffd\u2028cat",
        "𝕬𝖓𝖙 ﷽ ꧁ant꧂",
    ],
)
def test_texts_of_every_script(page: webdriver.Chrome, served: Both, text: str) -> None:
    typed(page, text)
    wanted = served[0].post("/v1/predict", json={"inputs": value(page)}).json()["predictions"][0]["text"]
    shows(lambda: one_of(page, ".output").get_property("textContent"), wanted or "(nothing)")
    shows(lambda: one_of(page, ".output").get_attribute("class"), "output")
    assert not overflows(page)
    show(page, 360)
    assert not overflows(page)
    asked = value(page)
    page.refresh()
    shows(lambda: value(page), asked)


# --- links -----------------------------------------------------------------------------------------------------------


def test_a_link_of_a_model_that_is_not_served_says_so(page: webdriver.Chrome, served: Both) -> None:
    found = link(page, text=TEXT, model="gone", other="lost")
    opened(page, f"{served[0].base_url}/{found}")
    shows(lambda: notice(page), "Not served here: gone and lost. reversing answers instead.")
    shows(lambda: output(page), answer(served))
    assert Select(one_of(page, "[data-control=other]")).first_selected_option.text == "no other"
    Select(one_of(page, "[data-control=model]")).select_by_visible_text("heads")
    shows(lambda: (notice(page), output(page)), ("", answer(served, model="heads")))


def test_a_link_with_edits_of_another_model_can_be_undone(page: webdriver.Chrome, served: Both) -> None:
    found = link(page, text=TEXT, begin=["zebra"], masks=["7.7"], part=5, beam="x")
    opened(page, f"{served[0].base_url}/{found}")
    shows(lambda: bool(trouble(page)), True)
    one_of(page, "[data-do=undo]").click()
    typed(page, TEXT + " dog")
    shows(lambda: (output(page), trouble(page)), (answer(served, TEXT + " dog"), ""))
    page.get_log("browser")


# --- servers that change ---------------------------------------------------------------------------------------------


def test_a_server_that_is_started_anew_with_another_run(browser: webdriver.Chrome) -> None:
    with serving(served_runs.reversing()) as both:
        opened(browser, str(both[0].base_url))
        port = both[0].base_url.port
        typed(browser, TEXT)
        shows(lambda: output(browser), answer(both))
    with serving(served_runs.heads(), port=port or 0) as both:
        typed(browser, "dog eel")
        shows(lambda: notice(browser), "Not served here: reversing. heads answers instead.")
        shows(lambda: output(browser), answer(both, "dog eel"))
        assert value(browser) == "dog eel"
        assert texts(browser, ".panel .model") == ["heads"]
    browser.get_log("browser")


def test_a_key_that_is_revoked_while_an_answer_is_made(
    browser: webdriver.Chrome, tmp_path: Path, held: threading.Event
) -> None:
    """What was begun with a good key is told to its end; the next question needs another key, and none is lost."""
    keys = ServerKeys(tmp_path / "keys.sqlite")
    key, other = keys.add("anna"), keys.add("ben")
    with serving(served_runs.reversing(), keys=keys) as (client, _):
        browser.get(str(client.base_url))
        one_of(browser, "[type=password]").send_keys(key, Keys.ENTER)
        shows(lambda: one_of(browser, ".about").text != "", True)
        typed(browser, TEXT)
        shows(lambda: bool(one_of(browser, ".output.streaming").text), True)
        keys.revoke(key.split("_")[1])
        held.set()
        said = client.post("/v1/explain", json={"input": TEXT}, headers={"X-Api-Key": other}).json()["answer"]
        shows(lambda: output(browser), said)
        typed(browser, "dog eel")
        shows(lambda: "opens with a key" in notice(browser), True)
        one_of(browser, "[type=password]").send_keys(other, Keys.ENTER)
        said = client.post("/v1/explain", json={"input": "dog eel"}, headers={"X-Api-Key": other}).json()["answer"]
        shows(lambda: (value(browser), output(browser)), ("dog eel", said))
    browser.get_log("browser")


# --- files -----------------------------------------------------------------------------------------------------------


def test_a_file_is_kept_for_another_model_that_reads_such_files(browser: webdriver.Chrome, tmp_path: Path) -> None:
    other = Path(shutil.copytree(served_runs.pictures(), tmp_path / "others"))
    picture = served_runs.pictures().parent / "blocks" / "0.png"
    with serving(served_runs.pictures(), other, served_runs.reversing()) as both:
        opened(browser, str(both[0].base_url))
        one_of(browser, "input[type=file]").send_keys(str(picture))
        files = {"file": ("0.png", picture.read_bytes())}
        told = both[0].post("/v1/predict/file", files=files).json()["predictions"][0]["text"] or "(nothing)"
        shows(lambda: output(browser), told)
        Select(one_of(browser, "[data-control=model]")).select_by_visible_text("others")
        shows(lambda: (texts(browser, ".panel .model"), output(browser)), (["others"], told))
        Select(one_of(browser, "[data-control=model]")).select_by_visible_text("reversing")
        shows(lambda: one_of(browser, ".output").text, "")
    assert browser.get_log("browser") == []


def test_a_recording_ends_when_another_model_is_chosen(browser: webdriver.Chrome) -> None:
    with serving(served_runs.sound(), served_runs.reversing()) as both:
        opened(browser, str(both[0].base_url))
        one_of(browser, "[data-do=record]").click()
        shows(lambda: one_of(browser, "[data-do=record]").text, "Stop")
        Select(one_of(browser, "[data-control=model]")).select_by_visible_text("reversing")
        typed(browser, TEXT)
        shows(lambda: output(browser), answer(both, model="reversing"))
        Select(one_of(browser, "[data-control=model]")).select_by_visible_text("sound")
        shows(lambda: one_of(browser, "[data-do=record]").text, "Speak")
        assert "recording.wav" not in one_of(browser, ".drop").text
    assert browser.get_log("browser") == []


def test_keys_pressed_in_haste_ask_the_newest_question(page: webdriver.Chrome, served: Both) -> None:
    field = one_of(page, "textarea")
    for word in ("ant", " bee", " cat"):
        field.send_keys(word)
        for _ in range(3):
            one_of(page, "[data-do=ask]").click()
    shows(lambda: output(page), answer(served))
    shows(
        lambda: json.loads(page.execute_script("return sessionStorage['seqloom-history']"))[0]["question"]["text"], TEXT
    )
