"""What every body of /v1 must be."""

from __future__ import annotations

import json
from typing import Self

from pydantic import model_validator

from seqloom.config import Settings

Text = str | dict[str, str]  # a source, or the source and every extra by its name


class Asked(Settings):
    """A body that says nothing that is no text."""

    @model_validator(mode="after")
    def _is_unicode(self) -> Self:
        """JSON can write halves of characters (`\\ud800`), which no text has."""
        try:
            json.dumps(self.model_dump(), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ValueError("a text is not valid Unicode: it holds half of a surrogate pair") from None
        return self
