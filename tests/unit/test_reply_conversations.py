"""Messages and their replies: from chats, from mails, split by conversation."""

from __future__ import annotations

import json
import mailbox
from pathlib import Path

import pytest

from seqloom.errors import SeqloomError
from seqloom.reply.conversations import part_of, read
from seqloom.reply.messages import Message
from seqloom.reply.ownwords import own_words
from seqloom.reply.prepare import Preprocess


def told(path: Path) -> list[tuple[str, str, str | None]]:
    return [(one.conversation, one.message.body, one.reply and one.reply.body) for one in read(path)]


def test_a_message_is_all_that_one_wrote_and_a_reply_the_first_answer(tmp_path: Path) -> None:
    path = tmp_path / "chat.tsv"
    path.write_text(
        "1\tann\tHello\n2\tcy\tYo\n1\tann\tAre you there?\n1\tbob\tYes\n1\tbob\tWhy?\n1\tann\tSo.\n2\tcy\tHm\n"
    )
    assert told(path) == [("1", "Hello\n\nAre you there?", "Yes"), ("1", "Yes\n\nWhy?", "So.")]
    assert [one.reply.author for one in read(path) if one.reply] == ["bob", "ann"]


def test_authors_that_are_not_known_take_turns(tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    rows = [{"conversation": 7, "author": "", "text": text} for text in ("a", "b", "c")]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert told(path) == [("7", "a", "b"), ("7", "b", "c")]
    assert all(one.reply is not None and one.reply.author is None for one in read(path))


def mail(name: str, sender: str, text: str, *before: str) -> bytes:
    headers = [f"Message-ID: <{name}>", f"From: {sender}@x.org", "Subject: Lunch"]
    headers += (
        [f"References: {' '.join(f'<{one}>' for one in before)}", f"In-Reply-To: <{before[-1]}>"] if before else []
    )
    return "\n".join([*headers, "", text, ""]).encode()


MAILS = {
    "1": mail("1", "ann", "Hi Bob,\n\nlunch at noon?\n\nBest,\nAnn"),
    "2": mail("2", "bob", "Sounds good!\n\nOn Monday Ann wrote:\n> lunch at noon?", "1"),
    "3": mail("3", "bob", "Can we say one?", "1", "2"),
    "4": mail("4", "ann", "Sure, see you then", "1", "2", "3"),
}


def test_mails_belong_to_those_they_answer(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for name, data in MAILS.items():
        (tmp_path / "in" / f"{name}.eml").write_bytes(data)
    found = read(tmp_path)
    assert {one.conversation for one in found} == {"1"}
    pairs = {(one.message.body[:5], one.reply and one.reply.body[:5]) for one in found}
    assert pairs == {("Hi Bo", "Sound"), ("Sound", None), ("Can w", "Sure,"), ("Sure,", None)}, "nobody answers himself"


def test_an_mbox_says_the_same(tmp_path: Path) -> None:
    box = mailbox.mbox(tmp_path / "box")
    for data in MAILS.values():
        box.add(data)
    box.close()
    (tmp_path / "in").mkdir()
    for name, data in MAILS.items():
        (tmp_path / "in" / f"{name}.eml").write_bytes(data)
    assert sorted(told(tmp_path / "box"), key=str) == sorted(told(tmp_path / "in"), key=str)


def test_mails_in_a_circle_end(tmp_path: Path) -> None:
    (tmp_path / "a.eml").write_bytes(mail("a", "ann", "one", "b"))
    (tmp_path / "b.eml").write_bytes(mail("b", "bob", "two", "a"))
    assert {one.conversation for one in read(tmp_path)} == {"a"}


def test_what_of_a_reply_is_the_reply() -> None:
    prepare = Preprocess(Preprocess.Settings(languages=("en",), detect=False))
    quoted = "Hi Ann,\n\nSounds good!\n\nBest,\nBob\n\nOn Monday Ann wrote:\n> lunch at noon?"
    assert own_words(Message(quoted, "Re: Lunch"), prepare) == "Sounds good!"
    assert own_words(Message("Bye"), prepare) == "Bye", "in a chat a greeting is a reply"


def test_a_conversation_is_in_one_set_whatever_else_there_is() -> None:
    parts = [part_of(str(name)) for name in range(2000)]
    assert parts == [part_of(str(name)) for name in range(2000)]
    assert 150 < parts.count("test") < 250
    assert 60 < parts.count("dev") < 140
    assert part_of("x", test=0.0, dev=0.0) == "train"


@pytest.mark.parametrize(
    ("name", "text", "code", "words"),
    [
        ("chat.tsv", "1\tann\n", "E_DATA", "chat.tsv:1; conversation, author, text"),
        ("chat.jsonl", '{"conversation": "1"}\n', "E_DATA", "no key 'author'"),
        ("chat.jsonl", "[]\n", "E_DATA", "a JSON object is expected"),
        ("chat.tsv", "1\tann\thello\n1\tann\tagain\n", "E_EMPTY", "no message here has a reply by another author"),
        ("chat.tsv", "", "E_EMPTY", "no message here has a reply"),
    ],
)
def test_what_is_no_chat_is_refused(tmp_path: Path, name: str, text: str, code: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(SeqloomError) as refused:
        read(tmp_path / name)
    assert refused.value.code == code
    assert words in refused.value.line


def test_a_folder_without_mails_and_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(SeqloomError, match="no mails in this folder"):
        read(tmp_path)
    with pytest.raises(SeqloomError, match="E_FILE"):
        read(tmp_path / "nowhere.tsv")
    (tmp_path / "bad.tsv").write_bytes(b"1\tann\t\xff\n")
    with pytest.raises(SeqloomError, match=r"E_UTF8.*bad\.tsv:1"):
        read(tmp_path / "bad.tsv")
