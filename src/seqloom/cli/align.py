"""`seqloom align`: which word came from which, by attention."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import typer

from seqloom.cli import say
from seqloom.cli.pairs import named_pairs
from seqloom.errors import SeqloomError, nearest

if TYPE_CHECKING:
    from seqloom.api.align import Aligner
    from seqloom.data.readers import Example
    from seqloom.metrics.links import Gold, Links

JOINS = ("intersection", "union", "grow-diagonal", "grow-diagonal-final")


def command(
    run: str = typer.Argument(..., metavar="RUN", help="The run whose attention is read."),
    pairs: str = typer.Argument(
        None, metavar="[FILE]", help="Pairs: .tsv, .jsonl (also .gz), '-' for stdin, or {path: ..., extras: ...}."
    ),
    source: str = typer.Option(None, metavar="FILE", help="Sources, one per line (with --target)."),
    target: str = typer.Option(None, metavar="FILE", help="Targets, line by line beside the sources."),
    reverse: str = typer.Option(None, metavar="RUN", help="A run of the other direction, whose links are joined."),
    join: str = typer.Option("grow-diagonal", metavar="HOW", help=f"With --reverse: {', '.join(JOINS)}."),
    layer: int = typer.Option(None, min=1, help="Whose weights are read; by default the last layer's."),
    head: int = typer.Option(None, min=1, help="By default all heads of the layer, averaged."),
    shift: bool = typer.Option(False, "--shift", help="Read them at the step that reads a word, not that chooses it."),
    threshold: float = typer.Option(
        None, min=0, max=1, metavar="SHARE", help="Link all words with such a share; by default the largest alone."
    ),
    gold: str = typer.Option(
        None, metavar="FILE", help="Judge the links: a file of people's, 1-2 sure, 1p2 possible, a line per pair."
    ),
    tune: int = typer.Option(
        None, min=1, metavar="N", help="With --gold: the first N pairs choose layer, head and step; the rest is judged."
    ),
    as_json: bool = typer.Option(False, "--json", help="One JSON object per pair; with --gold a last one of scores."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
) -> None:
    """Say which word of a pair came from which, by attention.

    Prints links SOURCE-TARGET, a line per pair, words counted from 0 (Pharaoh's form). Each target word is linked to
    the source word that attention was on. Two runs, one for each direction, are joined.
    """
    from seqloom.api.align import Aligner
    from seqloom.api.load import load
    from seqloom.api.testset import named_dataset
    from seqloom.data.readers import read
    from seqloom.metrics.links import SYMMETRISATIONS
    from seqloom.probe.align import Picks

    given = named_pairs(pairs, source, target)
    if join not in JOINS:
        raise SeqloomError("E_USAGE", f"--join {join!r}{nearest(join, JOINS)}", fix=", ".join(JOINS))
    if tune is not None and gold is None:
        raise SeqloomError("E_USAGE", "--tune needs people's links to come near to", fix="--gold FILE")
    if tune is not None and (layer or head or shift):
        raise SeqloomError("E_USAGE", "--tune chooses layer, head and step", fix="leave --layer, --head, --shift out")
    truth = None if gold is None else _gold(gold)
    picks = Picks(layer, head, shift, threshold)
    other = None if reverse is None else load(reverse, device=device, threads=threads)
    aligner = Aligner(load(run, device=device, threads=threads), other, SYMMETRISATIONS[join], picks, picks)
    examples = read(named_dataset(given, "FILE", aligner.model.recipe))
    if truth is None:
        count = sum(1 for _ in _said(aligner.aligned(examples), as_json))
    else:
        count = _judged(aligner, list(examples), truth, tune or 0, as_json)
    if not count:
        raise SeqloomError("E_EMPTY", "no pairs to align", fix="one per line: source, tab, target")


def _gold(path: str) -> list[Gold]:
    from seqloom.api.testset import read_outputs
    from seqloom.metrics.links import read_gold

    return [read_gold(line, f"{path}:{number}") for number, line in enumerate(read_outputs(path), start=1)]


def _said(aligned: Iterable[tuple[Example, Links]], as_json: bool) -> Iterator[Links]:
    """Links, each of which has been printed."""
    from seqloom.data.examples import pharaoh

    for example, links in aligned:
        ordered = sorted(links)
        if as_json:
            record = {"source": example.source, "target": example.target, "links": ordered}
            say.data(json.dumps(record, ensure_ascii=False))
        else:
            say.data(pharaoh(tuple(ordered)))
        yield links


def _refuse_outside(example: Example, gold: Gold) -> None:
    """Links of words that are not there: of another pair, counted from 1, or written target first."""
    words = len(example.source.split()), len(example.target.split())
    for i, j in sorted(gold.possible):
        if i >= words[0] or j >= words[1]:
            what = f"gold link {i}-{j}: the source has {words[0]} word(s), the target {words[1]}"
            fix = "SOURCE-TARGET, words between blanks counted from 0, line by line beside the pairs"
            raise SeqloomError("E_DATA", what, where=example.where, fix=fix)


def _judged(aligner: Aligner, examples: list[Example], gold: list[Gold], tune: int, as_json: bool) -> int:
    """Print links and how good they are, beyond the first pairs, which may choose whose weights are read."""
    from seqloom.metrics.links import Judged

    if len(examples) != len(gold):
        raise SeqloomError("E_ALIGN", f"{len(examples):,} pair(s), but {len(gold):,} line(s) of gold links")
    for example, truth in zip(examples, gold, strict=True):
        _refuse_outside(example, truth)
    if tune:
        if len(examples) <= tune:
            raise SeqloomError("E_USAGE", f"--tune {tune}: of {len(examples):,} pairs none would be left", fix="fewer")
        aligner = aligner.tuned(examples[:tune], gold[:tune])
    found = list(_said(aligner.aligned(examples), as_json))
    total = Judged.total(Judged.of(*pair) for pair in zip(found[tune:], gold[tune:], strict=True))
    whose = [str(aligner.picks), *([] if aligner.reverse is None else [str(aligner.reverse_picks)])]
    if as_json:
        scores = {"aer": total.aer, "precision": total.precision, "recall": total.recall}
        say.data(json.dumps({**scores, "pairs": len(found) - tune, "weights": whose, **total._asdict()}))
        return len(found)
    if tune:
        say.talk(f"weights chosen on the first {tune:,} pairs: {'; the other direction: '.join(whose)}")
    say.talk(
        f"{len(found) - tune:,} pairs: AER {100 * total.aer:.1f} %, precision {100 * total.precision:.1f} %, "
        f"recall {100 * total.recall:.1f} % ({total.links:,} links, {total.sure:,} sure ones in the gold file)"
    )
    return len(found)
