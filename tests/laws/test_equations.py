"""The recurrent decoder against its equations, written out as a plain loop: one step, one layer at a time.

Cells, compositions and attention are tested by their own equations; here it is who feeds whom, and when.
"""

from __future__ import annotations

import pytest
import torch
from cases import CASES, Case, build, close, some_batch, some_inputs
from torch import Tensor

from seqloom.models.contracts import Memory
from seqloom.models.rnn import RecurrentDecoder

STEPS = 3
RECURRENT = [case for case in CASES if isinstance(case.settings.decoder, RecurrentDecoder.Settings)]
every_recurrent_case = pytest.mark.parametrize("case", RECURRENT, ids=str)


class Loop:
    """h: the states of the layers; c: the context; fed: what the last step hands to the recurrence, zero at first;
    past: the sum of the weights of earlier steps, which a score with coverage reads."""

    def __init__(self, decoder: RecurrentDecoder, settings: RecurrentDecoder.Settings, memory: Memory) -> None:
        self.decoder, self.settings, self.memory = decoder, settings, memory
        self.layers = list(decoder.bridge(memory))
        self.fed: Tensor | None = None
        covers = settings.attention is not None and settings.attention.coverage
        self.past = memory.states.new_zeros(memory.mask.shape) if covers else None

    def attend(self, query: Tensor) -> Tensor:
        attention = self.decoder.attention
        assert attention is not None
        prepared = attention.prepare(self.memory.states, self.memory.mask)
        context, weights = attention.attend(query[:, None], prepared, past=self.past)
        if self.past is not None:
            self.past = self.past + weights.mean(1)[:, 0]
        return context[:, 0]

    def step(self, token: Tensor) -> Tensor:
        decoder, settings, context = self.decoder, self.settings, None
        embedded = x = decoder.embedding(token[:, None])[:, 0]
        if settings.attention is not None and settings.attention.query == "previous":
            context = self.attend(self.layers[-1][0])  # h_{t-1} of the top layer asks (Bahdanau)
        if settings.summary_input:
            x = decoder.summary_input(x, self.memory.summary[-1][0])
        if settings.context.recurrence != "none":
            x = decoder.recurrence_input(x, self._fed() if context is None else context)
        for layer, cell in enumerate(decoder.cells):
            if layer and settings.context.next_layer:
                context = self.attend(x) if context is None else context
                x = decoder.next_inputs[layer - 1](x, context)
            self.layers[layer] = cell.step(x, self.layers[layer])
            x = self.layers[layer][0]
        if settings.attention is not None and context is None:
            context = self.attend(x)  # h_t of the top layer asks (Luong)
        features = self._readout(x, context, embedded)
        self.fed = features if settings.context.recurrence == "attentional" else context
        return features

    def _fed(self) -> Tensor:
        if self.fed is not None:
            return self.fed
        decoder = self.decoder
        assert decoder.attention is not None
        attentional = self.settings.context.recurrence == "attentional"
        width = decoder.width if attentional else decoder.attention.width
        return torch.zeros(self.memory.mask.shape[0], width, dtype=self.memory.states.dtype)

    def _readout(self, h: Tensor, context: Tensor | None, embedded: Tensor) -> Tensor:
        """h~ = tanh(W_c compose(h, c)), with the embedding behind it where the readout sees the token."""
        settings, seen = self.settings, h
        uses = settings.context.readout or settings.context.recurrence == "attentional"
        if context is not None and uses:
            seen = self.decoder.readout_input(seen, context)
        if settings.token_readout:
            seen = torch.cat([seen, embedded], dim=-1)
        return h if seen is h else torch.tanh(self.decoder.readout(seen))


@every_recurrent_case
@torch.no_grad()
def test_the_recurrent_decoder_is_its_equations(case: Case) -> None:
    generator, batch = build(case), some_batch(case=case)
    decoder, settings = generator.decoder, case.settings.decoder
    assert isinstance(decoder, RecurrentDecoder)
    assert isinstance(settings, RecurrentDecoder.Settings)
    memories, tokens = generator.encode(batch.sources), some_inputs(len(batch), STEPS)
    features, _ = decoder(tokens, decoder.start(memories, len(batch)))
    loop = Loop(decoder, settings, memories["source"])
    own = features[..., : decoder.width]  # behind them a copying head finds the weights
    close(own, torch.stack([loop.step(tokens[:, t]) for t in range(STEPS)], dim=1))


@every_recurrent_case
@torch.no_grad()
def test_the_first_state_is_what_the_recipe_says(case: Case) -> None:
    """bridge: tanh(W summary + b), layer by layer and part by part; state: the summary; zero; learned."""
    generator, batch = build(case), some_batch(case=case)
    decoder, settings = generator.decoder, case.settings.decoder
    assert isinstance(decoder, RecurrentDecoder)
    assert isinstance(settings, RecurrentDecoder.Settings)
    memory = generator.encode(batch.sources)["source"]
    first = max(0, len(memory.summary) - settings.layers)  # of an encoder with more layers the upper ones speak
    for index, layer in enumerate(decoder.bridge(memory)):
        for part, value in enumerate(layer):
            if settings.start in ("bridge", "state"):
                given = memory.summary[min(first + index, len(memory.summary) - 1)]
                summary = given[min(part, len(given) - 1)]
            if settings.start == "bridge":
                linear = decoder.bridge.linear[index][part]
                close(value, torch.tanh(summary @ linear.weight.t() + linear.bias))
            elif settings.start == "state":
                assert torch.equal(value, summary)
            elif settings.start == "learned":
                assert torch.equal(value, decoder.bridge.starts[index].values[part].expand_as(value))
            else:
                assert not value.any()
