"""What `seqloom predict` counts while it answers, and the line that says it at the end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from seqloom.cli import say
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from seqloom.api.predictions import Prediction


@dataclass
class Counts:
    """Sums over answers; those of several processes add up."""

    lines: int = 0
    empty: int = 0
    long: int = 0
    truncated: int = 0
    withheld: int = 0
    hedged: int = 0
    tokens: int = 0
    source_tokens: int = 0
    unknown: float = 0.0
    faults: list[SeqloomError] = field(default_factory=list)  # files of sources that could not be read

    def add(self, prediction: Prediction) -> None:
        self.lines += 1
        self.tokens += len(prediction.tokens)
        self.source_tokens += prediction.length
        self.unknown += prediction.unknown * prediction.length
        self.truncated += prediction.best.truncated
        self.withheld += prediction.withheld
        self.hedged += prediction.given is not None and not prediction.withheld
        if prediction.fault is not None:
            self.faults.append(prediction.fault)
        elif prediction.skipped:
            self.empty += not prediction.source.strip()
            self.long += bool(prediction.source.strip())

    def join(self, other: Counts) -> None:
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))

    def summary(self, elapsed: float, tally: Mapping[str, int]) -> str:
        elapsed = max(elapsed, 1e-9)
        speed = f"{self.lines / elapsed:,.0f} lines/s"
        speed += f", {self.tokens / elapsed:,.0f} tokens/s" if self.tokens else ""  # what is ranked has none
        parts = [f"{self.lines:,} line{'' if self.lines == 1 else 's'} in {elapsed:.1f} s ({speed})"]
        parts.append(f"{say.percent(self.unknown / max(1, self.source_tokens))} of source tokens unknown")
        parts.append(f"{self.truncated:,} truncated")
        if self.empty:
            parts.append(f"{self.empty:,} empty")
        if self.withheld:
            parts.append(f"{self.withheld:,} withheld")
        if self.hedged:
            parts.append(f"{self.hedged:,} hedged")
        if self.faults:
            parts.append(f"{len(self.faults):,} could not be read: an empty line each")
        if self.long:
            parts.append(f"{self.long:,} over-long skipped")
        parts += [f"{count:,} {name.replace('_', ' ')}" for name, count in tally.items()]
        return "; ".join(parts)
