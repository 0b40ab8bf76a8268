"""A recipe as a person would write it: plain YAML with a comment that says why beside every choice.

Here is what all recipes have: head, data, how texts are cut, training. What the model is and how it is judged depends
on what the data are for (`draft_pairs.py`, `draft_labels.py`, `draft_language.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

from seqloom.api import draft_files, draft_labels, draft_language, draft_pairs, draft_retrieval
from seqloom.api.commented import flow, line
from seqloom.api.init import Choices
from seqloom.api.sides import TOKEN_LIMIT, Side
from seqloom.config import Plain
from seqloom.data.characters import SPACELESS_SCRIPTS
from seqloom.data.examples import ITEMS
from seqloom.data.kinds import TASKS
from seqloom.data.named import WHAT, Files
from seqloom.data.profile import SideProfile

LOOKS = {"text": "natural text", "symbols": "symbols between spaces", "strings": "single words or short strings"}
UNITS = {"text": "words", "symbols": "symbols", "strings": "characters"}
SAMPLED_BELOW = 1_000_000  # pairs; more have variety enough


def written(choices: Choices, train: Plain, languages: tuple[str, str], on_bad_utf8: str = "error") -> str:
    """The recipe's text. `train` is the dataset as a recipe names it."""
    blocks = [_head(choices), _data(choices, train, languages, on_bad_utf8)]
    if choices.task == "language":
        blocks += [
            _tokenizer("target", choices.target, choices),
            draft_language.model(choices),
            _training(choices, "nll"),
            draft_language.outputs(choices),
        ]
    else:
        read = draft_files.source(choices.files) if choices.files else _tokenizer("source", choices.source, choices)
        blocks += [read, _tokenizer("target", choices.target, choices)]
        blocks += [_extras(choices)] if choices.separators else []
        if choices.task == "retrieve":
            blocks += [draft_retrieval.model(choices), draft_retrieval.training(choices), draft_retrieval.outputs()]
        elif choices.task == "transduce":
            blocks += _pairs(choices)
        else:
            blocks += _labels(choices)
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _pairs(choices: Choices) -> list[Iterator[str]]:
    files = choices.files
    task = draft_pairs.task(choices) if files is None else draft_files.task(choices, files)
    heard = files is not None and draft_files.speaks(choices, files)
    return [
        _model(choices, draft_pairs.model),
        _joined(task, _training(choices, "wer" if heard else draft_pairs.measured(choices))),
        draft_files.outputs() if heard else draft_pairs.outputs(choices),
    ]


def _labels(choices: Choices) -> list[Iterator[str]]:
    return [
        _model(choices, draft_labels.model),
        _training(choices, draft_labels.measured(choices)),
        draft_labels.outputs(choices),
    ]


def _model(choices: Choices, usual: Callable[[Choices], Iterator[str]]) -> Iterator[str]:
    return usual(choices) if choices.files is None else draft_files.model(choices, choices.files)


def _joined(*blocks: Iterator[str]) -> Iterator[str]:
    for block in blocks:
        yield from block


def _head(choices: Choices) -> Iterator[str]:
    profile = choices.profile
    yield f"# Drafted by 'seqloom init' after a look at {choices.examples}:"
    if choices.task != "language":
        files = choices.files
        looks = _looks(choices.source, profile.source) if files is None else _named(files)
        yield f"#   source: {looks}"
    if choices.labels:
        most, times = next(iter(choices.labels.items()))
        share = f"{100 * times / sum(choices.labels.values()):.0f} %"
        what = "tags" if choices.task == "tags" else "labels"
        yield f"#   target: {len(choices.labels):,} different {what}; the most frequent, {most[:40]!r}, is {share}"
    else:
        yield f"#   {'text' if choices.task == 'language' else 'target'}: {_looks(choices.target, profile.target)}"
    yield f"# T{choices.guess.told[1:]}."
    if choices.guess.doubt:
        yield f"# But {choices.guess.doubt}"
    others = ", ".join(one for one in TASKS if one != choices.task)
    yield f"# If that is wrong, say what it is: 'seqloom init --task ...' ({others})."
    yield "# Change what you like: 'seqloom config' lists every key and kind with its default."


def _looks(side: Side, found: SideProfile) -> str:
    script = f", {side.script.capitalize() if len(side.script) > 3 else side.script} script" if side.script else ""
    unit = "characters" if side.script in SPACELESS_SCRIPTS else UNITS[side.looks]
    lengths = found.characters if unit == "characters" else found.words
    return f"{LOOKS[side.looks]}{script}, mostly about {lengths[0]} {unit}, at most {lengths[3]:,}"


def _named(files: Files) -> str:
    return f"names of {WHAT[files.kind]}; a model reads about {files.mean:,.0f} positions of one"


def _data(choices: Choices, train: Plain, languages: tuple[str, str], on_bad_utf8: str) -> Iterator[str]:
    why = "fill in codes such as en, de: they stand in the model's card" if "und" in languages else ""
    yield line(f"languages: {{source: {flow(languages[0])}, target: {flow(languages[1])}}}", why)
    yield ""
    yield "data:"
    if choices.text is not None and not (isinstance(train, dict) and "unit" in train):
        train = {**(train if isinstance(train, dict) else {"path": train}), "unit": choices.text}
    if isinstance(train, dict):
        yield "  train:"
        for key, value in train.items():
            yield line(f"    {key}: {flow(value)}", _about(key, choices))
    else:
        yield f"  train: {flow(train)}"
    if choices.text == "stream":
        yield line("  dev: dev.txt", "to be made: lines of one text cannot be held out one by one")
        yield line("  test: test.txt", "to be made as well")
    else:
        yield from _held_out(choices)
    if on_bad_utf8 != "error":
        yield line(f"  on_bad_utf8: {on_bad_utf8}", "lines that are not UTF-8, as asked for")
    long = {side: chosen.limit for side, chosen in _sides(choices) if chosen.limit != TOKEN_LIMIT}
    if long:
        named = ", ".join(f"max_{side}: {limit}" for side, limit in long.items())
        why = "some texts are long; what is over is skipped and counted"
        yield line(f"  limits: {{{named}}}", "texts are read in windows: none is too long" if choices.window else why)


def _held_out(choices: Choices) -> Iterator[str]:
    if choices.task == "language":
        share = f"about {100 * choices.held_out / choices.profile.pairs:.0f} % of the texts each"
        yield line("  # dev: FILE", f"without them {share} are held out")
        yield line("  # test: FILE", "by a hash of the text, the same ones every time")
        return
    yield line(
        "  # dev: FILE", f"without them about {choices.held_out:,} {choices.examples.split()[-1]} each are held out"
    )
    yield line("  # test: FILE", "by a hash of their source, the same ones every time")


def _about(key: str, choices: Choices) -> str:
    """What must be said of a key of the dataset."""
    if key == "unit":
        return {
            "lines": "each line is a text of its own; documents: what stands between blank lines",
            "documents": "what stands between blank lines; stream: all is one text (and dev needs a file)",
            "stream": "all is one text, which goes on from line to line",
        }[choices.text or "lines"]
    return "the column to be learned, counted from 0; -1 is the last" if key == "tag" and choices.task == "tags" else ""


def _sides(choices: Choices) -> tuple[tuple[str, Side], ...]:
    target = ("target", choices.target)
    return (target,) if choices.task == "language" else (("source", choices.source), target)


def _tokenizer(name: str, side: Side, choices: Choices) -> Iterator[str]:
    yield f"{name}:"
    if side.tokenizer == "set" and choices.separator != ITEMS:
        yield line(f"  tokenizer: {{kind: set, separator: {json.dumps(choices.separator)}}}", side.why)
        return
    if side.tokenizer != "bpe":
        yield line(f"  tokenizer: {side.tokenizer}", side.why)
        if side.tokenizer == "words" and choices.task in ("label", "labels", "number", "retrieve"):
            yield "  lowercase: true"
            yield "  vocabulary: {min_count: 2}"
        return
    yield f"  # {side.why}"
    coverage = "" if side.coverage == 1.0 else f", character_coverage: {side.coverage}"
    why = "the rarest characters become unknown" if coverage else ""
    sampling = ", sampling: 0.1" if choices.profile.pairs < SAMPLED_BELOW and choices.task != "language" else ""
    if sampling:
        yield "  # sampling: words are cut in other ways each time (BPE dropout): each epoch reads anew"
    yield line(f"  tokenizer: {{kind: bpe, size: {side.size}{sampling}{coverage}}}", why)


def _extras(choices: Choices) -> Iterator[str]:
    yield line("extras:", "further sources, as symbols before the source")
    for name, separator in choices.separators.items():
        why = "use: encoder gives them an encoder of their own"
        yield line(f"  {name}: {{tokenizer: {{kind: symbols, separator: {json.dumps(separator)}}}, use: prefix}}", why)


def _training(choices: Choices, measured: str) -> Iterator[str]:
    yield "batching:"
    letters = ", counted in letters" if choices.task == "tags" else ""
    yield line(f"  tokens: {choices.sizes.batch}", f"in one step{letters}: small batches learn more from little data")
    if choices.window is not None:
        yield line(
            f"  window: {choices.window}", "tokens that are learned from at once; a state is carried to the next ones"
        )
    yield "training:"
    yield line(f"  epochs: {choices.epochs}", f"so often through the data, in about {choices.steps:,} steps")
    yield line(f"  validate_every: {choices.validate_every}", "steps; the best validation is what is kept")
    yield line(f"  metric: {measured}", "which one is best: by this score on the dev set")
    yield f"  optimiser: {{kind: adam, lr: {choices.lr:g}}}"
    yield line(f"  schedule: {{kind: cosine, warmup: {choices.warmup}}}", "the rate falls to nothing at the last step")
