"""What all routes share: the runs, who may ask, how much, and the one way to a model through the batcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from starlette.requests import Request

from seqloom.api.model import Model, PairScore
from seqloom.api.options import Options
from seqloom.api.predictions import Prediction
from seqloom.api.score import refuse_long
from seqloom.config import validated
from seqloom.data.examples import Inputs
from seqloom.data.readers import Example
from seqloom.errors import SeqloomError
from seqloom.serve.batcher import Batcher, Pace, Question
from seqloom.serve.figures import Figures
from seqloom.serve.kept import Reloadable
from seqloom.serve.keys import Keys
from seqloom.serve.limits import Limits, Rates
from seqloom.serve.runs import Runs
from seqloom.serve.smart_reply import Replying
from seqloom.web.refusals import Refusal

T = TypeVar("T")
OURS = ("batch_tokens",)  # options that are the server's business


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


@dataclass
class Service:
    """One server's parts."""

    runs: Runs
    batcher: Batcher
    limits: Limits
    rates: Rates
    figures: Figures
    keys: Keys | None = None
    deterministic: bool = False  # every answer equals `predict --deterministic`, byte for byte
    draining: bool = False  # it ends soon: nobody new should come
    at_home: bool = False  # only whoever sits at this machine asks: where runs lie is no secret
    shows_examples: bool = False  # training examples may be shown
    replying: Replying | None = None  # a Smart Reply that is served as well, with a page of its own

    @staticmethod
    def of(
        runs: Runs,
        limits: Limits | None = None,
        pace: Pace | None = None,
        *,
        keys: Keys | None = None,
        deterministic: bool = False,
        threads: int = 1,
    ) -> Service:
        """With a batcher of its own, whose thread starts here."""
        figures, chosen = Figures(), limits or Limits()
        batcher = Batcher(pace or Pace(), like_predict(threads), figures.batch)
        figures.waiting_is(lambda: batcher.waiting)
        runs.heed(batcher.heed)
        return Service(runs, batcher, chosen, Rates(chosen.rate), figures, keys, deterministic)

    @property
    def kept(self) -> list[tuple[str, Reloadable]]:
        """All that is served, by name, to be watched and loaded anew."""
        return [*self.runs.kept, *([] if self.replying is None else [(self.replying.name, self.replying)])]

    def smart_reply(self) -> Replying:
        """The Smart Reply; E_NOT_FOUND where none is served."""
        if self.replying is None:
            fix = "'seqloom reply train' makes one, and 'seqloom serve' takes its folder"
            raise Refusal("E_NOT_FOUND", "no Smart Reply is served here", fix=fix)
        return self.replying

    @property
    def ready(self) -> bool:
        return not self.draining and self.batcher.alive

    def admit(self, key: str | None, address: str) -> None:
        """E_KEY for one who may not ask, E_RATE for one who asks too often. Wrong keys count for their address."""
        if self.keys is None:
            return self.rates.count(address)
        found = self.keys.find(key) if key else None
        if found is None:
            self.rates.count(address)
            what = "this key does not open" if key else "a key is needed"
            raise Refusal("E_KEY", what, fix="Authorization: Bearer KEY; 'seqloom keys add' makes one")
        return self.rates.count(found.id, found.rate)

    def options(self, model: Model, wishes: Mapping[str, object]) -> Options:
        """Wishes as options of this model, within the limits."""
        if foreign := [name for name in OURS if name in wishes]:
            raise Refusal("E_VALUE", f"options: {foreign[0]} is the server's to choose", fix="leave it out")
        try:
            options = validated(Options, {**wishes, **({"deterministic": True} if self.deterministic else {})}, "")
        except SeqloomError as error:
            raise Refusal("E_VALUE", f"options: {error.what}", fix="/docs shows what can be asked") from None
        self.limits.refuse_options(options, model.recipe.search)
        return options

    async def predict(self, model: Model, texts: Sequence[Inputs], options: Options) -> list[Prediction]:
        """E_LIMIT for too much at once."""
        return await self.answers(model, texts, options, self.limits.refuse_texts(texts))

    async def answers(
        self, model: Model, texts: Sequence[Inputs], options: Options, characters: int
    ) -> list[Prediction]:
        """Together with whatever else is asked of this model in this way."""

        def answer(every: Sequence[Inputs]) -> list[Prediction]:
            return list(model.predict(every, options, name="inputs"))

        return await self.batcher.ask(Question(("predict", id(model), options), texts, characters, answer))

    async def score(self, model: Model, pairs: Sequence[tuple[Inputs, str]]) -> list[PairScore]:
        """log P(target given source) of every pair."""
        texts = [source for source, _ in pairs]
        characters = self.limits.refuse_texts(texts) + sum(len(target) for _, target in pairs)

        def answer(every: Sequence[tuple[Inputs, str]]) -> list[PairScore]:
            for number, (inputs, target) in enumerate(every, start=1):
                source, extras = model.codecs.texts(inputs, f"pair {number}")
                refuse_long(model, Example(source, (target,), "pairs", number, extras))
            return model.score(every)

        return await self.batcher.ask(Question(("score", id(model)), pairs, characters, answer))

    async def alone(self, work: Callable[[], T], cost: int) -> T:
        """One answer that nothing else can share."""
        (answer,) = await self.batcher.ask(Question(object(), [None], cost, lambda _: [work()]))
        return answer

    def stream(self, pieces: Callable[[], Iterator[T]]) -> AsyncIterator[T]:
        return self.batcher.stream(pieces)


async def while_there(request: Request, work: Coroutine[object, object, T]) -> T:
    """The outcome of work, which is given up when the client leaves."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientGoneError
    finally:
        working.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def like_predict(threads: int) -> Callable[[], None]:
    """What the thread that answers sets for itself, as torch keeps both per thread: answers equal `predict`'s."""

    def begin() -> None:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(True)

    return begin
