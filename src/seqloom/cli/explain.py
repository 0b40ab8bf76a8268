"""`seqloom explain RUN TEXT`: where it looked, how sure it was, what else it might have said, how search found it."""

from __future__ import annotations

import math
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli import ranking, say
from seqloom.cli.extras import given_extras, refuse_missing
from seqloom.cli.inside import Closer, Looks, Seen, drawn_map, examples_of, refuse_alone, show
from seqloom.cli.reporting import refuse_page
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.explain import Question
    from seqloom.api.model import Model
    from seqloom.api.options import Options
    from seqloom.config import Plain
    from seqloom.probe.explain import Explanation, Told

SHOWN = 4  # runners-up of a token that are printed
LIKELIEST = 5


def command(
    context: typer.Context,
    run: str = typer.Argument(..., metavar="RUN", help="The run or bundle to look into."),
    text: str = typer.Argument(None, metavar="[TEXT]", help="What it is asked; some looks are at a test set instead."),
    target: str = typer.Option(None, metavar="TEXT", help="Explain this output instead of the one that search finds."),
    extra: list[str] = typer.Option([], "--extra", metavar="NAME=TEXT", help="A further source: tags='V;PST'."),
    beam: int = typer.Option(None, "--beam", "-b", help="Beam search of this size."),
    greedy: bool = typer.Option(False, "--greedy", help="The likeliest token at every step."),
    prefix: str = typer.Option("", "--prefix", help="What if the output began with this?"),
    replace: list[str] = typer.Option([], "--replace", metavar="OLD=NEW", help="What if this word were another?"),
    ban: list[str] = typer.Option([], "--ban", metavar="PHRASE", help="What if it could not say this?"),
    attend: list[str] = typer.Option(
        [], "--attend", metavar="STEP=PLACE", help="What if output token STEP looked there? Or STEP=WEIGHT,WEIGHT,..."
    ),
    mask_head: list[str] = typer.Option(
        [],
        "--mask-head",
        metavar="LAYER.HEAD",
        help="What if this head found nothing? Or encoder.LAYER.HEAD, decoder...",
    ),
    layer: int = typer.Option(None, min=1, help="Whose weights are drawn; by default the last layer's."),
    head: int = typer.Option(None, min=1, help="By default all heads of the layer, averaged."),
    words: bool = typer.Option(
        False, "--words", help="Words instead of their pieces: where each looked, how surprising it was."
    ),
    likeliest: int = typer.Option(LIKELIEST, min=1, max=1000, help="So many of the likeliest tokens at each step."),
    tree: bool = typer.Option(False, "--tree", help="Print the beam as a tree."),
    attribute: str = typer.Option(
        None,
        metavar="METHOD",
        help="What each word owes to what was read: attention, rollout, gradient, integrated or occlusion.",
    ),
    neighbours: int = typer.Option(
        None, min=1, metavar="K", help="The K training examples whose states are nearest to the text's."
    ),
    faithfulness: bool = typer.Option(
        False,
        "--faithfulness",
        help="May attention be read as a reason? Of the text, or of the test set's first pairs.",
    ),
    states: bool = typer.Option(False, "--states", help="A map of the encoder's states of the test set (PCA)."),
    colour: str = typer.Option("length", metavar="length|score|COLUMN", help="With --states: what the map shows."),
    gradients: bool = typer.Option(
        False, "--gradients", help="Does what was read long ago still reach the loss? The gradient by distance."
    ),
    depth: bool = typer.Option(
        False, "--depth", help="What layers see, what heads do, and the loss without each of them."
    ),
    label: str = typer.Option(None, metavar="COLUMN", help="With --depth: how well each layer tells this column."),
    scores: bool = typer.Option(
        False, "--scores", help="With --depth: the recipe's metric without each head as well (slow)."
    ),
    data: str = typer.Option(
        None, metavar="FILE", help="Pairs instead of the run's test set, or {path: ..., extras: {label: 2}}."
    ),
    html: Path = typer.Option(None, metavar="FILE", help="Everything as a page that opens from disk."),
    as_json: bool = typer.Option(False, "--json", help="Everything as one JSON object: all layers, heads, the tree."),
    device: str = typer.Option("auto", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int = typer.Option(None, min=1, help="CPU threads."),
) -> None:
    """Show why a model answers as it does.

    Prints where each output token looked, how probable it was and what else was likely. An edit (--prefix, --replace,
    --ban, --attend, --mask-head) is shown beside the answer without it. Without a text, looks at a test set.
    """
    from seqloom.api.load import load

    if ranking.ranks(run):
        ranking.refuse_others(context, ranking.EXPLAINS, run)
        return _match(run, text, target, extra, (device, threads), as_json)
    looks = Looks(states, colour, gradients, layer, depth, label, scores, faithfulness and text is None)
    refuse_alone({"--colour": colour != "length" and not states}, "--states")
    refuse_alone({"--label": label is not None and not depth, "--scores": scores and not depth}, "--depth")
    edited = {
        "--target": [] if target is None else [target],
        "--extra": extra,
        "--beam": [] if beam is None else [str(beam)],
        "--prefix": [prefix] if prefix else [],
        "--replace": replace,
        "--ban": ban,
        "--attend": attend,
        "--mask-head": mask_head,
    }
    drawn = {"--words": words, "--head": head is not None, "--tree": tree, "--likeliest": likeliest != LIKELIEST}
    if text is None:
        about = {name: bool(values) for name, values in edited.items()} | drawn
        about |= {"--greedy": greedy, "--attribute": bool(attribute), "--neighbours": bool(neighbours)}
        refuse_alone({**about, "--html": html is not None}, "a TEXT")
        if not looks.any:
            fix = "give a TEXT, or --states, --gradients, --depth or --faithfulness"
            raise SeqloomError("E_USAGE", "nothing to explain", fix=fix)
        refuse_alone({"--layer": layer is not None and not gradients}, "--gradients")
        model = load(run, device=device, threads=threads)
        show(looks.results(model, examples_of(model, data)), as_json)
        return
    if looks.any:
        raise SeqloomError("E_USAGE", "--states, --gradients and --depth look at a test set", fix="leave the TEXT out")
    refuse_alone({"--data": data is not None and neighbours is None}, "--neighbours")
    if html is not None and str(html) == "-" and as_json:
        raise SeqloomError("E_USAGE", "--html - and --json: stdout holds one of them", fix="name a file for the page")
    closer = Closer(attribute, neighbours, faithfulness, data, words, layer)
    closer.refuse_unheard(drawn, html is not None, bool(attend or mask_head))
    usual, asked = _options(beam, greedy, target, tree, prefix, ban)
    model = load(run, device=device, threads=threads)
    if html is not None:
        refuse_page(html, Path(run), [data] if data else [], model.recipe)
    extras = given_extras(model.codecs, extra)
    refuse_missing([name for name in model.codecs.extras if name not in extras])
    plain, question = _questions(text, target, extras, (replace, attend, mask_head), likeliest)
    found = before = None
    if html is not None or not closer.any:
        before = model_explains(model, plain, usual) if (plain, usual) != (question, asked) else None
        found = model_explains(model, question, asked)
        found.check(layer, head)
    seen = closer.seen(model, question, asked)
    again = _command([run, text], edited, ["--greedy"] if greedy else [])
    if html is not None and found is not None:
        _write(html, found, before, (run, again), seen)
    if as_json:
        told: dict[str, Plain] = {} if found is None or closer.any else found.as_dict()
        edit: dict[str, Plain] = {} if before is None else {"without_edits": before.as_dict(), "command": again}
        say.as_json({**told, **edit, **seen.told})
    elif closer.any and html is None:
        say.data("\n".join(seen.lines))
    elif found is not None and html is None:
        if before is not None:
            say.data(f"without edits: {before.answer}\nwith them:     {found.answer}\n  {again}\n")
        _print(found, layer, head, words)
        if tree and found.tree is not None:
            say.data("\nthe beam: steps, scores, and what became of each hypothesis; * leads to the answer\n")
            say.data("\n".join(f"  {line}" for line in found.tree.lines()))


def _match(
    run: str, text: str | None, target: str | None, extra: list[str], machine: tuple[str, int | None], as_json: bool
) -> None:
    """Which words carried the match of a run that ranks texts."""
    from seqloom.api.matched import explain_match
    from seqloom.api.retriever import load_retriever

    if text is None:
        raise SeqloomError("E_USAGE", "nothing to explain", where=run, fix="give a TEXT to rank candidates for")
    retriever = load_retriever(run, device=machine[0], threads=machine[1])
    extras = given_extras(retriever.codecs, extra)
    refuse_missing([name for name in retriever.codecs.extras if name not in extras])
    found = explain_match(retriever, {**extras, "source": text}, target)
    if as_json:
        say.as_json(found.as_dict())
    else:
        ranking.print_match(found)


# --- what is asked ---------------------------------------------------------------------------------------------------


def _options(
    beam: int | None, greedy: bool, target: str | None, tree: bool, prefix: str, ban: list[str]
) -> tuple[Options, Options]:
    """How is searched without the edits, and with them."""
    from seqloom.api.options import Options
    from seqloom.config import validated

    if greedy and beam is not None:
        raise SeqloomError("E_USAGE", "--greedy and --beam: choose one", fix="leave one of them out")
    if target is not None and (prefix or ban or beam is not None or greedy or tree):
        what = "--target is read as it is: nothing is searched for"
        raise SeqloomError("E_USAGE", what, fix="leave out --prefix, --ban, --beam, --greedy and --tree")
    searching = {"strategy": {"kind": "greedy"}} if greedy else {"beam": beam}
    edits = {"prefix": prefix, "banned": tuple(ban)}
    return validated(Options, searching, "options"), validated(Options, {**searching, **edits}, "options")


def _questions(
    text: str,
    target: str | None,
    extras: Mapping[str, str],
    edits: tuple[list[str], list[str], list[str]],
    likeliest: int,
) -> tuple[Question, Question]:
    """The text as it is, and with its edits (replace, attend, mask_head)."""
    from seqloom.api.explain import Question, replaced
    from seqloom.probe.edits import Edits, Look, Silence

    replace, attend, mask_head = edits
    changed = text
    for edit in replace:
        changed = replaced(changed, edit)
    inner = Edits(tuple(map(Look.parse, attend)), tuple(map(Silence.parse, mask_head))) if attend or mask_head else None
    plain = Question({**extras, "source": text}, target, likeliest=likeliest)
    return plain, Question({**extras, "source": changed}, target, inner, likeliest)


def model_explains(model: Model, question: Question, options: Options) -> Explanation:
    """The explanation; E_USAGE where an edit is of a step that the output does not have."""
    from seqloom.api.explain import explain, refuse_late

    found = explain(model, question, options)
    refuse_late(question, found)
    return found


def _command(places: list[str], options: Mapping[str, Sequence[str]], flags: Sequence[str]) -> str:
    """The command line that makes these edits."""
    given = [f"{name}={value}" for name, values in options.items() for value in values]
    words = ["seqloom", "explain", *places, *given, *flags]
    if any(place.startswith("-") for place in places):  # what begins so is taken for an option, unless it is told
        words = ["seqloom", "explain", *given, *flags, "--", *places]
    return say.to_type(shlex.join(words))


# --- what is shown ---------------------------------------------------------------------------------------------------


def _print(found: Explanation, layer: int | None, head: int | None, words: bool) -> None:
    from seqloom.probe.heatmap import style_of, written

    name = partial(written, style=style_of(sys.stdout, os.environ))
    if found.unknown:
        odd = " ".join(map(name, dict.fromkeys(found.unknown.values())))
        say.data(f"unknown to the model, which reads <unk> there: {odd}\n")
    if not len(found.weights):
        say.data("no map: the answer weighs nothing by attention; --attribute integrated tells what it owes to what\n")
    else:
        say.data("where it looked: what it read across, what it wrote down, each with its probability p\n")
        say.data("\n".join(drawn_map(found.map(layer, head, words))))
        say.data("")
    if found.between is not None:
        low, high = found.between
        say.data(f"{found.answer}: nine times of ten it should be between {low} and {high}, as the model has it")
        return
    title = f"{found.answer}  (log-probability {found.log_prob:.3f})"
    beside = any(told.alone is not None for told in found.output)
    if words and not beside and max(found.said, default=-1) >= 0:
        by_word = enumerate(found.words(), start=1)
        told_of = [
            (index, name(word), _p(value), f"{abs(value) / math.log(2):.2f}") for index, (word, value) in by_word
        ]
        say.table(title, ("#", "word", "p", "bits"), told_of, ["bits: how surprising it was where it stands, -log2 p"])
        return
    rows = [
        (index, name(told.token), _p(told.log_prob), *_alone(told, beside), told.rank, _others(told.runners_up, name))
        for index, told in enumerate(found.output, start=1)
    ]
    columns = ("#", "token", "p", *(["alone"] if beside else []), "rank", "or")
    notes = ["p: after its left neighbour; alone: whatever its neighbours are"] if beside else []
    say.table(title, columns, rows, notes)


def _alone(told: Told, beside: bool) -> list[str]:
    return [("" if told.alone is None else _p(told.alone))] if beside else []


def _p(log_prob: float) -> str:
    return f"{math.exp(log_prob):.3f}"


def _others(runners_up: list[tuple[str, float]], name: Callable[[str], str]) -> str:
    return "  ".join(f"{name(token)} {_p(log_prob)}" for token, log_prob in runners_up[:SHOWN])


def _write(path: Path, found: Explanation, before: Explanation | None, names: tuple[str, str], seen: Seen) -> None:
    from seqloom.cli.sink import Sink
    from seqloom.probe.page import page

    run, again = names
    told = page(
        [found],
        title=found.text,
        notes=[run, *seen.notes],
        before=before,
        command=again if before is not None else "",
        attribution=seen.attribution,
    )
    with Sink(path) as out:
        out.write(told)
    if str(path) != "-":
        say.talk(f"wrote {say.shown(path.absolute())}")
