"""What of a text goes to a model: every text is cut once, however often it is asked about."""

from __future__ import annotations

from collections import Counter

import pytest

from commands import LETTERS, trained
from seqloom.api.load import load
from seqloom.api.options import Options
from seqloom.api.reading import CHUNK_LINES
from seqloom.errors import SeqloomError

TEXTS = [LETTERS[i % 5 :][:3] * 5 for i in range(8)]  # too long to be taken for short, and within the maximum of 20


def test_a_text_is_cut_once_and_answered_as_if_it_were_cut_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model, cut = load(trained(), workers=1), Counter[str]()
    plain = type(model.source.tokenizer).encode

    def counted(self: object, text: str) -> list[str]:
        cut[text] += 1
        return plain(self, text)  # type: ignore[arg-type]

    monkeypatch.setattr(type(model.source.tokenizer), "encode", counted)
    options = Options(max_length=5, split=False)
    different = sorted(set(TEXTS))
    together = [one.text for one in model.predict(different, options)]
    assert set(cut.values()) == {1}
    assert len(cut) == len(different)
    assert [next(model.predict([text], options)).text for text in different] == together
    assert [one.text for one in model.predict(TEXTS, options)] == [together[different.index(text)] for text in TEXTS]
    assert not model.reader._cuts, "nothing is kept that will not be asked for"


def test_a_file_that_is_only_looked_through_leaves_little_behind() -> None:
    model = load(trained(), workers=1)
    many = ["".join(LETTERS[int(digit)] for digit in f"{number:015o}") for number in range(CHUNK_LINES + 500)]
    model.refuse_long(many, Options())
    assert len(model.reader._cuts) <= CHUNK_LINES
    with pytest.raises(SeqloomError, match="maximum"):
        model.refuse_long([LETTERS * 3], Options())
