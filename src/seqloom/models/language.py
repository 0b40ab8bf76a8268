"""A language model: P(y) = prod p(y_t given y_<t), from the first token on.

It is asked like every generator. Its source is the beginning of the text, which it reads and goes on from; in training,
and where a text is to be made from nothing, that is empty. So a completion is a prediction, the probability of a text
is the score of a target without a source, and that of its last word the score of a target after all that stands before.

    BOS x_1 ... x_n y_1 ... y_m        P(y given x) = prod p(y_t given x, y_<t)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import torch

from seqloom.batch import Batch, Source, Tokens
from seqloom.models.contracts import State
from seqloom.models.generator import Places, shifted
from seqloom.models.joint import AloneSettings, Joint, without_gaps
from seqloom.nn.frontends import SOURCE, TARGET
from seqloom.nn.layers import spread
from seqloom.nn.tape import told_apart
from seqloom.shapes import Features, Int, RowTokens, Tensor
from seqloom.specials import BOS

BEGUN = "begun"  # in a state: the last token of each source, which is read in the place of BOS


class LanguageModel(Joint):
    """A decoder that goes on from what it has read. There is one vocabulary, and no sign between source and target."""

    kind = "language"

    class Settings(AloneSettings):
        kind: Literal["language"] = "language"

        @property
        def continues(self) -> bool:
            return True

    def start(self, sources: Mapping[str, Source], hypotheses: int) -> State:
        """All of the beginning is read but its last token: search says BOS first, and that token stands for it."""
        begun = _begun(sources)
        lengths = begun.lengths
        state = self.decoder.start(None, len(begun.ids))
        if begun.ids.shape[1] > 1:
            with told_apart(TARGET, [(SOURCE, torch.arange(begun.ids.shape[1] - 1).expand(len(begun.ids), -1))]):
                state = self.decoder(begun.ids[:, :-1], state, lengths - 1)[1]
        state = State(state.rows, {**state.sources, BEGUN: begun.ids.gather(1, lengths[:, None] - 1)[:, 0]})
        if hypotheses == 1:
            return state
        return state.select(torch.arange(len(begun.ids), device=begun.ids.device).repeat_interleave(hypotheses))

    def read(self, tokens: RowTokens, state: State) -> tuple[Features, State]:
        begun = spread(state.sources[BEGUN], len(tokens))[:, None]
        return super().read(torch.where(tokens == BOS, begun, tokens), state)

    def forced(self, batch: Batch, history: Tokens | None = None) -> tuple[Features, State]:
        """Beginning and target read as one text; features where the target's tokens are said."""
        assert batch.target is not None
        target = batch.target if history is None else history
        begun, state = _begun(batch.sources), self.decoder.start(None, len(batch))
        if begun.ids.shape[1] == 1:  # a text from its first token on
            features, state = self.decoder(shifted(target).ids, state)
            return features, state
        whole, said = _whole(begun, target)
        with told_apart(TARGET, [(SOURCE, _read(begun)), (TARGET, said)]):
            features, state = self.decoder(whole.ids, state)
        return features.gather(1, said[..., None].expand(-1, -1, features.shape[2])), state

    def places(self, batch: Batch) -> Places:
        """Tokens are said from the beginning's last one on; its last position, EOS, is not read: BOS stands for it."""
        assert batch.target is not None
        begun = _begun(batch.sources)
        return Places(_read(begun), _whole(begun, batch.target)[1])


def _begun(sources: Mapping[str, Source]) -> Tokens:
    """BOS and the beginning: one token more than its text has, as many as the source has with its end."""
    source = sources["source"]
    assert isinstance(source, Tokens), "a language model reads tokens"
    return shifted(source)


def _whole(begun: Tokens, target: Tokens) -> tuple[Tokens, Int[Tensor, "B T"]]:
    """All that is read, without gaps, and the places where the target's tokens are said."""
    read = Tokens(target.ids[:, :-1], target.mask[:, 1:])  # the last one is said and not read
    whole, (first, rest) = without_gaps([begun, read])
    return whole, torch.cat([first.gather(1, begun.lengths[:, None] - 1), rest], dim=1)


def _read(begun: Tokens) -> Int[Tensor, "B S"]:
    """Where the source's tokens stand in what is read: its words behind BOS, and for its end BOS itself."""
    places = torch.arange(1, begun.ids.shape[1] + 1, device=begun.ids.device).expand_as(begun.ids)
    return places.where(places < begun.lengths[:, None], 0)
