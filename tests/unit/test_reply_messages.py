"""Mails and chats become messages: the right part of a mail, in its charset, as a person would see it."""

from __future__ import annotations

from email.message import EmailMessage

import pytest

from seqloom.reply.hypertext import text_of
from seqloom.reply.messages import MOST_TEXT, Message, cleaned, read_chat, read_mail


def test_a_plain_mail() -> None:
    mail = b"From: Anna Berg <Anna@Example.org>\r\nSubject: Lunch\r\n\r\nAre you free at one?\r\n"
    assert read_mail(mail) == Message("Are you free at one?", "Lunch", "anna@example.org")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ("text/plain; charset=iso-8859-1\nContent-Transfer-Encoding: quoted-printable", b"Caf=E9 =E0 tr=EAs?="),
        ("text/plain; charset=utf-8\nContent-Transfer-Encoding: base64", b"Q2Fmw6kgw6AgdHLDqnM/"),
        ("text/plain; charset=utf-8\nContent-Transfer-Encoding: 8bit", "Café à três?".encode()),
        ('text/plain; charset="windows-1252"', "Café à três?".encode("cp1252")),
        ("text/plain; charset=utf-16", "Café à três?".encode("utf-16")),
        ("text/plain; charset=koi-nine", "Café à três?".encode()),  # unknown: UTF-8 where it is
        ("text/plain; charset=koi-nine", "Café à três?".encode("latin-1")),  # or Latin-1
        ("text/plain; charset=utf-8", "Café à três?".encode("latin-1")),  # a lie
    ],
)
def test_charsets_and_encodings(headers: str, body: bytes) -> None:
    assert read_mail(f"Content-Type: {headers}\n\n".encode() + body).body == "Café à três?"


def test_encoded_words_of_a_subject_and_a_sender() -> None:
    mail = b"Subject: =?utf-8?q?Caf=C3=A9?= =?iso-8859-1?q?_=E0?= 3\nFrom: =?utf-8?b?SsO8cmc=?= <j@x.org>\n\nhi"
    assert read_mail(mail) == Message("hi", "Café à 3", "j@x.org")


def _alternatives(plain: str, marked: str) -> EmailMessage:
    mail = EmailMessage()
    mail.set_content(plain)
    mail.add_alternative(marked, subtype="html")
    return mail


def test_of_alternatives_the_plain_one_is_read() -> None:
    assert read_mail(_alternatives("plain words", "<p>marked words</p>").as_bytes()).body == "plain words"


def test_an_empty_plain_alternative_gives_way_to_html() -> None:
    assert read_mail(_alternatives(" \n", "<p>marked words</p>").as_bytes()).body == "marked words"


def test_the_first_text_counts_and_attachments_never() -> None:
    mail = EmailMessage()
    mail.add_attachment("secret notes", filename="notes.txt")
    assert read_mail(mail.as_bytes()).body == ""
    mail = EmailMessage()
    mail.set_content("<p>the mail</p>", subtype="html")
    mail.make_mixed()
    mail.add_attachment("the list's footer", disposition="inline")
    mail.add_attachment(b"\x00\x01", maintype="image", subtype="png", filename="a.png")
    assert read_mail(mail.as_bytes()).body == "the mail"


def test_a_mail_within_a_mail_is_not_the_message() -> None:
    inner = EmailMessage()
    inner.set_content("inner words")
    outer = EmailMessage()
    outer.set_content("see below")
    outer.add_attachment(inner)
    assert read_mail(outer.as_bytes()).body == "see below"


MARKUP = [
    ("<p>one</p><p>two<br>three</p>", "one\ntwo\nthree"),
    ("<style>p {color: red}</style><script>alert(1)</script><p>seen</p>", "seen"),
    ("<head><title>Title</title></head><body>body</body>", "body"),
    ("a <b>bold</b>, <i>word</i>.", "a bold, word."),
    ("<ul><li>one<li>two</ul>", "one\ntwo"),
    ("x &amp; y &lt;b&gt; &eacute; &#128077;", "x & y <b> é 👍"),
    ('<div style="display: none">preview</div>real', "real"),
    ("<blockquote>old</blockquote>new", "> old\nnew"),
    ('new<div class="gmail_quote">On Monday<div>old</div>older</div>', "new\n> On Monday\n> old\n> older"),
    ("<blockquote>a<blockquote>b</blockquote>c</blockquote>new", "> a\n> b\n> c\nnew"),
    ("</div></p>text</blockquote>more", "text\nmore"),
    ("<p>never closed", "never closed"),
    ("if 3 < 4 then", "if 3 < 4 then"),
    ('<img src="http://x.org/p.png" alt="picture"><a href="http://x.org">link</a>', "link"),
    ("", ""),
]


@pytest.mark.parametrize(("markup", "text"), MARKUP, ids=[markup[:30] for markup, _ in MARKUP])
def test_html_becomes_what_is_seen(markup: str, text: str) -> None:
    assert text_of(markup, 1000) == text


def test_a_text_of_html_has_a_limit() -> None:
    assert len(text_of("<p>word " * 10_000, 500)) <= 600


def test_a_chat_line_is_its_own_message() -> None:
    assert read_chat(" see you at 10:30: ok? \r\n") == Message("see you at 10:30: ok?")


@pytest.mark.parametrize(
    "log",
    [
        "[10:14] Ben: hi\n[10:15] Anna: are you coming?\n[10:15] Anna: tonight?",
        "12/03/2026, 10:14 - Ben: hi\n12/03/2026, 10:15 - Anna: are you coming?\ntonight?",
        "10:14 am Ben: hi\n10:15 am Anna: are you coming?\n10:15 am Anna: tonight?",
    ],
)
def test_of_a_log_the_last_turn_is_the_message(log: str) -> None:
    assert read_chat(log) == Message("are you coming?\ntonight?", author="Anna")


def test_cleaned_text_controls_nothing() -> None:
    assert cleaned("a\x00b\x1b[31mc\u202ed\ue000e\ud800f\r\ng\u2028h  \n") == "ab[31mcdef\ng\nh"
    assert cleaned("e\u0301") == "é"
    assert cleaned("👩\u200d👧") == "👩\u200d👧"
    assert len(cleaned("x" * 10 * MOST_TEXT)) == MOST_TEXT
