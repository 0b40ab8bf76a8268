"""Law 9 for tokenizers: joining what was cut gives the text back; every entry of the table is tried."""

from __future__ import annotations

import io
import math
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
import sentencepiece
from hypothesis import example, given, settings
from hypothesis import strategies as st

from seqloom.config import Settings
from seqloom.data import subwords
from seqloom.data.merging import Merges
from seqloom.data.tokenizers import TOKENIZERS, Tokenizer, Words
from seqloom.errors import SeqloomError

TEXTS = [
    "the lower the better, isn't it?",
    "a newer and wider test of the lowest (low) words",
    "  double  spaces and tabs\tstay ",
    "das Mädchen läuft über die Brücke",
    "no widening, no lowering: newest, widest",
] * 5

NUMBERS = ["1", "2.5", "-3", "0", "4.125"]

# Characters that tempt a tokenizer: its own marks, spaces, combining accents, astral and private-use characters.
TEMPTING = st.sampled_from(list("ab ä.,'\"()_▁▅￭[]\t\u0301\u200d\u2028\x0b\x85\xa0\uf8f0es?nr0👍🏽ßक्षि中<unk>"))
ANY = st.characters(exclude_categories=["Cs"])
texts = st.text(TEMPTING | ANY, max_size=30)


@cache
def from_elsewhere() -> str:
    """A sentencepiece model as others train them: it normalises (NFKC) and drops blanks that it finds too many."""
    folder = Path(tempfile.mkdtemp())
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS), model_writer=out, vocab_size=80, hard_vocab_limit=False, minloglevel=2
    )
    (folder / "elsewhere.model").write_bytes(out.getvalue())
    return str(folder / "elsewhere.model")


def chosen(kind: str, **more: object) -> Settings:
    if kind == "sentencepiece":
        more = {"model": from_elsewhere(), "symbols": [">>de<<", ">>de-at<<"], **more}
    size = {"size": 80} if "size" in TOKENIZERS.settings_class(kind).model_fields else {}
    return TOKENIZERS.settings({"kind": kind, **size, **more})


@cache
def trained(kind: str, sampling: float | None = None) -> Tokenizer:
    more = {} if sampling is None else {"sampling": sampling}
    return TOKENIZERS[kind].train(chosen(kind, **more), iter(texts_of(kind)), seed=1)


def texts_of(kind: str) -> list[str]:
    """What a tokenizer is trained on: of a scale, numbers."""
    return NUMBERS if TOKENIZERS[kind].scale else TEXTS


def settled(text: str) -> str:
    """What a model from elsewhere makes of a text, again and again until it leaves it alone."""
    tokenizer = trained("sentencepiece")
    for _ in range(5):
        text, before = tokenizer.decode(tokenizer.encode(text)), text
        if text == before:
            return text
    return ""


def canonical(kind: str, text: str) -> str:
    """`symbols` promises the round trip for single separators only, a set for its labels in their order, and a model
    from elsewhere for what it has normalised itself."""
    if kind == "sentencepiece":
        return settled(text)
    if kind == "set":
        return ";".join(sorted({" ".join(label.split()) for label in text.split(";")} - {""}))
    return " ".join(part for part in text.split(" ") if part) if kind == "symbols" else text


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if not TOKENIZERS[kind].scale])
@given(text=texts)
@example("")
@example(" ")
@example("  a  b ")
@example("￭")
@example("a￭b ￭ c [￭] ￭￭")
@example("a▁b ▁ ▁▁c")
@example("<unk> <s> </s> <eos>")
@example("\uf8f0s\uf8f0\uf8f0?")
@example("x\ny\r")
@settings(max_examples=200, deadline=None)
def test_decode_inverts_encode(kind: str, text: str) -> None:
    tokenizer = trained(kind)
    text = canonical(kind, text)
    pieces = tokenizer.encode(text)
    assert tokenizer.decode(pieces) == text
    assert all(pieces), "no piece is empty"


@pytest.mark.parametrize(
    "kind", [kind for kind in TOKENIZERS if "sampling" in TOKENIZERS.settings_class(kind).model_fields]
)
@given(text=texts, seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_sampling_keeps_the_text_and_obeys_its_rng(kind: str, text: str, seed: int) -> None:
    tokenizer = trained(kind, 0.4)
    sampled = tokenizer.encode_sampled(text, Random(seed))
    assert tokenizer.decode(sampled) == text
    assert sampled == tokenizer.encode_sampled(text, Random(seed))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampling_gives_several_segmentations(kind: str) -> None:
    tokenizer = trained(kind, 0.3)
    found = {tuple(tokenizer.encode_sampled("the lowest widening", Random(seed))) for seed in range(50)}
    assert tokenizer.samples
    assert len(found) > 5


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_without_sampling_training_sees_what_prediction_sees(kind: str) -> None:
    tokenizer = trained(kind)
    assert not tokenizer.samples
    assert all(tokenizer.encode_sampled(text, Random(1)) == tokenizer.encode(text) for text in TEXTS)


@given(text=texts)
@settings(max_examples=200, deadline=None)
def test_our_bpe_without_dropout_is_sentencepieces(text: str) -> None:
    tokenizer = trained("bpe")
    scores = subwords.inventory(tokenizer._processor)
    words = subwords.words_of(subwords.escaped(text))
    names, pieces, lengths = Merges(scores, 0.0).cuts(words, np.arange(len(words), dtype=np.uint64))
    assert [names[piece] for piece in pieces] == tokenizer.encode(text)
    ends = np.cumsum(lengths)
    parts = [
        "".join(names[piece] for piece in pieces[end - length : end]) for end, length in zip(ends, lengths, strict=True)
    ]
    assert parts == words


def test_a_word_is_cut_alike_whoever_stands_beside_it() -> None:
    merges = Merges(subwords.inventory(trained("bpe")._processor), 0.3)
    words = ["▁lower", "▁x", "▁widest", "▁", "▁lower", "▁newest" * 9, "▁żółw"]
    keys = np.array([3, 4, 5, 6, 7, 8, 9], dtype=np.uint64)
    names, pieces, lengths = merges.cuts(words, keys)
    together = np.split(pieces, np.cumsum(lengths)[:-1])
    for word, key, cut in zip(words, keys, together, strict=True):
        alone = merges.cuts([word], np.array([key]))
        assert [alone.names[piece] for piece in alone.pieces] == [names[piece] for piece in cut]


def test_merges_are_dropped_as_often_as_they_should_be() -> None:
    # "ab" is one merge. "abc": ab first, or bc where ab was passed over; either can become abc in the next step.
    merges = Merges({"a": -9.0, "b": -9.0, "c": -9.0, "ab": -1.0, "abc": -2.0, "bc": -3.0}, 0.25)
    keys, count = np.arange(20_000, dtype=np.uint64), 20_000
    assert (merges.cuts(["ab"] * count, keys).lengths == 1).mean() == pytest.approx(0.75, abs=0.01)
    names, pieces, lengths = merges.cuts(["abc"] * count, keys)
    found = Counter(" ".join(names[piece] for piece in cut) for cut in np.split(pieces, np.cumsum(lengths)[:-1]))
    ab, bc = 0.75, 0.25 * 0.75
    expected = {"abc": 0.75 * (ab + bc), "ab c": 0.25 * ab, "a bc": 0.25 * bc, "a b c": 0.25**2}
    assert {cut: found[cut] / count for cut in found} == pytest.approx(expected, abs=0.01)


def test_unigram_samples_in_proportion_to_probability() -> None:
    # "ab" can be cut in two ways: P(ab) = 0.5 and P(a) P(b) = 0.25, so the whole word is drawn 2 times of 3.
    scores = {"ab": math.log(0.5), "a": math.log(0.5), "b": math.log(0.5)}
    for sharpness, expected in ((1.0, 2 / 3), (2.0, 4 / 5)):
        sampler, rng = subwords.UnigramSampler(scores, sharpness), Random(0)
        whole = sum(sampler.draw("ab", rng) == ["ab"] for _ in range(3000))
        assert abs(whole / 3000 - expected) < 0.03


def test_full_bpe_dropout_leaves_characters() -> None:
    names, pieces, _ = Merges(subwords.inventory(trained("bpe")._processor), 1.0).cuts(
        ["▁lower"], np.zeros(1, np.uint64)
    )
    assert [names[piece] for piece in pieces] == list("▁lower")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_training_is_deterministic(kind: str) -> None:
    models = [TOKENIZERS[kind].train(chosen(kind), iter(TEXTS), seed=3).model for _ in range(2)]
    assert models[0] == models[1]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_size_too_large_for_the_corpus_falls_back(kind: str) -> None:
    tokenizer = TOKENIZERS[kind].train(TOKENIZERS.settings({"kind": kind, "size": 30000}), ["low lower", "new"], seed=1)
    assert 0 < len(tokenizer.pieces()) < 100
    assert tokenizer.decode(tokenizer.encode("low newer")) == "low newer"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_size_too_small_for_the_alphabet_names_the_least_size(kind: str) -> None:
    with pytest.raises(SeqloomError, match="at least") as caught:
        TOKENIZERS[kind].train(TOKENIZERS.settings({"kind": kind, "size": 5}), TEXTS, seed=1)
    assert caught.value.code == "E_RECIPE"


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_nothing_to_train_on_is_an_error(kind: str) -> None:
    with pytest.raises(SeqloomError) as caught:
        TOKENIZERS[kind].train(chosen(kind), ["", ""], seed=1)
    assert caught.value.code == "E_EMPTY"


@pytest.mark.parametrize("kind", list(TOKENIZERS))
def test_saved_and_loaded_is_the_same(kind: str, tmp_path: Path) -> None:
    tokenizer = trained(kind)
    tokenizer.save(tmp_path)
    loaded = TOKENIZERS[kind].load(chosen(kind), tmp_path)
    assert loaded.pieces() == tokenizer.pieces()
    assert all(loaded.encode(text) == tokenizer.encode(text) for text in texts_of(kind))


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("content", [None, b"", b"not a model"])
def test_a_damaged_model_is_a_bundle_error(kind: str, content: bytes | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "sentencepiece.model").write_bytes(content)
    with pytest.raises(SeqloomError) as caught:
        TOKENIZERS[kind].load(chosen(kind), tmp_path)
    assert caught.value.code == "E_BUNDLE"


@pytest.mark.parametrize("kind", [kind for kind in TOKENIZERS if TOKENIZERS[kind].fixed_inventory])
def test_a_fixed_inventory_covers_the_training_texts(kind: str) -> None:
    tokenizer = trained(kind)
    known = set(tokenizer.pieces())
    assert len(known) == len(tokenizer.pieces())
    assert all(piece in known for text in texts_of(kind) for piece in tokenizer.encode(text))


def test_words_mark_symbols_and_leave_words_plain() -> None:
    words = Words(TOKENIZERS.settings("words"))
    pieces = words.encode("(no, it's fine)  really!")
    assert pieces == ["(￭", "no", "￭,", "it", "￭'￭", "s", "fine", "￭)", "￭ ￭", "￭ ￭", "really", "￭!"]
    assert [words.surface(piece) for piece in pieces[:6]] == ["(", "no", ",", "it", "'", "s"]
    assert words.surface("[￭]￭") == "￭"


def test_words_keep_combining_marks_and_joiners_inside() -> None:
    words = Words(TOKENIZERS.settings("words"))
    assert words.encode("हिन्दी में") == ["हिन्दी", "में"]
    assert words.encode("e\u0301te\u0301") == ["e\u0301te\u0301"]
    assert words.encode("می\u200cخواهم") == ["می\u200cخواهم"]


@pytest.mark.parametrize("kind", list(TOKENIZERS))
@given(
    pieces=st.lists(st.text(ANY, min_size=1, max_size=3) | st.sampled_from(["￭", "￭￭", "▁", "\uf8f0", "<C3>", "<unk>"]))
)
@settings(max_examples=50, deadline=None)
def test_decode_never_fails_on_what_a_model_invents(kind: str, pieces: list[str]) -> None:
    assert isinstance(trained(kind).decode(pieces), str)


def test_symbols_split_by_their_separator() -> None:
    settings_ = TOKENIZERS.settings({"kind": "symbols", "separator": "|"})
    symbols = TOKENIZERS["symbols"].train(settings_, [], 0)
    assert symbols.encode("AH0|B | C||D") == ["AH0", "B ", " C", "D"]
    assert symbols.decode(["a", "b"]) == "a|b"


def test_bytes_need_no_unknown_token() -> None:
    tokenizer = trained("bytes")
    assert tokenizer.encode("aß") == ["a", "<C3>", "<9F>"]
    assert len(tokenizer.pieces()) == 256


# --- sets and numbers --------------------


def test_a_set_has_each_label_once_in_the_order_of_their_names() -> None:
    tokenizer = trained("set")
    assert tokenizer.encode(" wide  place;blue; ;red;blue") == ["blue", "red", "wide place"]
    assert tokenizer.encode("  ") == []
    assert tokenizer.decode([]) == ""


@given(number=st.floats(-2, 6, allow_subnormal=False))
@settings(max_examples=200, deadline=None)
def test_a_number_is_the_nearest_level_and_a_level_is_itself(number: float) -> None:
    tokenizer = TOKENIZERS["number"].train(chosen("number", levels=200), iter(["1", "5"]), seed=1)
    (piece,) = tokenizer.encode(repr(number))
    assert abs(float(piece) - min(max(number, 0.0), 6.0)) <= 0.01 + 1e-9  # a quarter of the range beyond each end
    assert tokenizer.encode(tokenizer.decode([piece])) == [piece]


@pytest.mark.parametrize(
    ("low", "high", "levels", "first", "step"),
    [
        (1, 5, 400, "0.00", "0.01"),
        (0, 1, 10, "-0.2", "-0.1"),
        (-3, 3, 60, "-4.5", "-4.4"),
        (0, 1_000_000, 400, "-250000", "-245000"),
        (1e-20, 5e-20, 4, "0e-20", "1e-20"),
        (1e20, 5e20, 4, "0e20", "1e20"),
    ],
)
def test_levels_are_steps_that_people_count_in(low: float, high: float, levels: int, first: str, step: str) -> None:
    tokenizer = TOKENIZERS["number"].train(chosen("number", levels=levels), iter([repr(low), repr(high)]), seed=1)
    pieces = tokenizer.pieces()
    assert pieces is not None
    assert pieces[:2] == [first, step]
    assert float(pieces[-1]) >= high
    assert tokenizer.encode(repr(low)) == [min(pieces, key=lambda piece: abs(float(piece) - low))]


@pytest.mark.parametrize("texts", [["3", "3.0"], ["1e10", "10000000000.000001"], [], [""], ["1", "1"]])
def test_numbers_that_are_all_alike_teach_nothing(texts: list[str]) -> None:
    with pytest.raises(SeqloomError) as caught:
        TOKENIZERS["number"].train(chosen("number"), iter(texts), seed=1)
    assert caught.value.exit_code == 3


@pytest.mark.parametrize("content", [None, "", "{}", '{"step": [1, 0], "first": 0, "count": 99999999}', "[1]"])
def test_damaged_levels_are_a_bundle_error(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "levels.json").write_text(content)
    with pytest.raises(SeqloomError) as caught:
        TOKENIZERS["number"].load(chosen("number"), tmp_path)
    assert caught.value.exit_code == 4


def test_a_model_from_elsewhere_does_what_sentencepiece_does_with_it(tmp_path: Path) -> None:
    tokenizer = trained("sentencepiece")
    theirs = sentencepiece.SentencePieceProcessor(model_file=from_elsewhere())
    for text in [*TEXTS[:5], "ﬁne   ＡＢＣ", "żółw"]:
        pieces = theirs.encode(text, out_type=str)
        assert tokenizer.encode(text) == pieces
        assert tokenizer.decode(pieces) == theirs.decode_pieces(pieces).strip()
    assert tokenizer.decode(tokenizer.encode("ﬁne   ＡＢＣ")) == "fine ABC", "its own normalisation, and no other"
    tokenizer.save(tmp_path)
    again = TOKENIZERS["sentencepiece"].load(chosen("sentencepiece", model="gone.model"), tmp_path)
    assert again.encode(TEXTS[0]) == tokenizer.encode(TEXTS[0]), "a bundle holds a copy"


def test_a_text_may_begin_with_a_symbol() -> None:
    tokenizer = trained("sentencepiece")
    rest = tokenizer.encode(" the test")
    assert tokenizer.encode(">>de<< the test") == [">>de<<", *rest]
    assert tokenizer.encode(">>de-at<< the test") == [">>de-at<<", *rest], "the longest that fits"
    assert ">>de<<" not in tokenizer.encode("the >>de<< test"), "elsewhere it is text"
    assert tokenizer.decode([">>de<<", "▁the"]) == ">>de<<the"
    assert {">>de<<", ">>de-at<<"} <= {*tokenizer.pieces()}


@pytest.mark.parametrize("data", [b"", b"no model at all"])
def test_what_is_no_sentencepiece_model_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.model").write_bytes(data)
    with pytest.raises(SeqloomError, match="not a sentencepiece model"):
        TOKENIZERS["sentencepiece"].train(chosen("sentencepiece", model=str(tmp_path / "x.model")), iter(()), 1)
    with pytest.raises(SeqloomError, match="no such sentencepiece model") as refused:
        TOKENIZERS["sentencepiece"].train(chosen("sentencepiece", model=str(tmp_path / "y.model")), iter(()), 1)
    assert refused.value.code == "E_FILE"
