"""The table of strategies: how a search goes on from step to step. Each is a file of its own."""

from __future__ import annotations

from seqloom.config import Table
from seqloom.search.beam import Beam
from seqloom.search.contracts import Strategy
from seqloom.search.diverse import Diverse
from seqloom.search.independent import Greedy, Sample
from seqloom.search.lexical import Lexical

STRATEGIES: Table[Strategy] = Table(
    "strategies", {"greedy": Greedy, "beam": Beam, "sample": Sample, "diverse": Diverse, "lexical": Lexical}
)

__all__ = ["STRATEGIES", "Beam", "Diverse", "Greedy", "Lexical", "Sample", "Strategy"]
