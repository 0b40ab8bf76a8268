"""What a person may ask of any model, of ours or of one that was exported. Nothing here needs torch."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from seqloom.config import Settings


class Asked(Settings):
    """Null means: as the recipe has it."""

    beam: int | None = Field(None, ge=1, le=100_000)  # so many hypotheses side by side; 1 is greedy
    n_best: int = Field(1, ge=1)
    min_length: int | None = Field(None, ge=0)
    max_length: int | None = Field(None, ge=1)
    min_ratio: float | None = Field(None, ge=0.0)
    max_ratio: float | None = Field(None, ge=0.0)
    prefix: str = ""  # every output begins with this
    split: bool | None = None  # paragraphs into sentences; null: for runs that learned single sentences
    on_long: Literal["error", "split", "skip"] = "error"
    on_bad_file: Literal["error", "skip"] = "error"  # a source that is a file which cannot be read
    batch_tokens: int = Field(4096, ge=1)

    @model_validator(mode="after")
    def _lengths_agree(self) -> Asked:
        if self.min_length is not None and self.max_length is not None and self.min_length > self.max_length:
            raise ValueError(f"min_length {self.min_length} is over max_length {self.max_length}")
        return self

    @property
    def of_the_whole(self) -> bool:
        """Is something asked of a whole output? Each sentence of a text would have to fulfil it alone."""
        return False
