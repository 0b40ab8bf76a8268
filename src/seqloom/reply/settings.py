"""All that a person may choose about Smart Reply, besides the model's own recipe: one YAML file in the bundle."""

from __future__ import annotations

from pydantic import Field, model_validator

from seqloom import config
from seqloom.reply.diversity import SHOWN
from seqloom.reply.prepare import Preprocess
from seqloom.reply.responses import Mining
from seqloom.reply.selection import Selection
from seqloom.reply.trigger import Trigger


class Split(config.Settings):
    """Which share of the conversations is held out, by a hash of their names."""

    dev: float = Field(0.05, ge=0.0, lt=1.0)
    test: float = Field(0.15, ge=0.0, lt=1.0)
    seed: int = 1

    @model_validator(mode="after")
    def _some_are_left(self) -> Split:
        if self.dev + self.test >= 1:
            raise ValueError(f"dev {self.dev:g} and test {self.test:g} leave nothing to train on")
        return self


class ReplySettings(config.Settings):
    """What `seqloom reply train` used; what is asked of single messages may be changed afterwards."""

    prepare: Preprocess.Settings = Preprocess.Settings()
    min_count: int = Field(3, ge=1)  # words that fewer training messages' tokens are become <rare>
    responses: Mining = Mining()
    split: Split = Split()
    trigger: Trigger.Settings = Trigger.Settings()
    threshold: float | None = Field(None, ge=0.0, le=1.0)  # of the trigger; null: as training chose it
    selection: Selection.Settings = Selection.Settings()
    shown: int = Field(SHOWN, ge=1, le=10)  # suggestions at most
