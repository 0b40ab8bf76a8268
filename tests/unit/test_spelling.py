"""The encoder that spells, against its formulas and word by word: padding, batch, order, hashes, what is learned."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from seqloom.batch import Frames, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.memories import ExtraSource
from seqloom.models.spelling import SPELLERS, WORD_ENCODERS, Cut, HashedWords, SpelledEncoder
from seqloom.models.tables import ENCODERS
from seqloom.nn.frontends import EMBEDDINGS
from seqloom.nn.recurrent import Bidirectional
from seqloom.nn.tape import Tape
from seqloom.specials import EOS

WIDTH, VOCABULARY, BLANK = 4, 40, 39
Sentence = Sequence[Sequence[int]]  # words of letters
SENTENCES: list[Sentence] = [[[7, 8, 9], [10]], [], [[11, 12], [7, 8, 9], [13, 14, 15, 16]], [[9]]]
every_kind = pytest.mark.parametrize("characters", list(SPELLERS))
every_words = pytest.mark.parametrize("words", list(WORD_ENCODERS))


def spelled(sentences: Sequence[Sentence], blanks: bool = True, end: bool = True) -> Tokens:
    """Sentences as letters, with a blank between two words or without, and with EOS."""
    ids, words = [], []
    for sentence in sentences:
        letters: list[tuple[int, int]] = []
        for number, word in enumerate(sentence):
            letters += [(BLANK, -1)] if number and blanks else []
            letters += [(letter, number) for letter in word]
        letters += [(EOS, -1)] if end else []
        ids.append([letter for letter, _ in letters])
        words.append([word for _, word in letters])
    tokens = Tokens.pad(ids)
    return Tokens(tokens.ids, tokens.mask, words=Tokens.pad(words, fill=-1).ids)


def build(characters: str = "convolution", words: str = "rnn", seed: int = 1, **raw: object) -> SpelledEncoder:
    """Every parameter is drawn: a table of zeros would hide mistakes."""
    tiny = {"heads": 2, "dropout": 0.0, "layers": 2, "width": WIDTH}
    inner = {key: value for key, value in tiny.items() if key in WORD_ENCODERS.settings_class(words).model_fields}
    chosen = {"characters": {"kind": characters, "width": 6}, "words": {"kind": words, **inner}}
    settings = SpelledEncoder.Settings.model_validate({**chosen, "width": 3, "buckets": 101, **raw})
    embedding = EMBEDDINGS.build(EMBEDDINGS.settings({"kind": "learned", "width": 5}), vocabulary=VOCABULARY)
    encoder, generator = SpelledEncoder(settings, embedding=embedding), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return encoder.double().eval()


def close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, atol=1e-10, rtol=1e-10)


def vectors(encoder: SpelledEncoder, source: Tokens) -> Tensor:
    """What the encoder over words reads: B W F."""
    with Tape("source.words") as tape, torch.no_grad():
        encoder(source)
    (found,) = tape.steps("source.words")
    return found


# --- formulas --------------------


def test_letters_find_their_words_and_places() -> None:
    cut = Cut.of(spelled(SENTENCES))
    assert cut.words.tolist() == [
        [0, 0, 0, 4, 1, 2, 4, 4, 4, 4, 4, 4],
        [0, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4],  # nothing but the end
        [0, 0, 4, 1, 1, 1, 4, 2, 2, 2, 2, 3],
        [0, 1, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4],
    ]
    assert cut.places.tolist() == [
        [0, 1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        [0] * 12,
        [0, 1, 0, 0, 1, 2, 0, 0, 1, 2, 3, 0],
        [0] * 12,
    ]
    assert cut.mask.sum(1).tolist() == [3, 1, 4, 2]
    assert cut.lengths.tolist() == [[3, 1, 1, 0], [1, 0, 0, 0], [2, 3, 4, 1], [1, 1, 0, 0]]


@torch.no_grad()
def test_the_convolution_is_its_formula() -> None:
    """max_t (W [x_{t-1}; x_t; x_{t+1}] + b), nothing beyond a word, with blanks between words or without."""
    encoder = build(buckets=0)
    linear, table = encoder.letters.linear, encoder.vectors.embedding.weight  # type: ignore[union-attr]
    for source in (spelled(SENTENCES), spelled(SENTENCES, blanks=False)):
        found = vectors(encoder, source)
        for row, sentence in enumerate(SENTENCES):
            for number, word in enumerate([*sentence, [EOS]]):
                x = nn.functional.pad(table[list(word)], (0, 0, 1, 1))  # type: ignore[index]
                windows = torch.stack(
                    [x[t : t + 3].T.flatten() for t in range(len(word))]
                )  # a feature's letters together
                close(found[row, number], linear(windows).amax(0))  # type: ignore[operator]


@torch.no_grad()
def test_the_letter_rnn_is_that_of_each_word_alone() -> None:
    encoder = build("rnn", buckets=0)
    both, table = encoder.letters.both, encoder.vectors.embedding.weight  # type: ignore[union-attr]
    assert isinstance(both, Bidirectional)
    found = vectors(encoder, spelled(SENTENCES))
    for row, sentence in enumerate(SENTENCES):
        for number, word in enumerate([*sentence, [EOS]]):
            _, (h, _) = both(table[list(word)][None], torch.tensor([len(word)]))  # type: ignore[index]
            close(found[row, number], h[0])


def test_the_hash_is_its_formula() -> None:
    source, hashed = spelled(SENTENCES), HashedWords(1 << 16, 2, 0.0)
    rows = hashed.rows(source.ids, Cut.of(source))
    for row, sentence in enumerate(SENTENCES):
        for number, word in enumerate([*sentence, [EOS]]):
            wanted = sum((letter + 1) * 48_271**place for place, letter in enumerate(word)) % (2**31 - 1) % (1 << 16)
            assert int(rows[row, number]) == wanted
    assert rows[0, 0] == rows[2, 1]  # the same word, wherever it stands


def test_large_ids_and_long_words_do_not_overflow() -> None:
    word = [2**31 - 2] * 300
    source, hashed = spelled([[word]]), HashedWords(1 << 16, 2, 0.0)
    rows = hashed.rows(source.ids, Cut.of(source))
    powers = [pow(48_271, place % 64, 2**31 - 1) for place in range(300)]
    assert int(rows[0, 0]) == sum((2**31 - 1) * power for power in powers) % (2**31 - 1) % (1 << 16)
    assert (rows >= 0).all()


# --- memory --------------------


@every_kind
@every_words
@torch.no_grad()
def test_one_state_per_word_and_one_for_the_end(characters: str, words: str) -> None:
    encoder = build(characters, words)
    memory = encoder(spelled(SENTENCES))
    assert memory.states.shape == (4, 4, encoder.width)
    assert memory.mask.sum(1).tolist() == [3, 1, 4, 2]
    assert not memory.states[~memory.mask].any()
    assert memory.states.isfinite().all()
    assert tuple(tuple(part.shape[-1] for part in layer) for layer in memory.summary) == encoder.summary_sizes
    close(memory.states, encoder.words(Frames(vectors(encoder, spelled(SENTENCES)), memory.mask)).states)


def outcome(encoder: SpelledEncoder, source: Tokens) -> tuple[list[Tensor], tuple[Tensor, ...]]:
    """Real states, summary, and the gradients of all parameters."""
    memory = encoder(source)
    summary = [part for layer in memory.summary for part in layer]
    loss = memory.states.square().sum() + sum(part.square().sum() for part in summary)
    found = torch.autograd.grad(loss, list(encoder.parameters()), materialize_grads=True, allow_unused=True)
    return [memory.states[memory.mask], *summary], found


@every_kind
@every_words
def test_junk_and_more_padding_change_no_output_and_no_gradient(characters: str, words: str) -> None:
    encoder, source = build(characters, words), spelled(SENTENCES)
    expected = outcome(encoder, source)
    assert source.words is not None
    for columns, word in ((0, 3), (3, 0), (2, 50)):
        mask = nn.functional.pad(source.mask, (0, columns))
        ids = nn.functional.pad(source.ids, (0, columns)).masked_fill(~mask, 17)
        junk = nn.functional.pad(source.words, (0, columns)).masked_fill(~mask, word)
        found = outcome(encoder, Tokens(ids, mask, words=junk))
        for one, other in zip([*found[0], *found[1]], [*expected[0], *expected[1]], strict=True):
            close(one, other)


@every_kind
@every_words
@torch.no_grad()
def test_a_batch_equals_each_alone_in_any_order(characters: str, words: str) -> None:
    encoder = build(characters, words)
    together = encoder(spelled(SENTENCES))
    for row, sentence in enumerate(SENTENCES):
        alone = encoder(spelled([sentence]))
        close(together.states[row, : len(sentence) + 1], alone.states[0])
        for layer, expected in zip(together.summary, alone.summary, strict=True):
            for part, wanted in zip(layer, expected, strict=True):
                close(part[row], wanted[0])
    close(encoder(spelled(SENTENCES[::-1])).states, together.states.flip(0))


@torch.no_grad()
def test_a_source_without_an_end_has_its_words_alone() -> None:
    memory = build()(spelled(SENTENCES, end=False))
    assert memory.mask.sum(1).tolist() == [2, 0, 3, 1]
    assert memory.states.isfinite().all()


@torch.no_grad()
def test_a_word_that_shows_no_letter_is_a_word() -> None:
    """A tokenizer may show nothing of a word in the middle: the words behind it keep their numbers."""
    source = spelled([[[7, 8], [9], [10]]], blanks=False)
    assert source.words is not None
    gap = Tokens(
        source.ids,
        source.mask,
        words=source.words.where(source.words < 1, source.words + 1).masked_fill(source.words < 0, -1),
    )
    for kind in SPELLERS:
        encoder = build(kind)
        found = vectors(encoder, gap)
        assert found.shape[1] == 5
        assert not found[0, 1].any()
        close(found[0, [0, 2, 3, 4]], vectors(encoder, source)[0])


# --- what it can tell apart --------------------


@every_kind
@torch.no_grad()
def test_the_order_of_words_and_of_letters_matters(characters: str) -> None:
    encoder = build(characters)
    one, other, anagram = (encoder(spelled([s])).summary[-1][0] for s in ([[7, 8], [9]], [[9], [7, 8]], [[8, 7], [9]]))
    assert not torch.allclose(one, other)
    assert not torch.allclose(one, anagram)


@every_kind
@torch.no_grad()
def test_words_of_one_row_and_words_never_seen_are_told_apart_by_their_letters(characters: str) -> None:
    """One row for all words: collisions add the same to both, and the letters go on speaking."""
    encoder = build(characters, buckets=1)
    found = vectors(encoder, spelled([[[7, 8], [9, 10]]]))[0]
    close(found[0, 6:], found[1, 6:])
    assert not torch.allclose(found[0, :6], found[1, :6])
    memory = encoder(spelled([[[7, 8], [9, 10]], [[9, 10], [9, 10]]]))
    assert not torch.allclose(memory.states[0, 0], memory.states[1, 0])


def test_words_never_seen_add_nothing_and_words_seen_learn_their_row() -> None:
    settings = SpelledEncoder.Settings.model_validate({"width": 3, "words": {"width": WIDTH}, "word_dropout": 0.0})
    embedding = EMBEDDINGS.build(EMBEDDINGS.settings({"kind": "learned", "width": 5}), vocabulary=VOCABULARY)
    encoder = SpelledEncoder(settings, embedding=embedding)
    assert encoder.hashed is not None
    optimiser = torch.optim.Adam(encoder.parameters(), lr=0.1)
    assert not vectors(encoder, spelled(SENTENCES))[..., -3:].any()
    encoder(spelled([[[7, 8], [9]]])).summary[-1][0].sum().backward()
    optimiser.step()
    found = vectors(encoder, spelled([[[7, 8], [9], [9, 7, 8]]]))[0, :, -3:]  # two known words, a new one, the end
    assert found.any(1).tolist() == [True, True, False, True]
    assert int(encoder.hashed.weight.any(1).sum()) == 3


def test_every_parameter_is_reached() -> None:
    for characters in SPELLERS:
        for words in WORD_ENCODERS:
            encoder = build(characters, words)
            names = [name for name, _ in encoder.named_parameters()]
            idle = {n for n, g in zip(names, outcome(encoder, spelled(SENTENCES))[1], strict=True) if not g.any()}
            assert not idle


def test_some_words_are_taken_for_unknown_ones_in_training_only() -> None:
    encoder = build(word_dropout=0.5)
    source = spelled([[[7, 8]] * 400])
    plain = vectors(encoder, source)[0, :-1]
    torch.manual_seed(3)
    seen = vectors(encoder.train(), source)[0, :-1]
    zeroed = ~seen[:, 6:].any(1)
    assert 0.4 < float(zeroed.double().mean()) < 0.6
    close(seen[~zeroed], plain[~zeroed])  # the others are as they are in prediction: nothing is scaled
    close(seen[:, :6], plain[:, :6])
    assert torch.equal(vectors(encoder.eval(), source)[0, :-1], plain)


# --- tape and refusals --------------------


@torch.no_grad()
def test_the_sources_tap_is_passed_once_by_its_letters_and_words_have_their_own() -> None:
    encoder, source = build(), spelled(SENTENCES)
    silent = encoder(source).states
    with Tape("source.embedded", "source.words") as tape:
        assert torch.equal(encoder(source).states, silent)
    (letters,), (words,) = tape.steps("source.embedded"), tape.steps("source.words")
    assert letters.shape == (*source.ids.shape, 5)
    assert words.shape == (4, 4, 9)
    with Tape(replace={"source.words": lambda tensor, step: torch.zeros_like(tensor)}):
        assert not torch.equal(encoder(source).states, silent)


def test_frames_and_sources_without_words_are_refused() -> None:
    with pytest.raises(SeqloomError, match=r"E_RECIPE.*frames have none"):
        ENCODERS.build(ENCODERS.settings("spelled"), embedding=None, frames=3)
    with pytest.raises(AssertionError, match="whose letters"):
        build()(Tokens.pad([[7, 8, EOS]]))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"characters": {"kernel": 4}}, "kernel: a window needs a middle, use 3 or 5"),
        ({"characters": {"kind": "rnn", "width": 5}}, "an even width, got 5"),
        ({"words": "spelled"}, "unknown kind 'spelled'"),
        ({"buckets": -1}, "buckets"),
        ({"word_dropout": 1.0}, "word_dropout"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(raw: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SpelledEncoder.Settings.model_validate(raw)


def test_an_extra_cannot_be_spelled() -> None:
    with pytest.raises(ValidationError, match="encoder: only the words of the first source are known"):
        ExtraSource.Settings.model_validate({"encoder": "spelled"})
