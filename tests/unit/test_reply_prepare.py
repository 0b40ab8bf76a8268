"""Preprocessing: every step, in several languages, and the line that comes out."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import ValidationError

from seqloom.errors import SeqloomError
from seqloom.reply import prepare
from seqloom.reply.entities import Entities
from seqloom.reply.greetings import Greetings
from seqloom.reply.language import Languages
from seqloom.reply.lists import Lists, copy
from seqloom.reply.messages import Message
from seqloom.reply.prepare import SPECIALS, Preprocess, known_words
from seqloom.reply.quotes import Quotes
from seqloom.reply.tokens import sentences, tokens


@pytest.fixture(scope="module")
def preprocess() -> Preprocess:
    return Preprocess()


MAIL = """Hi Anna,

could you come at 3pm on 12 March 2026? It is $20, see https://x.org/a?b=c. Anna's car is
fine. Call +49 170 1234567 or write to me@x.org!!! Bring 3 chairs.

Best regards,
Peter Schmidt
Senior Engineer
+49 123 4567

On Mon, Nov 3, 2025 at 10:12 AM Anna Smith <anna@x.org>
wrote:
> hello
"""


NOTES = {
    "text": "",
    "quotes": "taken off: 3 quoted lines",
    "signature": "none",
    "language": "as its words are",
    "greeting": 'taken off: "Hi Anna,"',
    "closing": 'taken off: "Best regards, Peter Schmidt Senior Engineer +49 123 4567"',
    "entities": "1 <url>, 1 <mail>, 1 <amount>, 1 <date>, 1 <time>, 1 <phone>, 1 <number>, 1 <name>",
    "sentences": "5 sentences",
    "tokens": "40 tokens",
}


def test_a_mail_from_end_to_end(preprocess: Preprocess) -> None:
    found = preprocess(Message(MAIL, subject="Re: [club] Fwd: Lunch on Friday"))
    assert found.text == (
        "lunch on friday <subject> could you come at <time> on <date> ? <s> it is <amount> , see <url> . <s> "
        "<name> 's car is fine . <s> call <phone> or write to <mail> ! <s> bring <number> chairs ."
    )
    assert (found.language, found.reason) == ("en", None)
    names = [step.name for step in found.steps]
    assert names == list(NOTES)
    assert {step.name: step.note for step in found.steps} == NOTES
    assert found.steps[-1].text == found.text


LINES = [
    ("Olá João,\n\nvocê pode vir às 15h30 do dia 12 de março?\n\nAbraços,\nMaria", "pt",
     "você pode vir às <time> do dia <date> ?"),
    ("Hola a todos: ¿podéis venir el 5 de mayo a las 10:30? Un saludo\nPepe", "es",
     "¿ podéis venir el <date> a las <time> ?"),
    ("hey can u send me the file? thx", "en", "can u send me the file ?"),
    ("thanks!", "en", "thanks !"),  # a closing that is all there is
    ("Good morning!", "en", "good morning !"),
    ("Dear Mr. Henderson, the order is ready.\n\nYours sincerely\nJ. Doe", "en", "the order is ready ."),
    ("See you tomorrow?\n\nAnna", "en", "see you tomorrow ?"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "language", "text"), LINES, ids=[row[2] for row in LINES])
def test_lines_that_a_model_reads(preprocess: Preprocess, body: str, language: str, text: str) -> None:
    found = preprocess(Message(body))
    assert (found.text, found.language, found.reason) == (text, language, None)


REASONS = [
    ("", prepare.EMPTY),
    (" \n\t\n", prepare.EMPTY),
    ("> all of it\n> is old", prepare.QUOTED),
    ("-----Original Message-----\nFrom: x\nold words", prepare.QUOTED),
    ("Sent from my iPhone", prepare.SIGNED),
    ("?!", prepare.WORDLESS),
    ("Kannst du morgen Abend kommen? Wir essen um acht.", "in German (de); suggestions are made in en, pt, es"),
    ("Привет, ты придёшь сегодня вечером?", "in Russian (ru); suggestions are made in en, pt, es"),
    ("今晩来られますか", "in Japanese (ja); suggestions are made in en, pt, es"),
]


@pytest.mark.parametrize(("body", "reason"), REASONS, ids=[reason for _, reason in REASONS])
def test_why_there_can_be_no_suggestion(preprocess: Preprocess, body: str, reason: str) -> None:
    assert preprocess(Message(body)).reason == reason


def test_a_subject_alone_is_a_message(preprocess: Preprocess) -> None:
    assert preprocess(Message("", subject="RE: AW: Coming tonight?")).text == "coming tonight ? <subject>"
    unread = Preprocess(Preprocess.Settings(subject=False))
    assert unread(Message("", subject="Coming tonight?")).reason == prepare.EMPTY
    assert unread(Message("yes", subject="Coming tonight?")).text == "yes"


def test_no_text_can_spell_a_special_token(preprocess: Preprocess) -> None:
    found = preprocess(Message("what is <s> or <name> or <subject> or \ue000 or <script>alert(x)</script>?"))
    assert not set(SPECIALS) & set(found.text.split())


def test_long_messages_are_cut_and_say_so() -> None:
    found = Preprocess(Preprocess.Settings(max_tokens=5))(Message("one word after another word comes here"))
    assert found.text == "one word after another word"
    assert found.steps[-1].note == "7 tokens, the last 2 left out"


def test_words_that_are_not_known_are_rare() -> None:
    words = known_words(["can you come ?", "can you come <name> ?", "can you come , peter ?"])
    assert words == {"can", "you", "come", "?"}
    assert Preprocess(words=words)(Message("Can you come, Zebedee?")).text == "can you come <rare> <rare> ?"


# --- quotes ----------------------------------------------------------------------------------------------------------

QUOTED = [
    "On Mon, Nov 3, 2025 at 10:12 AM Anna Smith <anna@x.org> wrote:",
    "On 3 Nov 2025, at 10:12, Anna wrote:",
    "Em seg., 3 de nov. de 2025 às 10:12, Anna <anna@x.org> escreveu:",
    "El lun, 3 nov 2025 a las 10:12, Anna (<anna@x.org>) escribió:",
    "Le lun. 3 nov. 2025 à 10:12, Anna <anna@x.org> a écrit :",
    "Am Mo., 3. Nov. 2025 um 10:12 Uhr schrieb Anna <anna@x.org>:",
    "Il giorno lun 3 nov 2025 alle ore 10:12 Anna <anna@x.org> ha scritto:",
    "Op ma 3 nov 2025 om 10:12 schreef Anna <anna@x.org>:",
    "W dniu 3.11.2025 o 10:12, Anna pisze:",
    "pon., 3 lis 2025 o 10:12 Anna <anna@x.org> napisał(a):",
    "Den mån 3 nov. 2025 kl 10:12 skrev Anna <anna@x.org>:",
    "Den man. 3. nov. 2025 kl. 10.12 skrev Anna:",
    "ma 3. marrask. 2025 klo 10.12 Anna (anna@x.org) kirjoitti:",
    "Dne 3. 11. 2025 v 10:12 Anna napsal(a):",
    "În lun., 3 nov. 2025 la 10:12, Anna <anna@x.org> a scris:",
    "Anna <anna@x.org> ezt írta (időpont: 2025. nov. 3., H, 10:12):",
    "-----Original Message-----",
    "-----Ursprüngliche Nachricht-----",
    "----- Mensagem original -----",
    "-------- Mensaje original --------",
    "-----Message d'origine-----",
    "From: Anna\nSent: Monday\nTo: Ben\nSubject: Lunch",
    "*Von:* Anna\n*Gesendet:* Montag\n*An:* Ben\n*Betreff:* Essen",
    "De: Anna\nEnviado el: lunes\nPara: Ben\nAsunto: Comida",
]
FORWARDED = [
    "---------- Forwarded message ---------",
    "Begin forwarded message:",
    "---------- Mensagem encaminhada ----------",
    "---------- Mensaje reenviado ----------",
    "Début du message réexpédié :",
    "-------- Weitergeleitete Nachricht --------",
    "---------- Messaggio inoltrato ---------",
    "Begin doorgestuurd bericht:",
]


@pytest.fixture(scope="module")
def quotes() -> Quotes:
    return Quotes(Lists())


@pytest.mark.parametrize("marker", QUOTED)
def test_what_stands_below_an_announcement_is_quoted(quotes: Quotes, marker: str) -> None:
    parts = quotes.split(f"my words\n\n{marker}\nold words\n\nolder words")
    assert (parts.own, parts.quoted, parts.forwarded) == ("my words", f"{marker}\nold words\n\nolder words", "")


@pytest.mark.parametrize("marker", FORWARDED)
def test_what_is_forwarded(quotes: Quotes, marker: str) -> None:
    parts = quotes.split(f"my words\n\n{marker}\nother words")
    assert (parts.own, parts.quoted, parts.forwarded) == ("my words", "", f"{marker}\nother words")


def test_answers_below_and_between_quoted_lines_are_kept(quotes: Quotes) -> None:
    body = "On 3 Nov 2025 Anna wrote:\n> are you coming?\nYes.\n> when?\nAt ten."
    assert quotes.split(body).own == "Yes.\nAt ten."


@pytest.mark.parametrize(
    "body",
    [
        "On the other hand she wrote:\nsome nice words",  # no date, no address
        "From: the heart, thanks",
        ">:( that is sad",
        "I wrote on page 3: something\nand more",
        "The original message was lost",
    ],
)
def test_ordinary_lines_are_nobody_elses(quotes: Quotes, body: str) -> None:
    assert quotes.split(body).own == body


def test_signatures(quotes: Quotes) -> None:
    phones = ("Sent from my iPhone", "Enviado do meu iPhone", "Von meinem iPhone gesendet")
    for signature in ("-- \nAnna\nDirector", *phones, "CONFIDENTIALITY NOTICE: this is\nsecret"):
        assert quotes.without_signature(f"my words\n\n{signature}") == ("my words", signature.strip())
    assert quotes.without_signature("a -- b\n- c") == ("a -- b\n- c", "")


# --- greetings and closings ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def greetings() -> Greetings:
    lists = Lists()
    names = ("greetings", "hellos", "closings")
    return Greetings(*([e for code in ("en", "pt", "es") for e in lists.entries(code, name)] for name in names))


@pytest.mark.parametrize(
    ("text", "rest", "names"),
    [
        ("Hi Anna, can you come?", "can you come?", ("Anna",)),
        ("Hi Anna,\n\nCan you come?", "Can you come?", ("Anna",)),
        ("Dear Dr. Maria Santos,\nplease call.", "please call.", ("Maria", "Santos")),
        ("Hello Anna and Ben - lunch?", "lunch?", ("Anna", "Ben")),
        ("Hi Anna, good morning! Lunch?", "Lunch?", ("Anna",)),
        ("Bom dia, Sr. Lopes, pode vir?", "pode vir?", ("Lopes",)),
        ("Estimada Sra. García:\n¿puede venir?", "¿puede venir?", ("García",)),
        ("hi can you come?", "can you come?", ()),
        ("Imelda,\n\nCould you call?", "Could you call?", ("Imelda",)),
        ("Lynn/Karen:\nCould you call?", "Could you call?", ("Lynn", "Karen")),
        ("Yes,\nI can come.", "Yes,\nI can come.", ()),
        ("Tomorrow, we can talk.", "Tomorrow, we can talk.", ()),
        ("Hi there", "Hi there", ()),
        ("History is fun", "History is fun", ()),
        ("All of it is done", "All of it is done", ()),
        ("Dear Anna", "Dear Anna", ()),
    ],
)
def test_greetings_go_and_names_stay_known(greetings: Greetings, text: str, rest: str, names: tuple[str, ...]) -> None:
    found = greetings.without_greeting(text)
    assert found.text == rest
    if rest != text:
        assert found.names == names


@pytest.mark.parametrize(
    ("text", "rest", "names"),
    [
        ("Come at ten.\n\nBest regards,\nAnna Berg\nSales\n+49 1", "Come at ten.", ("Anna", "Berg")),
        ("Come at ten.\nCheers, Ben", "Come at ten.", ("Ben",)),
        ("Pode vir?\n\nAbraços,\nJoão", "Pode vir?", ("João",)),
        ("¿Vienes? Un saludo,\nPepe", "¿Vienes?", ("Pepe",)),
        ("Can you come? Thanks!", "Can you come?", ()),
        ("Can you come? That would be nice. Best,", "Can you come? That would be nice.", ()),
        ("Come at ten.\nThanks\nBen\nPS: bring wine", "Come at ten.\nPS: bring wine", ("Ben",)),
        ("Thanks", "Thanks", ()),
        ("Thanks\nfor the cake, it was good. When do you come again?", None, ()),
        ("Come at ten.\nBest\nDo you like wine?", None, ()),  # a question below is no signature
    ],
)
def test_closings_go(greetings: Greetings, text: str, rest: str | None, names: tuple[str, ...]) -> None:
    found = greetings.without_closing(text)
    assert found.text == (text if rest is None else rest)
    assert found.names == names


# --- entities, sentences, tokens -------------------------------------------------------------------------------------

MARKED = [
    ("see https://a.org/x?y=z. Or www.b.com, or cd.co.uk/d", "see <url> . Or <url> , or <url>"),
    ("write to a.b+c@d-e.org.", "write to <mail> ."),
    ("call +49 (170) 123-4567, 555-123-4567 or 089 1234567", "call <phone> , <phone> or <phone>"),
    ("it is $1,200.50 or 20 euros or €5k or 3 bucks", "it is <amount> or <amount> or <amount> or <amount>"),
    ("at 10:30, 3pm, 3 p.m. or 5 o'clock", "at <time> , <time> , <time> or <time>"),
    ("We start at 9:00 am. In May 2001 too", "We start at <time> . In <date> too"),
    ("on 2026-03-12, 12/03/2026, 3/12, March 12th, 12 March 2026", "on <date> , <date> , <date> , <date> , <date>"),
    ("3 of 4, 50%, the 3rd, #12, 1,000", "<number> of <number> , <number> , the <number> , <number> , <number>"),
    ("Mp3, covid19, a4", "Mp3, covid19, a4"),
    ("you may 3 or out of 10", "you <date> or out of <number>"),  # a month is a month: an error we live with
    ("Anna's and Annabel", "<name> 's and Annabel"),
]


@pytest.mark.parametrize(("text", "marked"), MARKED, ids=[text for text, _ in MARKED])
def test_entities(text: str, marked: str) -> None:
    found, counts = Entities(Lists(), ("en",)).marked(text, ["Anna"])
    assert prepare._shown(found) == marked
    assert sum(counts.values()) == sum(token in SPECIALS for token in marked.split())


@pytest.mark.parametrize(
    ("language", "text"),
    [("pt", "12 de março de 2026"), ("es", "5 de mayo"), ("pt", "3 de out."), ("es", "5º de mayo")],
)
def test_dates_of_other_languages(language: str, text: str) -> None:
    assert prepare._shown(Entities(Lists(), (language,)).marked(text, [])[0]) == "<date>"


def test_sentences_end_at_stops_paragraphs_and_points_of_a_list() -> None:
    assert sentences("One. Two\nwrapped? Three\n\nFour\n- five\n- six") == [
        "One.", "Two wrapped?", "Three", "Four", "five", "six",
    ]  # fmt: skip
    assert sentences("Dr. Who came. It was \ue005. \ue000 left.") == ["Dr. Who came.", "It was \ue005.", "\ue000 left."]


def test_tokens_are_lower_case_and_runs_of_a_sign_are_one() -> None:
    assert tokens("Don’t!!! Well... it's well-known :) <3 ¿Qué?") == [
        "don't", "!", "well", "...", "it's", "well-known", ":)", "<3", "¿", "qué", "?",
    ]  # fmt: skip


# --- languages and lists ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["ok", "lol", "Nice!", "gr8 thx", "hola", "dnd tonight?", "Obrigado", "👍", "42", "hm"]
)
def test_short_messages_are_never_foreign(text: str) -> None:
    assert Languages(("en", "pt", "es")).of(text)[1]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Can you send me the report by Thursday?", "en"),
        ("Você pode me mandar o relatório até quinta?", "pt"),
        ("¿Me puedes mandar el informe antes del jueves?", "es"),
    ],
)
def test_the_language_is_found(text: str, code: str) -> None:
    assert Languages(("en", "pt", "es")).of(text) == (code, True)


def test_a_language_that_the_message_says_is_believed(preprocess: Preprocess) -> None:
    assert preprocess(Message("Are you coming?", language="pt-BR")).language == "pt"
    assert preprocess(Message("Are you coming?", language="fr")).reason is not None


def test_detection_can_be_off() -> None:
    found = Preprocess(Preprocess.Settings(detect=False, languages=("pt",)))(Message("Kannst du morgen kommen?"))
    assert (found.language, found.reason) == ("pt", None)


def test_without_py3langid_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real: Callable[..., ModuleType] = importlib.import_module

    def missing(name: str, package: str | None = None) -> ModuleType:
        if name.startswith("py3langid"):
            raise ImportError("No module named 'py3langid'")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(SeqloomError, match=r"py3langid.*seqloom\[serve\]") as refused:
        Preprocess()
    assert refused.value.code == "E_EXTRA"
    assert Preprocess(Preprocess.Settings(detect=False))(Message("hello you")).reason is None


def test_languages_are_codes() -> None:
    with pytest.raises(ValidationError, match="no code of a language"):
        Preprocess.Settings(languages=("English",))
    with pytest.raises(ValidationError):
        Preprocess.Settings(languages=())


def test_lists_of_ones_own_take_the_place_of_the_shipped(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "greetings.txt").write_text("# mine\nahoy\n\n  avast \n")
    lists = Lists(tmp_path)
    assert lists.entries("en", "greetings") == ("ahoy", "avast")
    assert lists.entries("en", "closings") == Lists().entries("en", "closings")
    mine = Preprocess(Preprocess.Settings(lists=str(tmp_path), languages=("en",)))
    assert mine(Message("Ahoy Anna, are you coming?")).text == "are you coming ?"
    assert mine(Message("Hi Anna, are you coming?")).text == "hi anna , are you coming ?"


def test_shipped_lists_are_copied_but_never_over_an_edited_one(tmp_path: Path) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "greetings.txt").write_text("ahoy\n")
    made = copy(("en", "pt"), tmp_path)
    assert (tmp_path / "pt" / "greetings.txt") in made
    assert (tmp_path / "en" / "greetings.txt").read_text() == "ahoy\n"
    assert copy(("en", "pt"), tmp_path) == []


@pytest.mark.parametrize(
    ("data", "code", "where"),
    [(b"good\nb\xffd\n", "E_UTF8", ":2"), (b"\n" + b"x" * 600, "E_DATA", ":2"), (b"x\n" * 2_000_000, "E_DATA", "")],
)
def test_a_bad_list_is_refused_with_its_line(tmp_path: Path, data: bytes, code: str, where: str) -> None:
    (tmp_path / "en").mkdir()
    (tmp_path / "en" / "greetings.txt").write_bytes(data)
    with pytest.raises(SeqloomError) as refused:
        Preprocess(Preprocess.Settings(lists=str(tmp_path), languages=("en",)))
    assert refused.value.code == code
    assert refused.value.where.endswith(f"greetings.txt{where}")


def test_a_folder_of_lists_must_be_one(tmp_path: Path) -> None:
    with pytest.raises(SeqloomError, match="not a folder of lists"):
        Preprocess(Preprocess.Settings(lists=str(tmp_path / "none")))
