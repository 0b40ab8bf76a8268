"""The page of a server in a real browser: type, see, click, override, compare; and what a person sees when it fails."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

import served_runs
from chromium import all_of, keys_to, one_of, overflows, press, requests, show, shows, some_of, texts
from seqloom.serve.batcher import Batcher, Pace
from seqloom.serve.keys import Keys as ServerKeys
from seqloom.serve.limits import Limits
from seqloom.serve.service import Service
from seqloom.web.refusals import Refusal
from serving import serving

pytestmark = pytest.mark.xdist_group("browser")

TEXT = "ant bee cat"
HASTE = """
const slowly = setTimeout;
window.setTimeout = (call, time, ...more) => slowly(call, time === 4000 ? 50 : time, ...more);
"""
MANY = """
const [count, done] = arguments;
import('/page/view.js').then(({ View }) => {
  const tokens = Array.from({ length: count }, (_, place) => `t${place}`);
  const side = { tokens, words: Array(count).fill(-1), labels: [] };
  const code = (_, place) => String.fromCharCode(place % (count + 1) ? 0 : 255);
  const codes = btoa(Array.from({ length: count * count }, code).join(''));
  const steps = tokens.map(() => ({ log_prob: -0.1, rank: 1, likeliest: [] }));
  const attention = { source: { shape: [1, 1, count, count], codes } };
  const one = { text: 't', extras: {}, answer: 't', log_prob: -1, source: side, output: side, steps, attention };
  const view = new View({ begin: '<bos>', steps: 255, fates: {}, answers: [one] });
  document.querySelector('main').replaceChildren(view.panes());
  view.drawAnswer(0);
  done();
});
"""
Both = tuple[httpx.Client, Service]


@pytest.fixture(scope="module")
def served() -> Iterator[Both]:
    with serving(served_runs.reversing(), served_runs.heads(), limits=Limits(rate="none")) as (client, service):
        service.shows_examples = service.at_home = True
        yield client, service


@pytest.fixture
def page(browser: webdriver.Chrome, served: Both) -> Iterator[webdriver.Chrome]:
    """The page, just opened; in the end it has said nothing in the console and asked nobody but its server."""
    address = str(served[0].base_url)
    browser.get(address)
    browser.execute_script("sessionStorage.clear()")  # what the test before has asked
    browser.get("about:blank")
    browser.get(address)
    shows(lambda: one_of(browser, ".about").text != "", True)
    yield browser
    assert browser.get_log("browser") == []
    asked = requests(browser)
    assert any(one.endswith("/v1/models") for one in asked)
    assert {one for one in asked if not one.startswith((address, "blob:", "data:"))} == set()


def typed(browser: webdriver.Chrome, text: str) -> None:
    field = one_of(browser, "textarea")
    field.clear()
    field.send_keys(text)


def output(browser: webdriver.Chrome, place: int = 0) -> str:
    """What is said, once nothing more comes."""
    shows(lambda: "streaming" in some_of(browser, ".output", place + 1)[place].get_attribute("class"), False)
    return some_of(browser, ".output", place + 1)[place].text


def explained(served: Both, text: str = TEXT, **more: object) -> dict[str, object]:
    told: dict[str, object] = served[0].post("/v1/explain", json={"input": text, **more}).json()
    return told


def answers(browser: webdriver.Chrome, text: str, wanted: object) -> None:
    typed(browser, text)
    shows(lambda: output(browser), wanted)


def value(browser: webdriver.Chrome) -> str:
    return str(one_of(browser, "textarea").get_property("value"))


def said(browser: webdriver.Chrome, place: int, side: str = "output") -> WebElement:
    return some_of(browser, f".tokens [data-side={side}]", place + 1)[place]


def chips(browser: webdriver.Chrome) -> list[str]:
    return [one.text.replace("\u2068", "").replace("\u2069", "") for one in all_of(browser, ".chip > span")]


def readout(browser: webdriver.Chrome) -> str:
    """Without the marks that isolate a text's direction."""
    return one_of(browser, "main .readout").text.replace("\u2068", "").replace("\u2069", "")


# --- type and see ----------------------------------------------------------------------------------------------------


def test_what_is_typed_is_answered_and_drawn(page: webdriver.Chrome, served: Both) -> None:
    told = explained(served)
    answers(page, TEXT, told["answer"])
    shows(lambda: texts(page, ".tokens [data-side=source]"), [*TEXT.split(), "<eos>"])
    shows(lambda: texts(page, ".tokens [data-side=output]"), [one["token"] for one in told["output"]])  # type: ignore[index, union-attr]
    shows(lambda: len(all_of(page, "td[data-row]")), 4 * len(told["output"]))  # type: ignore[arg-type]
    shows(lambda: len(all_of(page, ".beam .node")), len(told["tree"]["nodes"]))  # type: ignore[index, call-overload]
    assert "%" in one_of(page, ".sure").text
    one_of(page, ".choice label:has([value=ribbons])").click()
    assert some_of(page, ".ribbons path")


def test_pieces_are_shown_while_they_come(
    page: webdriver.Chrome, served: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two pieces of a stream the server waits until the first was seen."""
    go, goes_on = threading.Event(), Batcher._goes_on

    def slowly(batcher: Batcher, stream: object) -> bool:
        more = goes_on(batcher, stream)  # type: ignore[arg-type]
        go.wait(20)
        return more

    monkeypatch.setattr(Batcher, "_goes_on", slowly)
    typed(page, TEXT)
    try:
        shows(lambda: bool(one_of(page, ".output.streaming").text), True)
        seen = one_of(page, ".output").text
        assert not all_of(page, ".tokens [data-side=output]")
    finally:
        go.set()
    told = str(explained(served)["answer"])
    assert told.startswith(seen)
    shows(lambda: output(page), told)


def test_an_empty_text_is_not_asked(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    one_of(page, "textarea").send_keys(Keys.CONTROL, "a")
    one_of(page, "textarea").send_keys(Keys.BACKSPACE)
    shows(lambda: one_of(page, ".panes").is_displayed(), False)
    shows(lambda: one_of(page, ".output").text, "")


def test_lines_are_answered_one_by_one_and_one_is_looked_into(page: webdriver.Chrome, served: Both) -> None:
    text = "ant bee\ncat dog"
    answers(page, text, served[0].post("/v1/predict", json={"inputs": text}).json()["predictions"][0]["text"])
    shows(lambda: texts(page, ".sentences button"), ["ant bee", "cat dog"])
    shows(lambda: texts(page, ".tokens [data-side=source]"), ["ant", "bee", "<eos>"])
    some_of(page, ".sentences button", 2)[1].click()
    shows(lambda: texts(page, ".tokens [data-side=source]"), ["cat", "dog", "<eos>"])


def test_the_newest_question_wins(page: webdriver.Chrome, served: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (explained(served, text)["answer"] for text in (TEXT, "dog eel"))
    go, stream = threading.Event(), Service.stream

    def held(service: Service, pieces: Callable[[], Iterator[object]]) -> object:
        go.wait(0 if go.is_set() else 0.3)
        return stream(service, pieces)

    monkeypatch.setattr(Service, "stream", held)
    typed(page, TEXT)
    press(page, Keys.CONTROL, Keys.ENTER)
    typed(page, "dog eel")
    press(page, Keys.CONTROL, Keys.ENTER)
    go.set()
    shows(lambda: output(page), second)
    time.sleep(0.4)
    assert output(page) == second != first


def test_text_is_text(page: webdriver.Chrome, served: Both) -> None:
    evil = "<script>document.title='x'</script> <img src=x onerror=document.title='x'> \u202eant"
    typed(page, evil)
    output(page)
    one_of(page, ".tools summary").click()
    shows(lambda: "<script>document.title" in one_of(page, ".command").text, True)
    assert not all_of(page, "main script, main img")
    assert page.title.startswith("seqloom")
    one_of(page, ".history summary").click()
    assert "<script>" in one_of(page, ".history li").text


def test_words_that_the_model_does_not_know_are_shown_as_they_were_typed(page: webdriver.Chrome, served: Both) -> None:
    text = "ant zebra bee"
    answers(page, text, explained(served, text)["answer"])
    shows(lambda: texts(page, ".tokens [data-side=source]"), ["ant", "zebra", "bee", "<eos>"])
    assert texts(page, ".token.unknown") == ["zebra"]
    assert one_of(page, ".token.unknown").get_attribute("aria-label") == "zebra, unknown to the model: it reads <unk>"
    assert texts(page, ".map .unknown") == ["zebra"]
    assert texts(page, ".unread .unknown") == ["zebra"]
    answers(page, TEXT, explained(served)["answer"])
    shows(lambda: texts(page, ".unknown"), [])


def test_an_edit_after_the_end_of_the_answer_is_said(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    link = page.execute_async_script(
        """
        const [text, attend, done] = arguments;
        import('/page/keeping.js').then(({ linked, EMPTY }) => done(linked({ ...EMPTY, text, attend })));
    """,
        TEXT,
        ["99=1"],
    )
    page.get("about:blank")
    page.get(f"{served[0].base_url}/{link}")
    shows(lambda: chips(page), ["token 99 looks at 1 (of no effect: the answer ends before)"])
    assert output(page) == explained(served)["answer"]


def test_right_to_left_text_has_its_direction(page: webdriver.Chrome) -> None:
    typed(page, "שלום עולם")
    output(page)
    shows(lambda: one_of(page, ".tokens:has([data-side=source])").get_attribute("dir"), "rtl")
    assert one_of(page, "textarea").get_attribute("dir") == "auto"
    assert page.execute_script("return document.querySelector('textarea').matches(':dir(rtl)')")


# --- click and override ----------------------------------------------------------------------------------------------


def test_a_runner_up_is_chosen_and_the_rest_said_anew(page: webdriver.Chrome, served: Both) -> None:
    before = explained(served, likeliest=6)
    answers(page, TEXT, before["answer"])
    said(page, 0).click()
    other = some_of(page, ".choose")[0]
    token = other.text
    other.click()
    shows(lambda: output(page), explained(served, begin=[token])["answer"])
    shows(lambda: chips(page), [f"begins with “{token}”"])
    shows(lambda: texts(page, ".edit dd"), [before["answer"], output(page)])
    one_of(page, "[data-do=undo]").click()
    shows(lambda: (output(page), chips(page)), (before["answer"], []))


def test_an_answer_can_be_made_to_end(page: webdriver.Chrome, served: Both) -> None:
    told = explained(served, likeliest=6)
    answers(page, TEXT, told["answer"])
    steps: list[dict[str, object]] = told["output"]  # type: ignore[assignment]
    early = [place for place, step in enumerate(steps[1:-1], 1) if "<eos>" in str(step["likeliest"])]
    said(page, early[-1]).click()
    next(one for one in some_of(page, ".choose") if one.text == "<eos>").click()
    wanted = " ".join(str(step["token"]) for step in steps[: early[-1]])
    shows(lambda: output(page), wanted)
    shows(lambda: chips(page), [f"says only “{wanted}”"])


def test_a_source_word_is_replaced(page: webdriver.Chrome, served: Both) -> None:
    answers(page, "ant  bee cat", explained(served, "ant  bee cat")["answer"])
    said(page, 3, "source").click()  # two blanks are two tokens of their own
    field = one_of(page, ".detail input")
    field.clear()
    field.send_keys("dog", Keys.ENTER)
    shows(lambda: value(page), "ant  dog cat")
    shows(lambda: output(page), explained(served, "ant  dog cat")["answer"])


def test_attention_is_dragged_elsewhere(page: webdriver.Chrome, served: Both) -> None:
    before = explained(served)["answer"]
    answers(page, TEXT, before)
    one_of(page, "[data-control=moving]").click()
    cells = some_of(page, "td[data-row='0']", 4)
    ActionChains(page).click_and_hold(cells[0]).move_to_element(cells[1]).release().perform()
    shows(lambda: chips(page), ["token 1 looks at “ant”, “bee”"])
    shows(lambda: output(page), explained(served, attend=["1=1,1"])["answer"])
    shows(lambda: [one.text for one in some_of(page, "td[data-row='0']", 4)][:2], ["50", "50"])
    one_of(page, "td[data-row='0'][data-column='0']").click()
    shows(lambda: chips(page), ["token 1 looks at “ant”"])
    shows(lambda: output(page), explained(served, attend=["1=1"])["answer"])
    one_of(page, ".chip button").click()
    shows(lambda: output(page), before)


def test_ribbons_are_dragged_from_a_said_token_to_a_read_one(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    one_of(page, ".choice label:has([value=ribbons])").click()
    one_of(page, "[data-control=moving]").click()
    from_, to = (one_of(page, f".ribbons [data-place={side}]") for side in ("right", "left"))
    page.execute_script("arguments[0].scrollIntoView({block: 'center'})", from_)
    ActionChains(page).click_and_hold(from_).move_to_element(to).release().perform()
    shows(lambda: chips(page), ["token 1 looks at “ant”"])


def test_a_head_is_masked(page: webdriver.Chrome, served: Both) -> None:
    Select(one_of(page, "[data-control=model]")).select_by_visible_text("heads")
    answers(page, TEXT, explained(served, model="heads")["answer"])
    one_of(page, "[data-layer='0'][data-head='1']").click()
    one_of(page, "[data-control=mask]").click()
    shows(lambda: chips(page), ["head 1.2 masked"])
    shows(lambda: output(page), explained(served, model="heads", mask_heads=["1.2"])["answer"])
    shows(lambda: one_of(page, "[data-layer='0'][data-head='1']").get_attribute("class"), "masked")
    one_of(page, ".choice label:has([value=within_source])").click()
    one_of(page, "[data-layer='1'][data-head='0']").click()
    one_of(page, "[data-control=mask]").click()
    shows(lambda: chips(page), ["head 1.2 masked", "head encoder.2.1 masked"])


def test_a_node_of_the_beam_is_followed(page: webdriver.Chrome, served: Both) -> None:
    told = explained(served)
    answers(page, TEXT, told["answer"])
    nodes = told["tree"]["nodes"]  # type: ignore[index, call-overload]
    place = next(index for index, node in enumerate(nodes) if node["step"] == 1 and not node["won"])
    ActionChains(page).move_to_element(one_of(page, f".node[data-node='{place}']")).click().perform()
    shows(lambda: chips(page), [f"begins with “{nodes[place]['token']}”"])
    shows(lambda: output(page), explained(served, begin=[nodes[place]["token"]])["answer"])


def test_all_of_it_works_by_keys(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    page.execute_script("arguments[0].focus()", said(page, 0))
    press(page, Keys.ENTER)
    button = one_of(page, ".choose")
    token = button.text
    page.execute_script("arguments[0].focus()", button)
    press(page, Keys.ENTER)
    shows(lambda: chips(page), [f"begins with “{token}”"])
    shows(lambda: output(page), explained(served, begin=[token])["answer"])
    one_of(page, "[data-control=moving]").send_keys(Keys.ENTER)
    cell = one_of(page, "td[data-row='1'][data-column='0']")
    page.execute_script("arguments[0].focus()", cell)
    press(page, Keys.ENTER)
    shows(lambda: chips(page)[1:], ["token 2 looks at “ant”"])
    shows(lambda: output(page), explained(served, begin=[token], attend=["2=1"])["answer"])
    keys_to(page, ".node", Keys.ARROW_RIGHT, Keys.ENTER)
    shows(lambda: len(chips(page)), 1)


def test_everything_that_can_be_used_has_a_name(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    unnamed = page.execute_script("""
        const named = (one) => one.getAttribute('aria-label') || one.textContent.trim() || one.labels?.length;
        const used = 'button, input, select, textarea, [role=button], [role=grid], canvas:not([aria-hidden])';
        return [...document.querySelectorAll(used)].filter((one) => one.offsetParent && !named(one))
          .map((one) => one.outerHTML);
    """)
    assert unnamed == []


# --- beside the answer -----------------------------------------------------------------------------------------------


def test_a_reference_brings_a_diagnosis(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    one_of(page, "#reference").send_keys("cat ant")
    line = explained(served, reference="cat ant")["diagnosis"]["line"]  # type: ignore[index, call-overload]
    shows(lambda: one_of(page, ".diagnosis p").text, line)


def test_two_models_side_by_side(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    Select(one_of(page, "[data-control=other]")).select_by_visible_text("heads")
    shows(lambda: output(page, 1), explained(served, model="heads")["answer"])
    left, right = (one.rect for one in some_of(page, ".panel", 2))
    assert left["y"] == right["y"]
    assert left["x"] + left["width"] <= right["x"]
    answers(page, "dog", explained(served, "dog")["answer"])
    shows(lambda: output(page, 1), explained(served, "dog", model="heads")["answer"])
    one_of(some_of(page, ".panel", 2)[1], ".choose").click()
    shows(lambda: len(chips(page)), 1)
    assert output(page) == explained(served, "dog")["answer"], "what is edited of one is not edited of the other"


def test_nearest_training_examples(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    one_of(page, "[data-do=nearby]").click()
    told = served[0].post("/v1/neighbours", json={"input": TEXT, "count": 5}).json()["neighbours"]
    shows(lambda: texts(page, ".near li > span:first-child"), [one["source"] for one in told])


def test_history_and_link_bring_back_what_was(page: webdriver.Chrome, served: Both) -> None:
    answers(page, TEXT, explained(served)["answer"])
    said(page, 0).click()
    chosen = some_of(page, ".choose")[0]
    token = chosen.text
    chosen.click()
    shows(lambda: chips(page), [f"begins with “{token}”"])
    wanted = output(page)
    link = page.current_url
    answers(page, "dog", explained(served, "dog")["answer"])
    one_of(page, ".history summary").click()
    shows(lambda: len(all_of(page, ".history li")), 3)
    page.get("about:blank")
    page.get(link)
    shows(lambda: (value(page), chips(page)), (TEXT, [f"begins with “{token}”"]))
    shows(lambda: output(page), wanted)
    one_of(page, ".history summary").click()
    some_of(page, ".history li button", 3)[1].click()
    shows(lambda: value(page), "dog")


@pytest.mark.parametrize("link", ["#nonsense", "#eyJ0ZXh0IjogNX0", "#" + "A" * 5000, "#bnVsbA"])
def test_a_damaged_link_is_no_link(page: webdriver.Chrome, served: Both, link: str) -> None:
    page.get("about:blank")
    page.get(f"{served[0].base_url}/{link}")
    answers(page, "dog", explained(served, "dog")["answer"])


def test_pictures_and_the_command_are_taken_away(page: webdriver.Chrome, served: Both, tmp_path: Path) -> None:
    page.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    answers(page, "ant 'bee'", explained(served, "ant 'bee'")["answer"])
    one_of(page, ".tools summary").click()
    command = one_of(page, ".command").text
    assert command.startswith("seqloom explain ")
    assert command.endswith("reversing 'ant '\"'\"'bee'\"'\"''")
    for name in ("map.svg", "map.png", "beam.svg", "beam.png"):
        one_of(page, f"[data-do={name.replace('.', '-')}]").click()
        shows(lambda name=name: (tmp_path / f"seqloom-{name}").exists(), True)
    assert (tmp_path / "seqloom-map.png").read_bytes().startswith(b"\x89PNG")
    for drawn in ("map", "beam"):
        text = (tmp_path / f"seqloom-{drawn}.svg").read_text()
        assert "style=" not in text
        page.get((tmp_path / f"seqloom-{drawn}.svg").as_uri())
        assert all_of(page, "rect")
    requests(page)
    page.get(str(served[0].base_url))
    shows(lambda: one_of(page, ".about").text != "", True)


# --- looks -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1440])
def test_it_fits_every_width(page: webdriver.Chrome, served: Both, width: int, dark: bool) -> None:
    show(page, width, dark)
    answers(page, "ant bee cat dog eel", explained(served, "ant bee cat dog eel")["answer"])
    assert not overflows(page)
    Select(one_of(page, "[data-control=other]")).select_by_visible_text("heads")
    output(page, 1)
    assert not overflows(page)


def test_a_map_of_very_many_weights_is_one_picture(page: webdriver.Chrome, served: Both) -> None:
    """400 x 400: a table of so many cells would not be smooth."""
    page.execute_async_script(MANY, 400)
    assert not all_of(page, "td[data-row]")
    box = one_of(page, ".painted")
    page.execute_script("arguments[0].focus()", box)
    for row in (1, 2):
        press(page, Keys.ARROW_DOWN)
        wanted = f"“t{row}” looked at “t0”: 0 % (layer 1)"
        shows(lambda wanted=wanted: readout(page), wanted)
    press(page, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    shows(lambda: readout(page), "“t2” looked at “t2”: 100 % (layer 1)")
    ActionChains(page).move_to_element(box).move_by_offset(3, 3).perform()
    shows(lambda: readout(page).startswith("“t2” looked at “t2”"), False)
    shows(lambda: " looked at " in readout(page), True)
    one_of(page, ".choice label:has([value=ribbons])").click()
    shows(lambda: len(all_of(page, ".ribbons path")), 400)


def test_of_too_many_weights_the_mean_is_drawn_and_it_is_said(
    page: webdriver.Chrome, served: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    Select(one_of(page, "[data-control=model]")).select_by_visible_text("heads")
    answers(page, TEXT, explained(served, model="heads")["answer"])
    assert not one_of(page, ".many").is_displayed()
    monkeypatch.setattr("seqloom.serve.explaining.MOST_WEIGHTS", 50)
    typed(page, "dog eel")
    shows(lambda: "too many to draw smoothly" in one_of(page, ".many").text, True)
    assert some_of(page, "td[data-row]")
    assert not all_of(page, "[data-control=moving], [data-control=layer]")


# --- other kinds of runs ---------------------------------------------------------------------------------------------


def opened(browser: webdriver.Chrome, client: httpx.Client) -> webdriver.Chrome:
    browser.get(str(client.base_url))
    shows(lambda: one_of(browser, ".about").text != "", True)
    return browser


@pytest.mark.parametrize("kind", ["labels", "tags", "language"])
def test_runs_that_are_no_pairs_of_texts(browser: webdriver.Chrome, kind: str) -> None:
    text = "day 3 was cold" if kind == "labels" else TEXT
    with serving(getattr(served_runs, kind)()) as (client, service):
        opened(browser, client)
        answers(browser, text, explained((client, service), text)["answer"])
        assert one_of(browser, ".sure").is_displayed() == (kind != "language")
        assert one_of(browser, "[data-control=beam]").is_displayed() == (kind == "language")
        assert not one_of(browser, "[data-control=other]").is_displayed()
    assert [one["message"] for one in browser.get_log("browser")] == []


def test_a_run_with_further_sources(browser: webdriver.Chrome) -> None:
    with serving(served_runs.inflecting()) as both:
        opened(browser, both[0])
        typed(browser, "bad")
        one_of(browser, "[data-extra=tags]").send_keys("N;PL")
        told = both[0].post("/v1/explain", json={"input": {"source": "bad", "tags": "N;PL"}}).json()
        shows(lambda: output(browser), told["answer"])
        shows(lambda: texts(browser, ".tokens [data-side=source]"), told["source_tokens"])
        one_of(browser, ".tools summary").click()
        assert "'--extra=tags=N;PL'" in one_of(browser, ".command").text
    assert browser.get_log("browser") == []


def test_a_run_that_ranks(browser: webdriver.Chrome) -> None:
    with serving(served_runs.ranking()) as (client, _):
        opened(browser, client)
        text = "tell me of red and blue or sky"
        told = client.post("/v1/rank", json={"input": text, "top": 5}).json()
        answers(browser, text, told["text"])
        shows(lambda: texts(browser, ".ranked .label"), [one["text"] for one in told["candidates"]])
        assert not one_of(browser, ".panes").is_displayed()
    assert browser.get_log("browser") == []


def test_a_picture_is_sent_and_looked_at(browser: webdriver.Chrome) -> None:
    picture = served_runs.pictures().parent / "blocks" / "0.png"
    with serving(served_runs.pictures()) as (client, _):
        opened(browser, client)
        assert not one_of(browser, "textarea").is_displayed()
        one_of(browser, "input[type=file]").send_keys(str(picture))
        files = {"file": ("0.png", picture.read_bytes())}
        told = client.post("/v1/predict/file", files=files).json()["predictions"][0]
        shows(lambda: output(browser), told["text"] or "(nothing)")
        assert some_of(browser, ".looks .seen img")
        assert some_of(browser, ".said .seen img")
    assert browser.get_log("browser") == []


def test_sound_is_sent_or_spoken(browser: webdriver.Chrome) -> None:
    clip = served_runs.sound().parent / "tones" / "0.wav"
    with serving(served_runs.sound()) as (client, _):
        opened(browser, client)
        one_of(browser, "input[type=file]").send_keys(str(clip))
        told = client.post("/v1/predict/file", files={"file": ("0.wav", clip.read_bytes())}).json()["predictions"][0]
        shows(lambda: output(browser), told["text"] or "(nothing)")
        assert some_of(browser, ".signal canvas")
        one_of(browser, "[data-do=record]").click()
        shows(lambda: one_of(browser, "[data-do=record]").text, "Stop")
        time.sleep(0.5)
        one_of(browser, "[data-do=record]").click()
        shows(lambda: "recording.wav" in one_of(browser, ".drop").text, True)
        shows(lambda: "recording.wav" in one_of(browser, ".tools").get_property("textContent"), True)
        output(browser)
        assert not one_of(browser, ".panel .trouble").is_displayed()
    assert browser.get_log("browser") == []


# --- when the server does not answer ---------------------------------------------------------------------------------


def trouble(browser: webdriver.Chrome) -> str:
    found = one_of(browser, ".panel .trouble")
    return found.text if found.is_displayed() else ""


def test_a_server_that_is_gone(browser: webdriver.Chrome) -> None:
    with serving(served_runs.reversing()) as both:
        opened(browser, both[0])
        answers(browser, TEXT, explained(both)["answer"])
    typed(browser, "dog eel")
    shows(lambda: "The server does not answer." in trouble(browser), True)
    assert value(browser) == "dog eel"
    assert one_of(browser, "[data-do=retry]").text == "Try again"


def test_too_many_requests(browser: webdriver.Chrome) -> None:
    with serving(served_runs.reversing(), limits=Limits(rate="2/minute")) as (client, _):
        opened(browser, client)
        typed(browser, TEXT)
        shows(lambda: bool(output(browser)), True)
        typed(browser, "dog eel")
        shows(lambda: "Too many requests: the next one in" in trouble(browser), True)
        assert value(browser) == "dog eel"
        assert "by itself in" in trouble(browser)


def test_a_busy_server_is_asked_again_by_itself(
    browser: webdriver.Chrome, served: Both, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(browser, served[0])
    busy = [True]

    def refuse(batcher: Batcher, size: int = 1) -> None:
        if busy[0]:
            raise Refusal("E_BUSY", "1,024 texts wait already", fix="ask again in a moment")

    monkeypatch.setattr(Batcher, "refuse_full", refuse)
    typed(browser, TEXT)
    shows(lambda: "The server is busy." in trouble(browser), True)
    assert value(browser) == TEXT
    busy[0] = False
    shows(lambda: (output(browser), trouble(browser)), (explained(served)["answer"], ""))


def test_a_slow_server_and_one_that_is_too_slow(browser: webdriver.Chrome, monkeypatch: pytest.MonkeyPatch) -> None:
    script = browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HASTE})
    go, goes_on = threading.Event(), Batcher._goes_on

    def waits(batcher: Batcher, stream: object) -> bool:
        go.wait(20)
        return goes_on(batcher, stream)  # type: ignore[arg-type]

    monkeypatch.setattr(Batcher, "_goes_on", waits)
    try:
        with serving(served_runs.reversing(), pace=Pace(deadline=1.5)) as (client, _):
            opened(browser, client)
            typed(browser, TEXT)
            shows(lambda: trouble(browser), "This takes a while …")
            shows(lambda: "It took too long." in trouble(browser), True)
            assert value(browser) == TEXT
            go.set()
            one_of(browser, "[data-do=retry]").click()
            shows(lambda: bool(output(browser)) and trouble(browser) == "", True)
    finally:
        go.set()
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": script["identifier"]})


def test_a_server_that_needs_a_key(browser: webdriver.Chrome, tmp_path: Path) -> None:
    keys = ServerKeys(tmp_path / "keys.sqlite")
    key = keys.add("anna")
    with serving(served_runs.reversing(), keys=keys) as (client, _):
        browser.get(str(client.base_url))
        shows(lambda: "opens with a key" in one_of(browser, "main .trouble").text, True)
        field = one_of(browser, "[type=password]")
        field.send_keys("wrong", Keys.ENTER)
        shows(lambda: "opens with a key" in one_of(browser, "main .trouble").text, True)
        one_of(browser, "[type=password]").send_keys(key, Keys.ENTER)
        shows(lambda: one_of(browser, ".about").text != "", True)
        typed(browser, TEXT)
        shows(lambda: bool(output(browser)), True)
        assert key not in browser.current_url
        assert json.dumps(browser.execute_script("return Object.values(sessionStorage)")).count(key) == 0
