"""The models that the laws are tested on: every entry of every table, and a covering of the decoder's options.

Nothing here asserts a law. A new row of a table becomes cases by itself; a new option of the recurrent decoder becomes
a line of `FACTORS`. Everything is tiny (widths 4 to 6, ten tokens), so that a case takes milliseconds.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from seqloom.batch import Batch, Frames, Tokens
from seqloom.config import Settings, Table, kind_of
from seqloom.errors import SeqloomError
from seqloom.models.heads import HEADS
from seqloom.models.memories import FURTHER
from seqloom.models.model import MODELS, EncoderDecoder
from seqloom.models.spelling import SPELLERS
from seqloom.models.tables import DECODERS, ENCODERS
from seqloom.nn.frontends import EMBEDDINGS, FRONTENDS
from seqloom.nn.layers import COMPOSITIONS
from seqloom.nn.recurrent import CELLS
from seqloom.nn.scores import SCORES
from seqloom.specials import EOS, SPECIALS

SOURCE_VOCABULARY, TARGET_VOCABULARY, EXTRA_VOCABULARY = 12, 10, 10
WIDTH = 4
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
FRAME_ENCODERS = [
    kind for kind in ENCODERS if not ENCODERS[kind].reads_words and ENCODERS[kind].reads is None
]  # frames, and tags, have no words
KEEPING_ENCODERS = [kind for kind in FRAME_ENCODERS if not ENCODERS[kind].shrinks]  # those that extras can have
GRID = 2  # regions of a picture's side, each of 2 x 2 pixels in three colours: SOURCE_VOCABULARY features
Raw = dict[str, object]
M = TypeVar("M", bound=nn.Module)
T = TypeVar("T")


@dataclass(frozen=True)
class Case:
    """One model under test; `str` is what pytest shows."""

    name: str
    raw: Mapping[str, object] = field(compare=False)
    extras: Mapping[str, Raw] = field(default_factory=dict, compare=False)  # settings of further sources by name

    @property
    def settings(self) -> EncoderDecoder.Settings:
        """Of a joint case, those of `Joint`: it has no encoder."""
        return MODELS.settings({"kind": "encoder_decoder", **self.raw})  # type: ignore[return-value]

    def __str__(self) -> str:
        return self.name


@cache
def build(case: Case, dtype: torch.dtype = torch.float64) -> EncoderDecoder:
    """The model of a case, for all tests to share and none to change."""
    return fresh(case, dtype)


def fresh(case: Case, dtype: torch.dtype = torch.float64, seed: int = 5) -> EncoderDecoder:
    """A model of one's own. Every parameter is drawn: a learned start or a bias of zero would hide mistakes."""
    sizes: Raw = {"source_vocabulary": SOURCE_VOCABULARY, "target_vocabulary": TARGET_VOCABULARY}
    if case.extras:
        chosen = {name: FURTHER.settings({"kind": "encoder", **raw}) for name, raw in case.extras.items()}
        sizes["extras"] = {name: (settings, EXTRA_VOCABULARY) for name, settings in chosen.items()}
    return randomised(MODELS.build(case.settings, **sizes), dtype, seed)  # type: ignore[return-value]


def randomised(module: M, dtype: torch.dtype = torch.float64, seed: int = 5) -> M:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.6)
    return module.to(dtype).eval()


def close(actual: Tensor, expected: Tensor, what: str = "") -> None:
    """Equal to what the laws promise for the type of float: 1e-5 or 1e-10."""
    bound = TOLERANCE[expected.dtype]
    if actual.shape == expected.shape and torch.allclose(actual, expected, atol=bound, rtol=bound):
        return  # the quick way; the other one explains
    torch.testing.assert_close(actual, expected, atol=bound, rtol=bound, msg=lambda text: f"{what}: {text}")


def close_trees(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        if tensor.is_floating_point():
            close(actual[name], tensor, name)
        else:
            assert torch.equal(actual[name], tensor), name


# --- data --------------------


def some_tokens(lengths: Iterable[int], vocabulary: int, seed: int = 1, end: bool = True) -> Tokens:
    """Random words, each row of its own length, the last token EOS if asked."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for length in lengths:
        ids = torch.randint(len(SPECIALS), vocabulary, (length,), generator=generator).tolist()
        rows.append([*ids[:-1], EOS] if end else ids)
    return Tokens.pad(rows)


def with_copies(tokens: Tokens) -> Tokens:
    """Even ids are the same piece as some id of the target vocabulary, odd ones it lacks; EOS is no piece."""
    copies = torch.full_like(tokens.ids, -1)
    for row, (ids, length) in enumerate(zip(tokens.ids.tolist(), tokens.lengths.tolist(), strict=True)):
        lacking = [*dict.fromkeys(token for token in ids[:length] if token % 2 and token != EOS)]
        for place, token in enumerate(ids[:length]):
            if token != EOS:
                copies[row, place] = TARGET_VOCABULARY + lacking.index(token) if token % 2 else 6 + token % 4
    return Tokens(tokens.ids, tokens.mask, copies)


def with_words(tokens: Tokens) -> Tokens:
    """Two tokens make a word; EOS and padding are of none."""
    pairs = torch.arange(tokens.ids.shape[1]).expand_as(tokens.ids) // 2
    return replace(tokens, words=pairs.masked_fill(~tokens.mask | (tokens.ids == EOS), -1))


def some_spans(lengths: Iterable[int], longest: int) -> Tokens:
    """Places of each source (of so many tokens, its end counted) in a row, from the first word or the second one."""
    rows = []
    for number, length in enumerate(lengths):
        start = min(number % 2, length - 2)
        end = min(length - 1, start + min(longest, 1 + number))
        rows.append([*range(TARGET_VOCABULARY + start, TARGET_VOCABULARY + end), EOS])
    return Tokens.pad(rows)


def some_frames(lengths: Iterable[int], dtype: torch.dtype = torch.float64, seed: int = 2) -> Frames:
    """Random frames, the last one of every row being zeros: the end."""
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randn(length, SOURCE_VOCABULARY, generator=generator, dtype=torch.float64) for length in lengths]
    return Frames.pad([(row * (torch.arange(len(row)) < len(row) - 1)[:, None]).to(dtype) for row in rows])


def some_batch(
    sources: Iterable[int] = (3, 1, 4, 2),
    targets: Iterable[int] = (2, 4, 1, 3),
    case: Case | None = None,
    dtype: torch.dtype = torch.float64,
) -> Batch:
    """Two further sources stand in every batch; most models read only the first, a joint one reads all in turn.

    A model whose end is certain gets targets that it can say: one label, or one for each word; one that says sets gets
    each label once, in the order of their ids. One that reads frames gets these, of a `dtype`.
    """
    lengths = list(sources)
    own = (
        FRONTENDS[kind_of(case.settings.source_embedding)].reads if case is not None and "kind" not in case.raw else ""
    )
    if own == "pixels":
        lengths = [GRID * GRID + 1] * len(lengths)  # every picture has as many regions, and its end
    if case is not None and DECODERS[kind_of(case.settings.decoder)].sure_of_end:
        targets = lengths if case.settings.decoder.in_place else [2] * len(lengths)
    target = some_tokens(targets, TARGET_VOCABULARY, seed=3)
    if case is not None and case.settings.decoder.may_say_nothing:
        target = in_order(target)
    if case is not None and case.settings.decoder.points:
        lengths = [length + 1 for length in lengths]  # a source without a word has no span
        target = some_spans(lengths, case.settings.decoder.points)
    if own in ("frames", "pixels"):
        return Batch({"source": some_frames(lengths, dtype)}, target)
    return Batch(
        {
            "source": with_words(with_copies(some_tokens(lengths, SOURCE_VOCABULARY, seed=2))),
            "tags": some_tokens([1 + (length + 1) % 3 for length in lengths], EXTRA_VOCABULARY, seed=6),
            "type": some_tokens([1 + length % 3 for length in lengths], EXTRA_VOCABULARY, seed=7),
        },
        target,
    )


def in_order(target: Tokens) -> Tokens:
    """The same lengths, the labels of each row being the first ones in their order."""
    return Tokens.pad([[*range(len(SPECIALS), len(SPECIALS) + length - 1), EOS] for length in target.lengths.tolist()])


def some_inputs(rows: int, steps: int, seed: int = 4) -> Tensor:
    """Decoder inputs without any end: N T."""
    return some_tokens([steps] * rows, TARGET_VOCABULARY, seed, end=False).ids


def gradients(module: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    """Of every parameter by name; one that the loss does not reach has a zero gradient."""
    named = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    found = torch.autograd.grad(loss, list(named.values()), allow_unused=True) if named else ()
    return {
        name: torch.zeros_like(tensor) if gradient is None else gradient
        for (name, tensor), gradient in zip(named.items(), found, strict=True)
    }


# --- every entry of every table --------------------


_SPELLED = {"buckets": 7, "word_dropout": 0.0, "characters": {"width": WIDTH}, "words": {"width": WIDTH}}
_OVER = {"halvings": 1, "over": {"kind": "transformer", "width": WIDTH, "heads": 2, "layers": 1, "dropout": 0.0}}


def small(table: Table[T], kind: str, **wanted: object) -> Raw:
    """Settings of an entry, made tiny where it has such keys."""
    known = table.settings_class(kind).model_fields
    tiny = {"width": WIDTH, "heads": 2, "dropout": 0.0, **_SPELLED, **_OVER, **wanted}
    return {"kind": kind, **{key: value for key, value in tiny.items() if key in known}}


def model(**parts: object) -> Raw:
    """Raw settings of a tiny model; `parts` replace its parts."""
    return {
        "source_embedding": {"kind": "learned", "width": WIDTH},
        "target_embedding": {"kind": "learned", "width": WIDTH},
        "encoder": {"kind": "rnn", "width": WIDTH},
        "decoder": {"kind": "luong", "width": WIDTH},
        **parts,
    }


REGIONS: Raw = {"kind": "regions", "rows": GRID, "columns": GRID, "region": 2}


def fronted(encoder: Raw) -> Raw:
    """An encoder with a front end that it can read, where it does not read text."""
    pictures = ENCODERS[str(encoder["kind"])].reads == "pixels"
    return {"encoder": encoder, **({"source_embedding": REGIONS} if pictures else {})}


def _table_cases() -> Iterator[Case]:
    for kind in ENCODERS:
        yield Case(f"encoder={kind}", model(**fronted(small(ENCODERS, kind))))
    for kind in SPELLERS:
        spelled = small(ENCODERS, "spelled", characters={"kind": kind, "width": WIDTH}, buckets=0)
        yield Case(f"characters={kind}", model(encoder=spelled))
    for kind in DECODERS:
        yield Case(f"decoder={kind}", model(decoder=small(DECODERS, kind)))
    for kind in CELLS:
        cell = small(CELLS, kind)
        both = {"encoder": small(ENCODERS, "rnn", cell=cell), "decoder": small(DECODERS, "bahdanau", cell=cell)}
        yield Case(f"cell={kind}", model(**both))
    for kind in SCORES:
        attention = {"score": small(SCORES, kind)}
        yield Case(f"score={kind}", model(decoder=small(DECODERS, "luong", attention=attention)))
    for kind in COMPOSITIONS:
        yield Case(f"compose={kind}", model(decoder=small(DECODERS, "bahdanau", compose=kind)))
    for kind in EMBEDDINGS:
        embedding = small(EMBEDDINGS, kind)
        yield Case(f"embedding={kind}", model(source_embedding=embedding, target_embedding=embedding))
    for kind in HEADS:
        fitting = {"decoder": small(DECODERS, "monotonic")} if HEADS[kind].repeats else {}
        yield Case(f"head={kind}", model(head=small(HEADS, kind), **fitting))
    for pooling in ("last", "mean", "max"):
        for kind in ("label", "labels", "number"):
            yield Case(f"{kind}={pooling}", model(decoder=small(DECODERS, kind, pooling=pooling, hidden=3)))
    yield Case("tags,transitions", model(decoder=small(DECODERS, "tags", transitions=True, hidden=3)))
    yield Case("coverage", model(decoder=small(DECODERS, "bahdanau", attention={"coverage": True}), head="copy"))


# --- a covering of the options --------------------

Options = dict[str, object]

FACTORS: dict[str, tuple[object, ...]] = {
    "cell": (*CELLS, "elman relu", "elman sigmoid"),
    "query": (None, "previous", "current"),
    "recurrence": ("none", "context", "attentional"),
    "readout": (True, False),
    "next_layer": (False, True),
    "layers": (1, 2, 3),
    "start": ("bridge", "state", "zero", "learned"),
    "compose": tuple(COMPOSITIONS),
    "summary_input": (False, True),
    "token_readout": (False, True),
    "score": tuple(SCORES),
    "keys": ("identity", "linear", "relu"),
    "queries": ("identity", "linear", "relu"),
    "values": ("identity", "linear"),
    "split": (False, True),
    "heads": ("1 concat", "2 concat", "2 mean"),
    "hard": (False, True),
    "coverage": (False, True),
    "memory": (WIDTH, WIDTH + 2),  # the encoder's width (twice of it where it is split)
    "embedding": (*EMBEDDINGS, "learned 5"),
    "head": tuple(kind for kind in HEADS if not HEADS[kind].repeats),
    "tied": (False, True),
    "bidirectional": (True, False),
    "reverse": (False, True),
    "encoder_start": ("zero", "learned"),
    "self_attention": (None, "full", "causal"),
}
STRUCTURE = ("cell", "query", "recurrence", "readout", "next_layer", "layers")
ATTENTION = ("score", "keys", "queries", "values", "split", "heads", "hard", "coverage")


def _needs_one_width(score: object) -> bool:
    """Does this score refuse queries and keys of different width?"""
    try:
        SCORES.build(SCORES.settings(score), query=2, key=3)
    except SeqloomError:
        return True
    return False


def possible(options: Options) -> Options:
    """The nearest options that make sense together: what a recipe would be refused for is put right."""
    options = dict(options)
    first = {name: levels[0] for name, levels in FACTORS.items()}
    if options["query"] is None:
        unused = (*ATTENTION, "recurrence", "next_layer", "readout", "self_attention")
        options |= {name: first[name] for name in unused}
        options["summary_input"] = options["summary_input"] or options["start"] in ("zero", "learned")  # some way in
        options["head"] = first["head"] if options["head"] == "copy" else options["head"]
    if options["coverage"] and not SCORES[str(options["score"])].reads_past:
        options["coverage"] = False
    if options["query"] == "previous" and options["recurrence"] == "attentional":
        options["recurrence"] = "context"
    if options["next_layer"] and options["layers"] == 1:
        options["layers"] = 2
    if options["recurrence"] == "none" and not options["next_layer"]:
        options["readout"] = True
    if options["start"] == "state":  # the same cell, width and layers on both sides
        options |= {"memory": WIDTH, "split": False}
    if options["memory"] != WIDTH and options["keys"] == "identity" and _needs_one_width(options["score"]):
        options["keys"] = "linear"
    if options["embedding"] == "onehot":
        options["tied"] = False
    return options


def raw_model(options: Options) -> Raw:
    """The recipe lines of some options."""
    kind, _, activation = str(options["cell"]).partition(" ")
    cell = {"kind": kind, **({"activation": activation} if activation else {})}
    embedding, _, width = str(options["embedding"]).partition(" ")
    memory = int(str(options["memory"])) * (2 if options["split"] else 1)
    heads, merge = str(options["heads"]).split()
    named = ("query", "score", "keys", "queries", "values", "split", "hard", "coverage")
    attention = {name: options[name] for name in named}
    attends = options["self_attention"]
    return {
        "source_embedding": small(EMBEDDINGS, embedding),
        "target_embedding": small(EMBEDDINGS, embedding, width=int(width or WIDTH)),
        "tied": options["tied"],
        "head": options["head"],
        "encoder": {
            **{name: options[name] for name in ("bidirectional", "reverse", "layers")},
            "cell": cell,
            "width": memory,
            "start": options["encoder_start"],
            "self_attention": attends and {"score": "scaled_dot", "causal": attends == "causal"},
        },
        "decoder": {
            **{name: options[name] for name in ("layers", "start", "compose", "summary_input", "token_readout")},
            "kind": "rnn",
            "cell": cell,
            "width": WIDTH,
            "attention": options["query"] and {**attention, "heads": int(heads), "merge": merge},
            "context": {name: options[name] for name in ("recurrence", "readout", "next_layer")},
        },
    }


def _interactions(options: Options) -> set[tuple[tuple[str, object], ...]]:
    """All pairs of options, and all triples of those that shape the recurrence."""
    triples = combinations([(name, options[name]) for name in STRUCTURE], 3)
    return {*combinations(options.items(), 2), *triples}


def covering(draws: int = 3000, seed: int = 7) -> list[Options]:
    """Few options that together hold every pair (and triple) which occurs among many random ones."""
    draw = random.Random(seed)
    pool = [possible({name: draw.choice(levels) for name, levels in FACTORS.items()}) for _ in range(draws)]
    kept, covered = [], set()
    for at_least in (60, 20, 6, 1):
        for options in pool:
            new = _interactions(options) - covered
            if len(new) >= at_least:
                kept.append(options)
                covered |= new
    return kept


def _name(number: int, options: Options) -> str:
    """Only what differs from the first level is named."""
    said = [f"{name}={value}" for name, value in options.items() if value != FACTORS[name][0]]
    return f"{number}:" + ",".join(said).replace(" ", "")


# --- stacks: Transformers and convolutions, every encoder with every decoder, one decoder for both --------------------


def _stack_cases() -> Iterator[Case]:
    def encoder(kind: str, **wanted: object) -> Raw:
        return small(ENCODERS, kind, **{"layers": 2, **wanted})

    def decoder(kind: str, **wanted: object) -> Raw:
        return small(DECODERS, kind, **{"layers": 2, **wanted})

    halves = {"kind": "sinusoidal", "layout": "halves", "reaching": True}
    learned, wide = {"kind": "learned", "max_length": 16}, {"kind": "learned", "width": WIDTH + 2}
    options: list[Raw] = [
        {"norm": "pre", "positions": "sinusoidal", "activation": "relu", "scale_embedding": False},
        {"norm": "post", "positions": learned, "activation": "gelu", "heads": 1, "feedforward": 3},
        {"norm": "pre", "positions": "rotary", "activation": "swiglu"},
        {"norm": "post", "positions": "rotary", "activation": "relu", "heads": 1, "layers": 1},
        {"norm": "pre", "positions": learned, "activation": "swiglu", "heads": 4, "width": 8},
        {"norm": "post", "positions": halves, "activation": "silu", "epsilon": 1e-3},
    ]
    for number, chosen in enumerate(options):
        ends: Raw = {"reads_end": False} if number == 5 else {}
        both = {"encoder": encoder("transformer", **chosen, **ends), "decoder": decoder("transformer", **chosen)}
        embedding = "onehot" if number == 3 else wide if number == 4 else {"kind": "learned", "width": WIDTH}
        yield Case(f"transformer{number}", model(**both, source_embedding=embedding, target_embedding=embedding))
    for kind in ENCODERS:
        yield Case(f"{kind}->transformer", model(**fronted(encoder(kind, width=6)), decoder=decoder("transformer")))
    for kind in DECODERS:
        yield Case(f"transformer->{kind}", model(encoder=encoder("transformer", width=6), decoder=decoder(kind)))
        convolution = encoder("convolution", width=3, kernel=5, positions=learned)
        yield Case(f"convolution->{kind}", model(encoder=convolution, decoder=decoder(kind), source_embedding=wide))
    yield Case("transformer,copy", model(decoder=decoder("transformer"), head="copy"))
    yield Case("transformer,tied", model(decoder=decoder("transformer"), target_embedding=wide, tied=True))


def _joint_cases() -> Iterator[Case]:
    def joint(**parts: object) -> Raw:
        return {"kind": "joint", "embedding": {"kind": "learned", "width": WIDTH}, **parts}

    for positions in ("sinusoidal", {"kind": "learned", "max_length": 32}, "rotary"):
        decoder = small(DECODERS, "transformer", layers=2, positions=positions)
        yield Case(f"joint,{positions}", joint(decoder=decoder))
    yield Case("joint,post", joint(decoder=small(DECODERS, "transformer", norm="post"), embedding="onehot", head="mlp"))
    for kind in CELLS:
        yield Case(f"joint,{kind}", joint(decoder=small(DECODERS, "rnn", cell=kind, layers=2)))
    yield Case("joint,learned", joint(decoder=small(DECODERS, "rnn", start="learned", token_readout=True)))
    for positions in ("sinusoidal", "rotary"):
        decoder = small(DECODERS, "transformer", layers=2, positions=positions)
        yield Case(f"language,{positions}", joint(kind="language", decoder=decoder))
    for kind in CELLS:
        yield Case(f"language,{kind}", joint(kind="language", decoder=small(DECODERS, "rnn", cell=kind, layers=2)))


SHARED: Raw = {"kind": "shared"}


def _extra_cases() -> Iterator[Case]:
    """Further sources with encoders of their own: every kind of encoder beside every kind of decoder."""

    def extra(kind: str, **wanted: object) -> Raw:
        return {"embedding": {"kind": "learned", "width": 3}, "encoder": small(ENCODERS, kind, **wanted)}

    for kind in KEEPING_ENCODERS:
        yield Case(f"extra={kind}", model(), {"tags": extra(kind, width=6)})
    for kind in DECODERS:
        raw = model(decoder=small(DECODERS, kind))
        chosen = Case(kind, raw).settings.decoder
        if not chosen.in_place and not chosen.points:  # a word's tag is of the source alone; a span is asked for
            yield Case(f"extra->{kind}", raw, {"tags": extra("bag", activation="relu")})
    for start in ("state", "bridge"):  # nothing but the summary tells of the extra
        raw = model(encoder=small(ENCODERS, "rnn", layers=2), decoder=small(DECODERS, "rnn", layers=2, start=start))
        yield Case(f"extra,summary,{start}", raw, {"tags": extra("bag")})
    yield Case("extras=2", model(decoder=small(DECODERS, "bahdanau")), {"tags": extra("bag"), "type": extra("rnn")})
    for kind in (
        "rnn",
        "luong",
        "transformer",
        "monotonic",
        "label",
        "labels",
        "number",
    ):  # with attention and without, and both ways in
        yield Case(f"shared->{kind}", model(decoder=small(DECODERS, kind)), {"tags": SHARED})


def _compared_cases() -> Iterator[Case]:
    """Labels of several sources that are kept apart: compared in every way, or one of them asks."""

    def label(encoder: str = "rnn", **wanted: object) -> Raw:
        return model(encoder=small(ENCODERS, encoder, layers=2), decoder=small(DECODERS, "label", **wanted))

    own: Raw = {"embedding": {"kind": "learned", "width": 3}, "encoder": small(ENCODERS, "rnn", width=6)}
    for pooling in ("last", "mean", "max", "attention"):
        yield Case(f"features,{pooling}", label(compare="features", pooling=pooling), {"tags": SHARED})
        if pooling != "last":
            yield Case(f"between,{pooling}", label(compare="attention", pooling=pooling), {"tags": SHARED})
    for kind in ("transformer", "convolution", "bag"):
        yield Case(f"features,{kind}", label(kind, compare="features"), {"tags": SHARED})
        yield Case(f"between,{kind}", label(kind, compare="attention"), {"tags": SHARED})
        yield Case(f"query,{kind}", label(kind, query="tags"), {"tags": SHARED})
    heads = {"heads": 2, "merge": "mean", "keys": "linear", "queries": "linear"}
    yield Case("between,heads", label(compare="attention", between=heads, attention=heads), {"tags": SHARED})
    halves = {"split": True, "score": "additive"}
    yield Case("between,split", label("convolution", compare="attention", between=halves), {"tags": SHARED})
    yield Case("query", label(query="tags", hidden=3), {"tags": SHARED})
    for kind in ("rnn", "bag", "convolution"):
        for wanted in ({}, {"read_again": False}, {"compare": "none", "longest": 2}):
            encoder = small(ENCODERS, kind, width=3 if kind == "convolution" else WIDTH, layers=1)
            decoder = small(DECODERS, "span", query="tags", **wanted)
            name = ",".join(f"{key}={value}" for key, value in wanted.items())
            yield Case(f"span,{kind},{name}", model(encoder=encoder, decoder=decoder), {"tags": SHARED})
    yield Case("span,own query", model(decoder=small(DECODERS, "span", query="type")), {"type": own})
    for compare in ({"compare": "features"}, {"compare": "attention"}, {"query": "type"}):
        name = ",".join(compare.values())
        yield Case(f"two extras,{name}", label(**compare), {"tags": own, "type": SHARED})


def _frame_cases() -> Iterator[Case]:
    """Frames through their front end: into every encoder that can read them, and before every decoder."""
    frames: Raw = {"kind": "projection", "width": 5}
    for kind in FRAME_ENCODERS:
        yield Case(f"frames->{kind}", model(source_embedding=frames, encoder=small(ENCODERS, kind)))
    for kind in DECODERS:
        yield Case(f"frames->rnn->{kind}", model(source_embedding=frames, decoder=small(DECODERS, kind)))
    for encoder in (kind for kind in ENCODERS if ENCODERS[kind].shrinks):
        for kind in DECODERS:
            decoder = Case(kind, model(decoder=small(DECODERS, kind))).settings.decoder
            if not decoder.in_place and not decoder.points:  # those need every position
                parts = {"encoder": small(ENCODERS, encoder, layers=2), "decoder": small(DECODERS, kind)}
                yield Case(f"frames->{encoder}->{kind}", model(source_embedding=frames, **parts))


def _picture_cases() -> Iterator[Case]:
    """Regions of pictures as they are: into every encoder that can read them, and before every decoder."""
    for kind in [kind for kind in ENCODERS if ENCODERS[kind].reads == "pixels" or kind in FRAME_ENCODERS]:
        encoder = small(ENCODERS, kind, channels=3, blocks=2, layers=2)
        yield Case(f"pixels->{kind}", model(source_embedding=REGIONS, encoder=encoder))
    near = small(ENCODERS, "cnn", channels=3, local=True)
    yield Case("pixels->local cnn", model(source_embedding=REGIONS, encoder=near))
    for kind in DECODERS:
        pictures = {"source_embedding": REGIONS, "encoder": small(ENCODERS, "cnn", width=6)}
        yield Case(f"pixels->cnn->{kind}", model(**pictures, decoder=small(DECODERS, kind)))


TABLE_CASES = list(_table_cases())
FRAME_CASES = [*_frame_cases(), *_picture_cases()]
WRITING_CASES = [case for case in TABLE_CASES if case.settings.decoder.listens]  # they read what they have written
EXTRA_CASES = list(_extra_cases())
STACK_CASES = list(_stack_cases())
JOINT_CASES = list(_joint_cases())
COMPARED_CASES = list(_compared_cases())
COVERING_CASES = [Case(_name(number, options), raw_model(options)) for number, options in enumerate(covering())]
CASES = (
    TABLE_CASES + FRAME_CASES + STACK_CASES + EXTRA_CASES + COMPARED_CASES + COVERING_CASES
)  # an encoder and a decoder each
WRITERS = CASES + JOINT_CASES
ATTENTIVE_CASES = [
    case
    for case in CASES
    if case not in COMPARED_CASES
    if case.settings.decoder.attends and getattr(case.settings.decoder, "attention", None)
]

every_case = pytest.mark.parametrize("case", WRITERS, ids=str)
every_encoding_case = pytest.mark.parametrize("case", CASES, ids=str)
every_attentive_case = pytest.mark.parametrize("case", ATTENTIVE_CASES, ids=str)
every_dtype = pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
# float64 tells a mistake from rounding, so every case has it; float32, which people train in, a part of them.
TYPED_CASES = [(case, torch.float64) for case in WRITERS]
TYPED_CASES += [
    (case, torch.float32) for case in [*TABLE_CASES, *FRAME_CASES, *STACK_CASES, *JOINT_CASES, *COVERING_CASES[::4]]
]
every_typed_case = pytest.mark.parametrize(
    ("case", "dtype"), TYPED_CASES, ids=[f"{case}-{str(dtype).removeprefix('torch.')}" for case, dtype in TYPED_CASES]
)


def every(table: Table[T], name: str = "kind") -> pytest.MarkDecorator:
    """Parametrise over the entries of one table."""
    return pytest.mark.parametrize(name, list(table))


def entry(table: Table[T], kind: str, **wanted: object) -> Settings:
    return table.settings(small(table, kind, **wanted))
