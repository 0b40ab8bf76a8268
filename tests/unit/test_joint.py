"""One decoder for both: what it reads, in which order, and that reading all at once is reading in turns."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from seqloom.batch import Batch, Frames, Tokens
from seqloom.errors import SeqloomError
from seqloom.models.generator import shifted
from seqloom.models.joint import Joint, without_gaps
from seqloom.models.model import MODELS, EncoderDecoder, Ensemble
from seqloom.nn.tape import Tape
from seqloom.search.loop import search
from seqloom.search.strategies import STRATEGIES
from seqloom.specials import BOS, EOS, SEP
from toy_echo import VOCABULARY, echoes, share_right, trained

SIZE = 12
STACK: dict[str, object] = {"kind": "transformer", "width": 8, "heads": 2, "layers": 2, "dropout": 0.0}
GRU: dict[str, object] = {"kind": "rnn", "width": 8, "cell": "gru", "layers": 2}
CLOSE = {"atol": 1e-10, "rtol": 1e-10}
A, B, C, X, Y = 6, 7, 8, 9, 10


def joint(size: int = SIZE, **raw: object) -> Joint:
    torch.manual_seed(0)
    embedding = {"kind": "learned", "width": 8}
    chosen = Joint.Settings.model_validate({"embedding": embedding, "decoder": STACK, **raw})
    return Joint(chosen, source_vocabulary=size, target_vocabulary=size).double().eval()


def some_batch(sources: int = 1) -> Batch:
    first, second = Tokens.pad([[A, B, C, EOS], [B, EOS]]), Tokens.pad([[X, EOS], [Y, X, X, EOS]])
    given = {"source": first, "tags": second}
    return Batch(dict(list(given.items())[:sources]), Tokens.pad([[X, EOS], [Y, A, B, EOS]]))


class Reading:
    """Notes which ids a model's embedding sees."""

    def __init__(self, model: Joint) -> None:
        self.seen: list[Tensor] = []
        model.embedding.register_forward_pre_hook(lambda _, given: self.seen.append(given[0]))


# --- what is read --------------------


def test_source_sep_and_target_are_one_sequence_without_a_gap() -> None:
    model = joint()
    reading = Reading(model)
    model.losses(some_batch())
    (ids,) = reading.seen
    assert ids[0, :7].tolist() == [A, B, C, EOS, SEP, BOS, X]
    assert ids[1, :7].tolist() == [B, EOS, SEP, BOS, Y, A, B]


def test_several_sources_follow_one_another_each_with_its_sep() -> None:
    model = joint()
    reading = Reading(model)
    model.start(some_batch(sources=2).sources, 1)
    (ids,) = reading.seen
    assert ids[0, :8].tolist() == [A, B, C, EOS, SEP, X, EOS, SEP]
    assert ids[1, :8].tolist() == [B, EOS, SEP, Y, X, X, EOS, SEP]


def test_without_gaps_says_where_everything_went() -> None:
    parts = [Tokens.pad([[A, B], [C]]), Tokens.pad([[X], [Y]]), Tokens.pad([[A], [B, C]])]
    whole, places = without_gaps(parts)
    assert whole.ids[whole.mask].tolist() == [A, B, X, A, C, Y, B, C]
    assert whole.mask.tolist() == [[True] * 4 + [False]] * 2
    for part, place in zip(parts, places, strict=True):
        assert torch.equal(whole.ids.gather(1, place)[part.mask], part.ids[part.mask])


def test_only_the_target_is_asked_about() -> None:
    model, batch = joint(), some_batch()
    minimised, nll = model.losses(batch)
    assert minimised.shape == nll.shape == (6,)  # X EOS, Y A B EOS: no term for the sources


@pytest.mark.parametrize("sources", [1, 2])
@pytest.mark.parametrize("decoder", [STACK, {**STACK, "positions": "rotary"}, GRU], ids=str)
@torch.no_grad()
def test_reading_everything_at_once_equals_reading_in_turns(decoder: dict[str, object], sources: int) -> None:
    model, batch = joint(decoder=decoder), some_batch(sources)
    assert batch.target is not None
    at_once, _ = model.forced(batch)
    in_turns, _ = model.decoder(shifted(batch.target).ids, model.start(batch.sources, 1))
    torch.testing.assert_close(at_once[batch.target.mask], in_turns[batch.target.mask], **CLOSE)
    history = Tokens(batch.target.ids.flip(0), batch.target.mask)
    other, _ = model.forced(batch, history)
    assert not torch.allclose(other[0, 1], at_once[0, 1])


@torch.no_grad()
def test_hypotheses_begin_where_their_source_ended() -> None:
    model, batch = joint(), some_batch()
    log_probs, _ = model.step(torch.full((6,), BOS), model.start(batch.sources, 3))
    alone, _ = model.step(torch.full((2,), BOS), model.start(batch.sources, 1))
    torch.testing.assert_close(log_probs, alone.repeat_interleave(3, dim=0), **CLOSE)


# --- attention --------------------


@pytest.mark.parametrize("sources", [1, 2])
@torch.no_grad()
def test_attention_is_the_self_attention_from_target_to_source(sources: int) -> None:
    model, batch = joint(), some_batch(sources)
    assert batch.target is not None
    layers = model.attention(batch)
    real = torch.cat([source.mask for source in batch.sources.values()], dim=1)
    width = real.shape[1]
    assert [layer.shape for layer in layers] == [(2, 2, 4, width)] * 2
    for row in range(2):
        example = batch.rows(torch.tensor([row]))
        prompt = []
        for part in example.sources.values():
            assert isinstance(part, Tokens)
            prompt += [part.ids[part.mask], torch.tensor([SEP])]
        said = shifted(batch.target).ids[row][batch.target.mask[row]]
        ids = torch.cat([*prompt, said])
        with Tape(*model.decoder.self_taps) as tape:
            model.decoder(ids[None], model.decoder.start(None, 1))
        places = [place for place, token in enumerate(ids[: -len(said)].tolist()) if token != SEP]
        for name, layer in zip(model.decoder.self_taps, layers, strict=True):
            expected = tape.joined(name, dim=2)[0, :, -len(said) :][:, :, places]
            found = layer[row, :, : len(said)]
            torch.testing.assert_close(found[..., real[row]], expected, **CLOSE)
            assert not found[..., ~real[row]].any()
            assert (found.sum(-1) < 1).all()  # SEP and the target have their share


def test_a_recurrent_joint_model_has_no_attention() -> None:
    assert joint(decoder={"kind": "rnn", "width": 8}).attention(some_batch()) == []


# --- in search --------------------


@pytest.mark.parametrize("decoder", [STACK, {"kind": "rnn", "width": 8}], ids=str)
def test_search_finds_what_forced_reading_scores(decoder: dict[str, object]) -> None:
    model = joint(size=VOCABULARY, decoder=decoder)
    batch = echoes(5, seed=3)
    beam = STRATEGIES.settings({"kind": "beam", "size": 3, "n_best": 3})
    for source, found in enumerate(search(model, batch.sources, beam)):
        for hypothesis in found:
            if hypothesis.truncated:
                continue
            said = Tokens.pad([[*hypothesis.tokens, EOS]])
            one = Batch({"source": batch.sources["source"].rows(torch.tensor([source]))}, said)
            assert hypothesis.log_prob == pytest.approx(-float(model.nll(one).detach().sum()), abs=1e-8)


@torch.no_grad()
def test_a_joint_and_an_encoder_decoder_model_make_an_ensemble() -> None:
    raw = {"source_embedding": {"width": 8}, "target_embedding": {"width": 8}, "encoder": {"width": 8}}
    torch.manual_seed(1)
    chosen = EncoderDecoder.Settings.model_validate({**raw, "decoder": STACK})
    other = EncoderDecoder(chosen, source_vocabulary=SIZE, target_vocabulary=SIZE).double().eval()
    one, batch, first = joint(), some_batch(), torch.full((4,), BOS)
    both = Ensemble([one, other])
    state = both.start(batch.sources, 2)
    rows = torch.tensor([1, 0, 3, 2])
    log_probs, state = both.step(first, state)
    log_probs, _ = both.step(torch.full((4,), X), state.select(rows))
    expected = []
    for member in (one, other):
        _, alone = member.step(first, member.start(batch.sources, 2))
        expected.append(member.step(torch.full((4,), X), alone)[0].exp())
    torch.testing.assert_close(log_probs.exp(), torch.stack(expected).mean(0), **CLOSE)


# --- settings and refusals --------------------


def test_the_table_of_models_knows_it_and_its_defaults_are_complete() -> None:
    chosen = MODELS.settings("joint")
    assert MODELS.settings(chosen.model_dump(mode="json")) == chosen
    assert chosen.one_vocabulary  # type: ignore[attr-defined]
    assert list(chosen.parts) == ["decoder"]  # type: ignore[attr-defined]


def test_a_recurrent_decoder_starts_at_zero_where_nothing_is_said() -> None:
    for raw in ("rnn", {"kind": "rnn", "cell": "gru"}):
        decoder = Joint.Settings.model_validate({"decoder": raw}).decoder
        assert decoder.start == "zero"  # type: ignore[attr-defined]
    learned = Joint.Settings.model_validate({"decoder": {"kind": "rnn", "start": "learned"}}).decoder
    assert learned.start == "learned"  # type: ignore[attr-defined]
    assert EncoderDecoder.Settings.model_validate({"decoder": "rnn"}).decoder.start == "bridge"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"decoder": "luong"}, "attention: there is no encoder to attend to"),
        ({"decoder": "bahdanau"}, "attention: there is no encoder to attend to"),
        ({"decoder": {"kind": "rnn", "start": "bridge"}}, "start: bridge needs an encoder; use zero or learned"),
        ({"decoder": {"kind": "rnn", "start": "zero", "summary_input": True}}, "summary_input: there is no encoder"),
        ({"decoder": "monotonic"}, "without an encoder"),
        ({"head": "copy"}, "head: a joint model"),
        ({"tied": True, "embedding": "onehot"}, "tied: only a learned embedding"),
        ({"encoder": "rnn"}, "unknown key 'encoder'"),
    ],
    ids=str,
)
def test_impossible_settings_are_refused(raw: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Joint.Settings.model_validate(raw)


def test_an_encoder_decoder_still_refuses_a_decoder_that_never_sees_the_source() -> None:
    with pytest.raises(ValidationError, match="never sees the source"):
        EncoderDecoder.Settings.model_validate({"decoder": {"kind": "rnn", "start": "zero"}})


def test_frames_are_refused() -> None:
    frames = Frames(torch.zeros(1, 2, 3), torch.ones(1, 2, dtype=torch.bool))
    with pytest.raises(SeqloomError, match="tokens only") as refused:
        joint().start({"source": frames}, 1)
    assert refused.value.code == "E_RECIPE"


def test_the_output_matrix_may_be_the_embedding_unless_sources_have_tokens_of_their_own() -> None:
    model = joint(tied=True)
    assert sum(parameter.shape[0] == SIZE and parameter.dim() == 2 for parameter in model.parameters()) == 1
    chosen = Joint.Settings.model_validate({"tied": True})
    with pytest.raises(SeqloomError, match="cannot be the output matrix"):
        Joint(chosen, source_vocabulary=SIZE + 2, target_vocabulary=SIZE)
    wider = Joint(chosen.with_(tied=False), source_vocabulary=SIZE + 2, target_vocabulary=SIZE)
    source = Tokens.pad([[SIZE + 1, SEP, A, EOS]])
    assert wider.step(torch.tensor([BOS]), wider.start({"source": source}, 1))[0].shape == (1, SIZE)


# --- it learns --------------------


@pytest.mark.parametrize(
    ("decoder", "lr"),
    [
        ({"kind": "transformer", "width": 32, "layers": 2, "dropout": 0.0}, 5e-3),
        ({"kind": "rnn", "width": 128}, 3e-2),
    ],
    ids=["transformer", "lstm"],
)
def test_a_joint_model_learns_to_say_its_source_again(decoder: dict[str, object], lr: float) -> None:
    torch.manual_seed(0)
    chosen = Joint.Settings.model_validate({"embedding": {"width": 32}, "decoder": decoder})
    model = Joint(chosen, source_vocabulary=VOCABULARY, target_vocabulary=VOCABULARY)
    assert share_right(model.eval()) < 0.1
    assert share_right(trained(model, lr=lr)) > 0.85
