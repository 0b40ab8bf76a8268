"""`seqloom lexicon RUN`: which target tokens the tokens of a source lead to, for 'predict --shortlist'."""

from __future__ import annotations

from pathlib import Path

import typer

from seqloom.cli import say


def command(
    run: Path = typer.Argument(..., metavar="RUN", help="A run folder, with the pairs that it was trained on."),
    show: str | None = typer.Option(None, metavar="TEXT", help="Show what the tokens of this text lead to instead."),
    as_json: bool = typer.Option(False, "--json", help="One JSON document on stdout."),
) -> None:
    """Learn which target tokens each source token leads to.

    'predict --shortlist' then weighs only these: faster where the vocabulary is large.
    """
    from seqloom.api.lexicon import leads_to, learn_lexicon

    if show is not None:
        from seqloom.api.load import load

        found = leads_to(load(run, device="cpu", packed=False), show)
        if as_json:
            return say.as_json([{"token": token, "leads_to": list(words)} for token, words in found])
        return say.table("What tokens lead to", ["token", "likeliest first"], [[a, "  ".join(b)] for a, b in found])
    learned = learn_lexicon(run)
    if as_json:
        return say.as_json(learned.as_dict())
    rows = [[f"{count}", say.percent(share)] for count, share in learned.shares.items()]
    say.table(f"From {learned.pairs:,} pairs", ["shortlist", "of the dev targets' tokens"], rows)
    say.talk(f"wrote {say.shown(learned.path)}")
    say.talk("  predict with: " + say.to_type(f"seqloom predict {say.shown(run)} --shortlist 50"))
