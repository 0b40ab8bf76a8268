"""A recipe as a person would write it: plain YAML with a comment that says why beside every choice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from seqloom.api.init import TOKEN_LIMIT, Choices, Side, Sizes
from seqloom.config import Plain
from seqloom.data.characters import SPACELESS_SCRIPTS

LOOKS = {"text": "natural text", "symbols": "symbols between spaces", "strings": "single words or short strings"}
UNITS = {"text": "words", "symbols": "symbols", "strings": "characters"}
COLUMN = 46  # where comments begin
SAMPLED_BELOW = 1_000_000  # pairs; more have variety enough
ENCODERS = {
    "rnn": "reads the source both ways",
    "convolution": "reads every letter with those around it: sounds depend on them",
    "transformer": "every token looks at all others: quick to train on a GPU",
}
DECODERS = {
    "luong": "looks back at the source at every step (attention)",
    "monotonic": "moves through the source from left to right, as sounds follow letters",
    "transformer": "looks back at the source and at its own words at every step",
}


def written(choices: Choices, train: Plain, languages: tuple[str, str], on_bad_utf8: str = "error") -> str:
    """The recipe's text. `train` is the dataset as a recipe names it."""
    blocks = [
        _head(choices),
        _data(choices, train, languages, on_bad_utf8),
        *(_tokenizer(name, side, choices.profile.pairs) for name, side in _sides(choices)),
        *([_extras(choices)] if choices.separators else []),
        _model(choices),
        _training(choices),
        _outputs(choices),
    ]
    return "\n".join("\n".join(block) + "\n" for block in blocks)


def _line(text: str, why: str = "") -> str:
    return f"{text.ljust(COLUMN)}  # {why}" if why else text


def _flow(value: Plain) -> str:
    """A value on one line. JSON is YAML; plain names go without quotes, but for words that YAML takes for others."""
    words = ("true", "false", "null", "yes", "no", "on", "off")
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_./][A-Za-z0-9_./-]*", value) and value.lower() not in words:
        return value
    return json.dumps(value, ensure_ascii=False)


def _head(choices: Choices) -> Iterator[str]:
    profile = choices.profile
    yield f"# Drafted by 'seqloom init' after a look at {profile.pairs:,} pairs:"
    for name, side, found in (("source", choices.source, profile.source), ("target", choices.target, profile.target)):
        script = f", {side.script.capitalize() if len(side.script) > 3 else side.script} script" if side.script else ""
        unit = "characters" if side.script in SPACELESS_SCRIPTS else UNITS[side.looks]
        lengths = found.characters if unit == "characters" else found.words
        yield f"#   {name}: {LOOKS[side.looks]}{script}, mostly about {lengths[0]} {unit}, at most {lengths[3]:,}"
    yield "# Change what you like: 'seqloom config' lists every key and kind with its default."


def _data(choices: Choices, train: Plain, languages: tuple[str, str], on_bad_utf8: str) -> Iterator[str]:
    why = "fill in codes such as en, de: they stand in the model's card" if "und" in languages else ""
    yield _line(f"languages: {{source: {_flow(languages[0])}, target: {_flow(languages[1])}}}", why)
    yield ""
    yield "data:"
    if isinstance(train, dict):
        yield "  train:"
        for key, value in train.items():
            yield f"    {key}: {_flow(value)}"
    else:
        yield f"  train: {_flow(train)}"
    yield _line("  # dev: FILE", f"without them about {choices.held_out:,} pairs each are held out")
    yield _line("  # test: FILE", "by a hash of their source, the same ones every time")
    if on_bad_utf8 != "error":
        yield _line(f"  on_bad_utf8: {on_bad_utf8}", "lines that are not UTF-8, as asked for")
    long = {side: chosen.limit for side, chosen in _sides(choices) if chosen.limit != TOKEN_LIMIT}
    if long:
        named = ", ".join(f"max_{side}: {limit}" for side, limit in long.items())
        yield _line(f"  limits: {{{named}}}", "some texts are long; what is over is skipped and counted")


def _sides(choices: Choices) -> tuple[tuple[str, Side], ...]:
    return ("source", choices.source), ("target", choices.target)


def _tokenizer(name: str, side: Side, pairs: int) -> Iterator[str]:
    yield f"{name}:"
    if side.tokenizer != "bpe":
        yield _line(f"  tokenizer: {side.tokenizer}", side.why)
        return
    yield f"  # {side.why}"
    coverage = "" if side.coverage == 1.0 else f", character_coverage: {side.coverage}"
    why = "the rarest characters become unknown" if coverage else ""
    sampling = ", sampling: 0.1" if pairs < SAMPLED_BELOW else ""
    if sampling:
        yield "  # sampling: words are cut in other ways each time (BPE dropout): each epoch reads anew"
    yield _line(f"  tokenizer: {{kind: bpe, size: {side.size}{sampling}{coverage}}}", why)


def _extras(choices: Choices) -> Iterator[str]:
    yield _line("extras:", "further sources, as symbols before the source")
    for name, separator in choices.separators.items():
        why = "use: encoder gives them an encoder of their own"
        yield _line(f"  {name}: {{tokenizer: {{kind: symbols, separator: {json.dumps(separator)}}}, use: prefix}}", why)


def _model(choices: Choices) -> Iterator[str]:
    sizes = choices.sizes
    if sizes.dropout:
        why = f"{choices.profile.pairs:,} pairs are soon learned by heart: dropout keeps the model from it"
    else:
        why = "so many pairs cannot be learned by heart: nothing need be dropped"
    yield _line("model:", f"{sizes.width} wide suits {choices.profile.pairs:,} pairs")
    yield f"  source_embedding: {{width: {sizes.embedding}}}"
    yield f"  target_embedding: {{width: {sizes.embedding}}}"
    if choices.target.looks == "text":
        yield _line("  tied: true", "words are written with the vectors they are read with: fewer to learn")
    yield "  encoder:"
    yield _line(f"    kind: {sizes.encoder}", ENCODERS[sizes.encoder])
    yield from _stack(sizes, sizes.encoder)
    yield _line(f"    dropout: {sizes.dropout}", why)
    yield "  decoder:"
    yield _line(f"    kind: {sizes.decoder}", DECODERS[sizes.decoder])
    yield from _stack(sizes, sizes.decoder)
    yield f"    dropout: {sizes.dropout}"


def _stack(sizes: Sizes, kind: str) -> Iterator[str]:
    if kind in ("rnn", "luong", "monotonic"):
        yield "    cell: lstm"
    yield f"    width: {sizes.width}"
    if kind in ("convolution", "transformer"):
        yield f"    layers: {sizes.layers}"
    if kind == "transformer":
        yield f"    heads: {sizes.width // 64}"
        yield _line("    positions: rotary", "attention sees how far apart words are, not where they stand")
    if kind == "convolution":
        yield _line("    kernel: 5", "letters that one layer sees at once")


def _training(choices: Choices) -> Iterator[str]:
    sizes = choices.sizes
    measured = {"symbols": "per", "strings": "cer", "text": "chrf"}[choices.target.looks]
    yield "task:"
    yield _line("  label_smoothing: 0.1", "never quite sure: better outputs, better confidences")
    if sizes.r_drop:
        yield _line(f"  r_drop: {sizes.r_drop}", "two passes with other dropout must agree: slower, for little data")
    yield "batching:"
    yield _line(f"  tokens: {sizes.batch}", "in one step: small batches learn more from little data")
    yield "training:"
    yield _line(f"  epochs: {choices.epochs}", f"so often through the data, in about {choices.steps:,} steps")
    yield _line(f"  validate_every: {choices.validate_every}", "steps; the best validation is what is kept")
    yield _line(f"  metric: {measured}", "which one is best: by this score on the dev set")
    yield f"  optimiser: {{kind: adam, lr: {choices.lr:g}}}"
    yield _line(f"  schedule: {{kind: cosine, warmup: {choices.warmup}}}", "the rate falls to nothing at the last step")


def _outputs(choices: Choices) -> Iterator[str]:
    yield "search:"
    yield _line("  strategy: {kind: beam, size: 5}", "'predict --greedy' is quicker and, mostly, a little worse")
    if choices.max_ratio != 2.0:
        yield _line(
            f"  limits: {{max_ratio: {choices.max_ratio:g}}}", "targets may have so many tokens per source token"
        )
    yield "evaluation:"
    looks, script = choices.target.looks, choices.target.script
    if looks == "symbols":
        yield _line("  metrics: [string_error, per]", "outputs that are not quite right, and wrong symbols, in %")
    elif looks == "strings":
        yield _line("  metrics: [exact, cer]", "outputs that are right to the letter, and wrong letters, in %")
    else:
        cut = {"CJK": "{kind: bleu, tokenize: zh}", "THAI": "{kind: bleu, tokenize: char}"}.get(script, "bleu")
        yield _line(f"  metrics: [{cut}, chrf]", "agreement with the reference in words, and in characters")
        yield _line("  right_at: 50", "for confidences: an output of this BLEU or more counts as right")
    if choices.merge_sources:
        yield _line("  merge_sources: true", "sources with several right targets: any of them counts")
