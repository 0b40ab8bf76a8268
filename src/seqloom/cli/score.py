"""`seqloom score`: log-probabilities of given pairs, in order."""

from __future__ import annotations

import json
import math

import typer

from seqloom.cli import say
from seqloom.cli.pairs import named_pairs
from seqloom.errors import SeqloomError


def command(
    run: str = typer.Argument(..., metavar="RUN", help="The run whose opinion is asked."),
    pairs: str = typer.Argument(
        None, metavar="[FILE]", help="Pairs: .tsv, .jsonl (also .gz), '-' for stdin, or {path: ..., extras: ...}."
    ),
    source: str = typer.Option(None, metavar="FILE", help="Sources, one per line (with --target)."),
    target: str = typer.Option(None, metavar="FILE", help="Targets, line by line beside the sources."),
    tokens: bool = typer.Option(
        False, "--tokens", help="One line per target token and end: pair, token, log-probability."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per pair, with every token."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
) -> None:
    """Print log P(target given source) and perplexity, pair by pair.

    The target's end (EOS) counts as a token in both: of T tokens, log P is a sum of T+1 terms, and the perplexity is
    exp(-log P / (T+1)). Where targets are labels, only these count. What a model cannot say at all, such as a label
    that its training has not, has the log-probability -inf, in JSON null.
    """
    from seqloom.api.load import load
    from seqloom.api.score import ScoreTotal, score_examples
    from seqloom.api.testset import named_dataset, read_like

    given = named_pairs(pairs, source, target)
    if tokens and as_json:
        raise SeqloomError("E_USAGE", "--json holds every token already", fix="leave out --tokens")
    model = load(run, device=device, threads=threads)
    total = ScoreTotal()
    for score in score_examples(model, read_like(model.recipe, named_dataset(given, "FILE", model.recipe))):
        total.add(score)
        if as_json:
            record = {
                "source": score.source,
                **({"extras": dict(score.extras)} if score.extras else {}),
                "target": score.target,
                "log_prob": _finite(score.log_prob),
                "perplexity": _finite(score.perplexity),
                "tokens": score.tokens,
                "token_scores": [_finite(value) for value in score.token_scores],
            }
            say.data(json.dumps(record, ensure_ascii=False, allow_nan=False))
        elif tokens:
            for token, value in zip(score.tokens, score.token_scores, strict=True):
                say.data(f"{total.pairs}\t{_shown(token)}\t{value:.6f}")
        else:
            say.data(f"{score.log_prob:.6f}\t{score.perplexity:.6g}")
    if not total.pairs:
        raise SeqloomError("E_EMPTY", "no pairs to score", fix="one per line: source, tab, target")
    unit, counted = ("label", "labels") if model.codecs.labels else ("token", "tokens (ends included)")
    left_out = f"; not counted: {total.unsaid:,} that cannot be said at all" if total.unsaid else ""
    say.talk(
        f"{total.pairs:,} pairs, {total.tokens:,} {counted}: log-probability {total.log_prob:.4f}, "
        f"{total.log_prob / max(1, total.tokens):.4f} per {unit}, perplexity {total.perplexity:.4f}{left_out}"
    )


def _finite(value: float) -> float | None:
    """JSON has no infinity."""
    return value if math.isfinite(value) else None


def _shown(token: str) -> str:
    """A token that stays in its column."""
    return token.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")
