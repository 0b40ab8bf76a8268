"""`seqloom demo`: from data to a model you can see inside of, in one command. Parses, calls `api.demo`, prints."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from seqloom.cli.say import as_json, data, percent, shown, table, talk, to_type

if TYPE_CHECKING:
    from seqloom.api.demo import Facts, Place, Report

WIDTH = 120  # columns of the attention map where there is no terminal to ask


def command(
    name: str = typer.Argument(
        "pronunciation", metavar="[NAME]", help="pronunciation, dates, captions, digits or reply."
    ),
    folder: Path = typer.Option(Path("demo"), "--folder", help="Where its files go, in a folder of the demo's name."),
    steps: int | None = typer.Option(None, "--steps", min=1, help="Train for so many steps instead of the recipe's."),
    device: str | None = typer.Option(None, "--device", help="auto, cpu, cuda, cuda:N or mps."),
    threads: int | None = typer.Option(None, "--threads", min=1, help="CPU threads."),
    replace: bool = typer.Option(False, "--replace", help="Begin anew where the folder holds a run of other settings."),
    json: bool = typer.Option(False, "--json", help="Print the report as JSON."),
) -> None:
    """Get data, train, measure and look inside, in about five minutes."""
    from seqloom.api import demo as api
    from seqloom.api.load import load

    started_at = time.monotonic()
    if name == "reply":
        from seqloom.cli.replied import run_demo

        wishes = {"training.steps": steps, "runtime.device": device, "runtime.threads": threads}
        return run_demo(folder / name, {key: value for key, value in wishes.items() if value}, replace, json)
    demo = api.find_demo(name)
    talk(f"{demo.name}: {demo.about}")
    place = api.prepare(demo, folder / demo.name)
    facts = api.describe(demo, place)
    _tell_data(place, facts)
    wishes = {"training.steps": steps, "runtime.device": device, "runtime.threads": threads}
    _train(place, [f"{key}={value}" for key, value in wishes.items() if value is not None], replace)
    talk("judging on the test set ...")
    report = api.report(demo, place, facts, load(place.run, device=device or "auto", threads=threads))
    if json:
        as_json({**report.as_dict(), "elapsed": round(time.monotonic() - started_at, 1)})
        return
    _print_scores(report)
    _print_examples(report)
    _print_map(report)
    data(f"\nall this in {_minutes(time.monotonic() - started_at)}; next, type any of these:")
    for line, why in api.next_commands(demo, place):
        data(f"  {to_type(line)}\n      {why}")


def _tell_data(place: Place, facts: Facts) -> None:
    for path in place.kept:
        talk(f"  kept {shown(path)} as it is; delete it to get a fresh one")
    for name, count in facts.counts.items():
        talk(f"  {count:>9,} {name}")
    found = ", ".join(f"{count} {name}{'' if count == 1 else 's'}" for name, count in facts.findings.items() if count)
    talk(f"  'seqloom check {shown(place.recipe)}' finds {found or 'nothing suspicious'}")
    talk(f"  pairs and recipe are in {shown(place.folder)}, yours to read and change")


def _train(place: Place, settings: list[str], replace: bool) -> None:
    """Train with live progress. Ctrl-C saves the run, and the same command goes on with it."""
    from seqloom.api.train import Wishes, train
    from seqloom.errors import INTERRUPTED, PREEMPTED, SeqloomError
    from seqloom.training.console import Console
    from seqloom.training.signals import Signals

    with Console() as console, Signals() as stop:
        wishes = Wishes(observers=[console], stop=stop, tell=talk, replace=replace)
        try:
            run = train(place.recipe, run=place.run, settings=settings, wishes=wishes)
        except SeqloomError as error:
            if error.code != "E_RUN":
                raise
            fix = "--replace to begin anew, or another --folder"
            raise SeqloomError(error.code, error.what, where=error.where, fix=fix) from None
    if run.reason in ("interrupted", "preempted"):
        talk("saved; the same command goes on from here")
        raise typer.Exit(INTERRUPTED if run.reason == "interrupted" else PREEMPTED)


# --- the report --------------------------------------------------------------------------------------------------


def _print_scores(report: Report) -> None:
    decoding = report.evaluation.decoding
    assert decoding is not None, "a model was at hand"
    speed = f"{decoding.search} search, {decoding.tokens_per_second:,.0f} tokens/s"
    honest = decoding.confidence
    notes = [
        f"{report.evaluation.sentences:,} {report.demo.sources} that training never saw; {speed}",
        f"confidence: {percent(honest.mean)} on average, and {percent(honest.right)} are right",
    ]
    data("")
    table("on the test set", ("score", "value", "95 % interval"), report.scores(), notes)


def _print_examples(report: Report) -> None:
    rows = [
        (
            one.asked,
            one.prediction.text,
            "=" if one.right else " | ".join(one.references),
            percent(one.prediction.confidence),
        )
        for one in report.examples
    ]
    data("")
    columns = (report.demo.sources, "output", "reference (= where right)", "confidence")
    table(f"{len(rows)} of them, drawn at random", columns, rows)


def _print_map(report: Report) -> None:
    import os
    import shutil
    import sys

    from seqloom.probe.heatmap import render, style_of

    if report.map is None:
        data("\nthis model has no attention, so there is no map of where it looked")
        return
    data("\nwhere it looked: what it read across, what it wrote down, each with its probability p\n")
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else WIDTH
    for line in render(report.map, width - 2, style_of(sys.stdout, os.environ)):
        data(f"  {line}".rstrip())


def _minutes(elapsed: float) -> str:
    minutes, seconds = divmod(round(elapsed), 60)
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
