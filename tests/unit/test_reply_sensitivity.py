"""The sensitivity gate: phrases, numbers, the classifier, whose words are judged, and lists of one's own."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from seqloom.errors import SeqloomError
from seqloom.reply.classifier import Classifier
from seqloom.reply.lists import Lists
from seqloom.reply.messages import Message
from seqloom.reply.phrases import Phrases, pattern_of, spelled
from seqloom.reply.prepare import Prepared, Preprocess
from seqloom.reply.sensitivity import CATEGORIES, Sensitivity, Verdict

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "sensitive.tsv"


@pytest.fixture(scope="module")
def gate() -> Sensitivity:
    return Sensitivity()


@pytest.fixture(scope="module")
def preprocess() -> Preprocess:
    return Preprocess(Preprocess.Settings(detect=False))


def judged(gate: Sensitivity, preprocess: Preprocess, message: Message) -> Verdict:
    return gate(preprocess(message), message)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("My uncle died on Sunday.", "death: died"),
        ("O meu tio FALECEU ontem", "death: faleceu"),
        ("El funeral es mañana", "death: funeral"),
        ("she has been diagnosed with asthma", "illness: diagnosed"),
        ("Estou com depressao", "illness: depressao"),  # accents are often left out
        ("I've been subpoenaed", "legal: subpoenaed"),
        ("Mi abogado te llamará", "legal: mi abogado"),
        ("We didn’t pay the rent", "money: didnt pay the"),
        ("A senha é gato", "passwords: senha"),
        ("I lost my job", "bad news: lost my job"),
        ("pay with 4111 1111 1111 1111", "money: the number of a card"),
        ("to DE89 3704 0044 0532 0130 00 please", "money: the number of an account"),
    ],
)
def test_rules_name_category_and_phrase(gate: Sensitivity, preprocess: Preprocess, text: str, why: str) -> None:
    assert judged(gate, preprocess, Message(text)) == Verdict(True, why)


@pytest.mark.parametrize(
    "text",
    [
        "My phone battery died, call me at home.",
        "I am dead tired, see you tomorrow.",
        "What is the zip code of your office?",
        "I owe you a coffee!",
        "Estou a morrer de fome, vamos comer?",
        "Me muero de risa con tus fotos",
        "The order number is 4111 1111 1111 1112.",  # no card: its check digit is wrong
        "Can you come at three?",
    ],
)
def test_what_only_sounds_like_it_passes(gate: Sensitivity, preprocess: Preprocess, text: str) -> None:
    assert judged(gate, preprocess, Message(text)) == Verdict(False, "")


def test_a_harmless_phrase_does_not_excuse_another(gate: Sensitivity, preprocess: Preprocess) -> None:
    text = "My phone battery died. My uncle died too."
    assert judged(gate, preprocess, Message(text)).why == "death: died"


def test_subject_and_forwarded_words_count_quoted_ones_do_not(gate: Sensitivity, preprocess: Preprocess) -> None:
    sad = "My uncle died on Sunday."
    assert judged(gate, preprocess, Message("See below.", subject=sad)).sensitive
    assert judged(gate, preprocess, Message(f"FYI\n\nBegin forwarded message:\n{sad}")).sensitive
    assert not judged(gate, preprocess, Message(f"Can we meet at ten?\n\nOn 3 Nov 2025 Ann wrote:\n> {sad}")).sensitive


def test_what_a_model_does_not_see_is_judged_too(gate: Sensitivity) -> None:
    short = Preprocess(Preprocess.Settings(detect=False, max_tokens=5))
    text = "We will meet at the usual place. " * 20 + "My uncle died."
    assert judged(gate, short, Message(text)).sensitive


def test_the_classifier_is_asked_where_no_rule_holds(
    gate: Sensitivity, preprocess: Preprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "nothing that a list would know"
    assert not judged(gate, preprocess, Message(text)).sensitive
    monkeypatch.setattr("seqloom.reply.sensitivity.THRESHOLD", 0.0)
    assert judged(gate, preprocess, Message(text)) == Verdict(True, "classifier")


def test_beside_a_doubtful_phrase_the_classifier_need_not_be_as_sure(
    tmp_path: Path, preprocess: Preprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "doubtful.txt").write_text("yellow letter*\n")
    gate = Sensitivity(tmp_path)
    text, plain = Message("I got some yellow letters"), Message("I got some yellow apples")
    for likely, stopped in ((0.69, ""), (0.71, "classifier: yellow letters")):
        monkeypatch.setattr(Classifier, "probability", lambda *_, likely=likely: likely)
        assert judged(gate, preprocess, text).why == stopped
        assert judged(gate, preprocess, plain).why == ""
    monkeypatch.setattr(Classifier, "probability", lambda *_: 0.96)
    assert judged(gate, preprocess, plain).why == "classifier"


def test_the_classifier_keeps_silent_about_long_messages(
    gate: Sensitivity, preprocess: Preprocess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Classifier, "probability", lambda *_: 1.0)
    assert judged(gate, preprocess, Message("apples and pears " * 20)).sensitive
    assert not judged(gate, preprocess, Message("apples and pears " * 21)).sensitive


def test_the_classifier_tells_its_examples_apart() -> None:
    sad = ["the house is gone", "he is gone for ever", "everything is lost"]
    glad = ["the house is lovely", "he is here for lunch", "everything is fine"]
    learned = Classifier([spelled(text) for text in sad + glad], [True] * 3 + [False] * 3)
    found = [learned.probability(spelled(text)) for text in sad + glad]
    assert min(found[:3]) > 0.5 > max(found[3:])
    assert 0 < learned.probability(spelled("")) < 1


def test_the_shipped_classifier_is_surer_of_sad_words_than_of_glad_ones(gate: Sensitivity) -> None:
    sad, glad = ("my father is very ill and may die", "shall we have lunch together on friday")
    assert gate._classifier.probability(spelled(sad)) > 0.5 > gate._classifier.probability(spelled(glad))


def test_examples_and_benchmark_share_no_text() -> None:
    """What the gate is judged by must not be what it was made from."""
    lists = Lists()
    examples = {
        spelled(e.partition("\t")[2]) for code in lists.languages for e in lists.entries(code, "sensitive-examples")
    }
    with BENCHMARK.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    assert len(examples) > 300
    assert len([row for row in rows if row["kind"] != "ordinary" and row["half"] in ("dev", "test")]) == 200
    assert len([row for row in rows if row["kind"] == "ordinary" and row["half"] in ("dev", "test")]) >= 300
    assert not examples & {spelled(row["text"]) for row in rows}


def test_the_bars_of_the_benchmark_hold(gate: Sensitivity, preprocess: Preprocess) -> None:
    with BENCHMARK.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    stopped = {True: [0, 0], False: [0, 0]}
    for row in rows:
        if row["half"] in ("dev", "test"):
            count = stopped[row["kind"] != "ordinary"]
            count[0] += judged(gate, preprocess, Message(row["text"])).sensitive
            count[1] += 1
    assert stopped[True][0] >= 0.95 * stopped[True][1]
    assert stopped[False][0] <= 0.02 * stopped[False][1]


# --- phrases and lists -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phrase", "text", "found"),
    [
        ("passed away", "He PASSED away.", "passed away"),
        ("passed away", "He passed. Away!", None),  # a sentence ends between them
        ("diagnos*", "a diagnosis", "diagnosis"),
        ("(my|our) (dear|) (dog|cat) died", "our dog died, my dear cat died", "our dog died"),
        ("(set free|let) go", "they set free go", "set free go"),
        ("lend ... money", "lend me just a little money", "lend me just a little money"),
        ("lend ... money", "lend me one two three four money", None),
        ("code is #", "the code is 77, ok", "code is 77"),
        ("wifi @", "wifi limon2024", "wifi limon2024"),
        ("wifi @", "wifi is 2024", None),
        ("não", "nao, NÃO", "nao"),
        ("didn't go", "didn’t go", "didnt go"),
        ("rip", "grip ripe", None),
    ],
)
def test_phrases(phrase: str, text: str, found: str | None) -> None:
    assert Phrases([phrase]).first(spelled(text)) == found


@pytest.mark.parametrize("phrase", ["", "...", "a[b", "(a|b", "a.*b", "*"])
def test_what_is_no_phrase(phrase: str) -> None:
    with pytest.raises(ValueError, match=r"phrase|word"):
        pattern_of(phrase)


def test_phrases_of_ones_own_are_added(tmp_path: Path, preprocess: Preprocess) -> None:
    extra = tmp_path / "mine.txt"
    extra.write_text("# of our firm\nlegal: project nightfall\nBad news: yellow letter\n")
    gate = Sensitivity(extra=extra)
    assert judged(gate, preprocess, Message("How is Project Nightfall?")).why == "legal: project nightfall"
    assert judged(gate, preprocess, Message("I got a yellow letter")).why == "bad news: yellow letter"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("leagl: x", 'did you mean "legal"'),
        ("no colon", "category: phrase"),
        ("legal: (a|b", "not a word"),
        ("legal:", "no phrase"),
    ],
)
def test_a_bad_line_of_ones_own_is_refused(tmp_path: Path, line: str, words: str) -> None:
    extra = tmp_path / "mine.txt"
    extra.write_text(line + "\n")
    with pytest.raises(SeqloomError, match=words.replace("(", r"\(")) as refused:
        Sensitivity(extra=extra)
    assert refused.value.code == "E_DATA"
    assert str(extra) in refused.value.where


def test_a_list_of_ones_own_takes_the_place_of_the_shipped(tmp_path: Path, preprocess: Preprocess) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "sensitive-death.txt").write_text("kicked the bucket\n")
    gate = Sensitivity(tmp_path)
    assert judged(gate, preprocess, Message("He kicked the bucket")).why == "death: kicked the bucket"
    assert gate.rule("he passed away") is None


def test_bad_examples_are_refused(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "sensitive-examples.txt").write_text("sad\tsome words\n")
    gate = Sensitivity(tmp_path)
    with pytest.raises(SeqloomError, match="expected a category or 'ordinary'"):
        gate(Prepared("hello you", "en", (), None), Message("hello you"))


def test_every_language_has_every_list() -> None:
    lists = Lists()
    names = ["greetings", "hellos", "closings", "signatures", "quotes", "forwards", "headers", "months", "blocked"]
    names += [
        "harmless",
        "doubtful",
        "sensitive-examples",
        *("sensitive-" + one.replace(" ", "-") for one in CATEGORIES),
    ]
    for language in ("en", "pt", "es"):
        for name in names:
            assert lists.entries(language, name), (language, name)
