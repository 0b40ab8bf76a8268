"""The page in a real browser: what is there, what a pointer and keys do, that text is text and nobody is asked."""

from __future__ import annotations

import base64
import socket
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.select import Select

from chromium import Open, all_of, one_of, overflows, press, show, shows, some_of, texts
from explanations import END, looks, made, sentence, small_tree, spread, told, wide_tree
from seqloom.probe.attribution import Attributed
from seqloom.probe.explain import Explanation
from seqloom.probe.origins import Attribution, whole_words
from seqloom.probe.page import page

pytestmark = pytest.mark.xdist_group("browser")


def crossed() -> Explanation:
    """`der hund bellt` read, `the dog barks` said: each word looks at its own, `dog` half at the end too."""
    weights = looks([1, 0, 0, 0], [0, 0.5, 0, 0.5], [0, 0, 1, 0], [0, 0, 0, 1])
    output = [told("the", 0.9), told("dog", 0.25, rank=2), told("barks", 0.6), told(END, 0.99)]
    return made(["der", "hund", "bellt", END], output, weights, tree=small_tree())


def two_heads() -> Explanation:
    """One layer whose first head looks at the first token only, the second at the second."""
    weights = np.zeros((1, 2, 2, 2), dtype=np.float32)
    weights[0, 0, :, 0] = weights[0, 1, :, 1] = 1
    return made(["a", END], [told("b"), told(END)], weights)


def hover(browser: webdriver.Chrome, element: WebElement) -> None:
    ActionChains(browser).move_to_element(element).perform()


def said(browser: webdriver.Chrome, place: int) -> WebElement:
    return some_of(browser, ".tokens [data-side=output]", place + 1)[place]


def read(browser: webdriver.Chrome, place: int) -> WebElement:
    return some_of(browser, ".tokens [data-side=source]", place + 1)[place]


def cell(browser: webdriver.Chrome, row: int, column: int) -> WebElement:
    return one_of(browser, f"td[data-row='{row}'][data-column='{column}']")


def readout(browser: webdriver.Chrome) -> str:
    """Without the marks that isolate a text's direction."""
    return one_of(browser, "main .readout").text.replace("\u2068", "").replace("\u2069", "")


def choose(browser: webdriver.Chrome, value: str) -> None:
    one_of(browser, f".choice label:has([value={value}])").click()


# --- what is there -------------------------------------------------------------------------------------------------


def test_text_answer_tokens_map_and_tree_are_there(opened: Open) -> None:
    browser = opened(crossed(), title="dogs", notes=["beam 2"])
    shows(lambda: [browser.title, one_of(browser, "h1").text], ["dogs", "dogs"])
    shows(lambda: one_of(browser, ".top p").text, "beam 2")
    shows(lambda: texts(browser, ".text"), ["der hund bellt", "the dog barks"])
    shows(lambda: texts(browser, ".tokens [data-side=source]"), ["der", "hund", "bellt", END])
    shows(lambda: texts(browser, ".tokens [data-side=output]"), ["the", "dog", "barks", END])
    shows(lambda: len(all_of(browser, "td[data-row]")), 16)
    shows(lambda: len(all_of(browser, ".beam .node")), 6)


def test_cells_entropy_and_coverage_are_the_explanation_s(opened: Open) -> None:
    shown = sentence(8, layers=2, heads=3)
    browser = opened(shown)
    mean = shown.mean
    for row, column in [(0, 0), (3, 5), (7, 7)]:
        number = cell(browser, row, column).get_attribute("aria-label").rpartition(": ")[2]
        share = 0.0 if number == "<1 %" else int(number.removesuffix(" %")) / 100
        assert share == pytest.approx(mean[row, column], abs=0.01)
    Select(one_of(browser, "[data-control=head] select")).select_by_visible_text("2")
    bits = [float(text) for text in texts(browser, "tbody .side")]
    assert bits == pytest.approx(shown.entropy()[-1, 1].tolist(), abs=0.08)
    Select(one_of(browser, "[data-control=head] select")).select_by_visible_text("mean")
    covered = [float(element.get_attribute("title")) for element in all_of(browser, "tfoot td[title]")]
    assert covered == pytest.approx(shown.coverage().tolist(), rel=0.05, abs=0.02)


def test_where_it_was_least_sure_is_said_first(opened: Open) -> None:
    detail = one_of(opened(crossed()), ".detail")
    assert detail.text.splitlines()[:3] == ["Where it was least sure", "dog 25.0 %", "rank 2: 1 likelier"]


def test_a_model_without_attention_shows_the_rest(opened: Open) -> None:
    browser = opened(replace(made(["a", END], [told("b"), told(END)]), tree=small_tree()), crossed())
    shows(lambda: one_of(browser, ".none").is_displayed(), True)
    shows(lambda: bool(all_of(browser, ".map, .ribbons, .heads, .controls *")), False)
    shows(lambda: readout(browser), "")
    shows(lambda: len(all_of(browser, ".beam .node")), 6)
    one_of(browser, "[aria-label=next]").click()
    shows(lambda: one_of(browser, ".none").is_displayed(), False)
    shows(lambda: bool(all_of(browser, ".map")), True)


def test_attention_within_the_output_is_over_what_was_heard(opened: Open) -> None:
    """A step reads the token before it: the first column is the beginning."""
    browser = opened(sentence(4))
    choose(browser, "within_output")
    shows(lambda: texts(browser, "thead th span"), ["<bos>", "t0", "t1", "t2"])
    shows(lambda: cell(browser, 0, 0).get_attribute("aria-label"), "t0 to <bos>: 100 %")
    hover(browser, said(browser, 1))
    shows(lambda: readout(browser), "“t1” looked at “<bos>” 50 %, “t0” 50 %")
    shows(lambda: "shaded" in said(browser, 0).get_attribute("class"), True)
    choose(browser, "within_source")
    for side in ("tbody th", "thead th span"):
        shows(lambda side=side: texts(browser, side), ["s0", "s1", "s2", END])


def test_what_a_word_came_from_is_drawn_beside_where_it_looked(opened: Open) -> None:
    """`dog` owes three quarters to `hund`, against or for, and a quarter to `the`; the model has no attention."""
    shown = replace(crossed(), weights=np.zeros((0, 0, 4, 4), dtype=np.float32))
    of_source, of_target = np.zeros((4, 4)), np.zeros((4, 4))
    of_source[1, 1], of_target[1, 0] = -0.75, 0.25
    sides = whole_words(shown.source), whole_words([one.token for one in shown.output])
    owed = Attribution("occlusion", *sides, np.zeros(4), Attributed(of_source, of_target, "log p"))
    browser = opened(shown, attribution=owed)
    assert texts(browser, "[data-control=kind] label") == ["came from the source", "from what it had said"]
    shows(lambda: cell(browser, 1, 1).get_attribute("aria-label"), "dog to hund: 75 %")
    hover(browser, said(browser, 1))
    shows(lambda: readout(browser), "“dog” came from “hund” 75 %")
    choose(browser, "from_output")
    hover(browser, cell(browser, 1, 0))
    shows(lambda: readout(browser), "“dog” came from “the”: 25 % (by occlusion)")


def test_an_edit_is_shown_with_its_command(opened: Open) -> None:
    before = replace(crossed(), answer="the cat barks")
    browser = opened(crossed(), before=before, command="seqloom explain run 'der <hund>'")
    edit = one_of(browser, ".edit")
    shows(lambda: texts(edit, "dd"), ["the cat barks", "the dog barks"])
    shows(lambda: texts(edit, "mark"), ["cat", "dog"])
    shows(lambda: one_of(edit, "code").text, "seqloom explain run 'der <hund>'")
    shows(lambda: len(all_of(browser, ".answers li")), 2)


# --- pointer -------------------------------------------------------------------------------------------------------


def test_pointing_at_a_said_token_lights_up_what_it_looked_at(opened: Open) -> None:
    browser = opened(crossed())
    hover(browser, said(browser, 1))
    shows(lambda: "lit" in said(browser, 1).get_attribute("class"), True)
    shades = [read(browser, place).value_of_css_property("background-color") for place in range(4)]
    assert shades[0] == shades[2] != shades[1] == shades[3]
    shows(lambda: readout(browser), "“dog” looked at “hund” 50 %, “<eos>” 50 %")
    shows(lambda: texts(browser, ".bars .label"), ["one", "dog", "other"])
    shows(lambda: texts(browser, ".bars .label.own"), ["dog"])
    hover(browser, one_of(browser, "h1"))
    shows(lambda: "lit" not in said(browser, 1).get_attribute("class"), True)


def test_pointing_at_a_read_token_lights_up_who_looked_at_it(opened: Open) -> None:
    browser = opened(crossed())
    hover(browser, read(browser, 2))
    shows(lambda: readout(browser), "“bellt” was looked at most by “barks” 100 %")
    shows(lambda: "deep" in said(browser, 2).get_attribute("class"), True)


def test_a_click_keeps_a_token_and_another_lets_it_go(opened: Open) -> None:
    browser = opened(crossed())
    said(browser, 2).click()
    hover(browser, one_of(browser, "h1"))
    shows(lambda: said(browser, 2).get_attribute("aria-pressed"), "true")
    shows(lambda: one_of(browser, ".detail b").text, "barks")
    said(browser, 2).click()
    shows(lambda: said(browser, 2).get_attribute("aria-pressed"), "false")


def test_pointing_at_a_cell_reads_it_out(opened: Open) -> None:
    browser = opened(crossed())
    hover(browser, cell(browser, 1, 3))
    shows(lambda: readout(browser), "“dog” looked at “<eos>”: 50 % (layer 1)")
    shows(lambda: texts(browser, "th.lit, tr.lit th"), [END, "dog"])


def test_ribbons_are_as_thick_as_weights_and_light_up(opened: Open) -> None:
    browser = opened(crossed())
    choose(browser, "ribbons")
    paths = some_of(browser, ".ribbons path", 5)
    thickness = {
        (path.get_attribute("data-row"), path.get_attribute("data-column")): float(path.get_attribute("stroke-width"))
        for path in paths
    }
    assert set(thickness) == {("0", "0"), ("1", "1"), ("1", "3"), ("2", "2"), ("3", "3")}
    assert thickness["0", "0"] == 10
    assert thickness["1", "1"] == pytest.approx(5.5, abs=0.05)
    hover(browser, said(browser, 1))
    lit = some_of(browser, ".ribbons.lit path.lit", 2)
    assert {path.get_attribute("data-column") for path in lit} == {"1", "3"}
    hover(browser, one_of(browser, ".column.left [data-unit='3']"))
    shows(lambda: len(all_of(browser, ".ribbons path.lit")), 2)


def test_layers_and_heads_are_chosen_by_list_and_by_picture(opened: Open) -> None:
    browser = opened(two_heads())
    shows(lambda: texts(browser, "td[data-row]"), ["50", "50", "50", "50"])
    Select(one_of(browser, "[data-control=head] select")).select_by_visible_text("1")
    shows(lambda: texts(browser, "td[data-row]"), ["100", "", "100", ""])
    one_of(browser, ".heads [data-head='1']").click()
    shows(lambda: texts(browser, "td[data-row]"), ["", "100", "", "100"])
    shows(lambda: Select(one_of(browser, "[data-control=head] select")).first_selected_option.text, "2")
    pressed = some_of(browser, ".heads [aria-pressed=true]")
    assert [button.get_attribute("aria-label") for button in pressed] == ["layer 1, head 2, entropy 0.0 bits"]


def test_pieces_become_words(opened: Open) -> None:
    """A word is looked at as much as all its pieces together, and looks as its pieces do on average."""
    weights = looks([0.25, 0.25, 0.5], [0.5, 0.5, 0], [0, 0, 1])
    shown = made(
        ["hun", "de", END],
        [told("do", 0.5), told("gs", 0.5), told(END)],
        weights,
        words=([0, 0, -1], [0, 0, -1]),
        texts=("hunde", "dogs"),
    )
    browser = opened(shown)
    one_of(browser, "[data-control=words] input").click()
    shows(lambda: texts(browser, ".tokens [data-side=source]"), ["hunde", END])
    shows(lambda: texts(browser, ".tokens [data-side=output]"), ["dogs", END])
    assert [element.get_attribute("aria-label") for element in all_of(browser, "td[data-row]")] == [
        "dogs to hunde: 75 %",
        "dogs to <eos>: 25 %",
        "<eos> to hunde: 0 %",
        "<eos> to <eos>: 100 %",
    ]
    shows(lambda: "probability 25.0 %" in said(browser, 0).get_attribute("aria-label"), True)


# --- the beam ------------------------------------------------------------------------------------------------------


def test_the_beam_shows_the_winner_and_why_others_died(opened: Open) -> None:
    browser = opened(crossed())
    shows(lambda: texts(browser, ".beam .node.won .name"), ["<s>", "a", "b", END])
    shows(lambda: texts(browser, ".beam .node.dead .name"), ["x", "c"])
    hover(browser, one_of(browser, ".node[data-node='2']"))
    story = one_of(browser, ".beam .readout").text
    assert "score -2.000" in story
    assert "fell out: none of its continuations was among the best" in story
    shows(lambda: len(all_of(browser, ".beam .edge.lit")), 1)
    shows(lambda: texts(browser, ".ended li"), ["-0.200 a b"])
    widths = {
        edge.get_attribute("data-node"): float(edge.get_attribute("stroke-width")) for edge in all_of(browser, ".edge")
    }
    assert widths["1"] > widths["2"]
    shows(lambda: len(all_of(browser, ".fates svg")), 4)  # the way, ended, fell out, left


def test_ten_hypotheses_by_forty_steps_scroll_inside_of_their_box(opened: Open) -> None:
    browser = opened(replace(crossed(), tree=wide_tree(10, 40)))
    shows(lambda: len(all_of(browser, ".beam .node")), 401)
    box = one_of(browser, ".beam .scroll")
    assert browser.execute_script("return arguments[0].scrollWidth > arguments[0].clientWidth", box)
    shows(lambda: overflows(browser), False)


# --- keys ----------------------------------------------------------------------------------------------------------


def focused(browser: webdriver.Chrome, attribute: str) -> str | None:
    return browser.switch_to.active_element.get_attribute(attribute)


def test_arrows_turn_the_sentences(opened: Open) -> None:
    browser = opened(crossed(), two_heads(), sentence(3))
    for key, wanted in [
        (Keys.ARROW_RIGHT, "a"),
        (Keys.ARROW_RIGHT, "s0 s1"),
        (Keys.ARROW_RIGHT, "s0 s1"),
        (Keys.ARROW_LEFT, "a"),
    ]:
        press(browser, key)
        shows(lambda: one_of(browser, ".text").text, wanted)
    shows(lambda: one_of(browser, ".answers [aria-current=true]").text.splitlines(), ["2. a", "b"])
    shows(lambda: browser.current_url.rpartition("#")[2], "2")


def test_every_part_is_reached_by_tab_and_arrows_move_inside(opened: Open) -> None:
    browser = opened(crossed(), sentence(4))
    press(browser, Keys.ARROW_LEFT)
    seen: list[str] = []
    for _ in range(30):
        press(browser, Keys.TAB)
        where = browser.execute_script(
            "const one = document.activeElement;"
            "return one.closest('.tokens, .map, .heads, .beam, .controls, .answers')?.getAttribute('class') ?? ''"
        )
        if where and where not in seen:
            seen.append(where)
    assert seen == ["answers", "tokens", "controls", "map", "beam"]


def test_arrows_move_over_the_map_and_read_it_out(opened: Open) -> None:
    browser = opened(crossed())
    cell(browser, 0, 0).click()
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    shows(lambda: focused(browser, "aria-label"), "dog to hund: 50 %")
    shows(lambda: readout(browser).startswith("“dog” looked at “hund”: 50 %"), True)
    shows(lambda: len(all_of(browser, "td[data-row][tabindex='0']")), 1)


def test_arrows_climb_the_beam(opened: Open) -> None:
    browser = opened(crossed())
    browser.execute_script("document.querySelector('.node').focus()")
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    shows(lambda: focused(browser, "data-node"), "4")
    shows(lambda: "left alive" in one_of(browser, ".beam .readout").text, True)
    press(browser, Keys.ARROW_LEFT)
    shows(lambda: focused(browser, "data-node"), "1")


def test_controls_keep_the_focus_when_they_are_used(opened: Open) -> None:
    browser = opened(sentence(4))
    one_of(browser, "[value=map]").send_keys(Keys.ARROW_RIGHT)
    shows(lambda: focused(browser, "value"), "ribbons")
    shows(lambda: bool(all_of(browser, ".ribbons")), True)


# --- text is text --------------------------------------------------------------------------------------------------

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 2'>"


def test_a_script_in_a_sentence_is_shown_and_not_run(opened: Open) -> None:
    shown = made([EVIL, END], [replace(told("x"), token=EVIL), told(END)], spread((1, 1, 2, 2)), texts=(EVIL, EVIL))
    tree = replace(small_tree(), tokens=("<s>", *[EVIL] * 5))
    shown = replace(shown, tree=tree, extras={EVIL: EVIL})
    browser = opened(shown, title=EVIL, notes=[EVIL], before=shown, command=EVIL)
    for view in ("ribbons", "map"):
        choose(browser, view)
    hover(browser, said(browser, 0))
    shows(lambda: texts(browser, ".text"), [EVIL, EVIL])
    assert one_of(browser, "h1").text == browser.title == EVIL
    assert browser.execute_script("return window.hacked") is None
    assert len(all_of(browser, "script")) == 2
    assert not all_of(browser, "img")


def test_the_policy_forbids_what_is_not_the_page_s(browser: webdriver.Chrome, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(page([crossed()], title="t"), encoding="utf-8")
    browser.get(file.as_uri())
    with socket.create_server(("127.0.0.1", 0)) as server:
        blocked = browser.execute_async_script(INTRUDER, f"http://127.0.0.1:{server.getsockname()[1]}/")
        server.settimeout(0.5)
        with pytest.raises(TimeoutError):
            server.accept()
    assert set(blocked) == {"script-src-elem", "img-src", "connect-src"}
    assert browser.execute_script("return window.hacked") is None


INTRUDER = """
const [address, done] = arguments, blocked = [];
addEventListener('securitypolicyviolation', (event) => blocked.push(event.effectiveDirective));
const script = document.createElement('script');
script.textContent = 'window.hacked = 1';
document.body.append(script);
new Image().src = address;
fetch(address).then(() => done(blocked), () => setTimeout(() => done(blocked), 50));
"""


# --- every shape, every screen -------------------------------------------------------------------------------------

AWKWARD = {
    "right to left": made(
        ["مرحبا", "بالعالم", END], [told("שלום"), told("עולם"), told(END)], spread((2, 2, 3, 3)), within=True
    ),
    "odd": made(
        ["e\u0301\u0302", "👩\u200d👩\u200d👧", "", "\n", "\u202eevil", "a" * 200, END],
        [told("日本語"), told("👍🏽"), told("\t"), told("b" * 200), told(END)],
        spread((1, 2, 5, 7)),
        tree=replace(small_tree(), tokens=("<s>", "c" * 200, "👩\u200d👩\u200d👧" * 9, "日本語" * 9, "", "\n")),
    ),
    "one token": made([END], [told(END)], looks([1]), words=([-1], [-1])),
    "a hundred": replace(sentence(100, layers=6, heads=8), tree=wide_tree(10, 40), truncated=True),
    "no attention": made(["a" * 300, END], [told("b" * 300), told(END)]),
}


@pytest.mark.parametrize("width", [360, 1280])
@pytest.mark.parametrize("name", AWKWARD)
def test_nothing_is_wider_than_the_screen(opened: Open, name: str, width: int) -> None:
    browser = opened(AWKWARD[name], AWKWARD[name], title="w" * 200, notes=["n" * 200])
    show(browser, width)
    shows(lambda: overflows(browser), False)
    if AWKWARD[name].weights.size:
        choose(browser, "ribbons")
        shows(lambda: overflows(browser), False)


def test_on_a_phone_sentences_are_a_list_to_pull_down(opened: Open) -> None:
    browser = opened(crossed(), two_heads())
    show(browser, 360)
    shows(lambda: one_of(browser, ".answers ol").is_displayed(), False)
    Select(one_of(browser, ".turn select")).select_by_index(1)
    shows(lambda: one_of(browser, ".text").text, "a")


def test_text_from_right_to_left_reads_so(opened: Open) -> None:
    browser = opened(AWKWARD["right to left"])
    first, second = (read(browser, place).rect["x"] for place in (0, 1))
    assert first > second
    read(browser, 0).click()
    press(browser, Keys.ARROW_LEFT)
    shows(lambda: browser.switch_to.active_element.text, "بالعالم")


def test_what_takes_no_room_is_written_visibly(opened: Open) -> None:
    browser = opened(AWKWARD["odd"])
    shows(lambda: texts(browser, ".tokens [data-side=source]")[2:5], ["∅", "⏎", "U+202Eevil"])


def test_dark_is_dark_and_letters_stand_out(opened: Open) -> None:
    browser = opened(crossed())

    def brightness(element: WebElement, of: str) -> float:
        red, green, blue = (int(part) for part in element.value_of_css_property(of).split("(")[1].split(",")[:3])
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    for dark in (False, True):
        show(browser, dark=dark)
        body = one_of(browser, "body")
        paper, ink = brightness(body, "background-color"), brightness(body, "color")
        assert (paper < 60 and ink > 200) if dark else (paper > 200 and ink < 60)


def test_it_prints_on_paper(opened: Open) -> None:
    browser = opened(replace(crossed(), tree=wide_tree(10, 40)), sentence(30))
    show(browser, dark=True)
    assert base64.b64decode(browser.print_page()).startswith(b"%PDF")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    shows(lambda: one_of(browser, ".answers").is_displayed(), False)
    shows(lambda: any(one.is_displayed() for one in all_of(browser, ".controls > :not(.scale)")), False)
    shows(lambda: one_of(browser, ".controls .scale").is_displayed(), True)
    shows(lambda: one_of(browser, "body").value_of_css_property("color"), "rgba(28, 33, 38, 1)")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_a_trained_model_s_answer_opens(opened: Open) -> None:
    from commands import trained
    from seqloom.api.explain import Question, explain
    from seqloom.api.load import load
    from seqloom.api.options import Options

    found = explain(load(trained()), Question({"source": "abcd"}), Options(beam=3))
    browser = opened(found)
    shows(lambda: texts(browser, ".tokens [data-side=source]"), list(found.source))
    assert found.tree is not None
    shows(lambda: len(all_of(browser, ".beam .node")), len(found.tree.nodes))
    shows(lambda: len(all_of(browser, "td[data-row]")), len(found.source) * len(found.output))
