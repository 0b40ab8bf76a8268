"""Which set an example belongs to, decided by its own source (with its extras) and a seed.

The same source always falls into the same set, whatever the order, the file or the other examples: no source stands
in two sets, and adding data later moves nothing. The same goes for a portion of the training set. It decides nothing
else; fractions are the caller's choice.
"""

from __future__ import annotations

import hashlib
import unicodedata
from typing import Literal

from seqloom.data.readers import Example

Part = Literal["train", "dev", "test"]


def source_key(text: str) -> str:
    """A source as a person would compare it: Unicode form, case and spacing do not make it another one."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def assign(example: Example, seed: int, dev: float, test: float) -> Part:
    """A seeded hash of the source gives a number in [0, 1): the first `test` of it is test, the next `dev` is dev."""
    assert min(dev, test) >= 0, (dev, test)
    assert dev + test < 1, (dev, test)
    place = _place(example, str(seed))
    if place < test:
        return "test"
    return "dev" if place < test + dev else "train"


def within(example: Example, seed: int, portion: float) -> bool:
    """Is it among this portion of the training set? A smaller portion is a part of every larger one."""
    return portion >= 1 or _place(example, f"portion {seed}") < portion


def _place(example: Example, salt: str) -> float:
    """A number in [0, 1) that its source and the salt decide."""
    key = "\0".join(map(source_key, example.key))
    salted = hashlib.blake2b(salt.encode("ascii"), digest_size=16).digest()
    return int.from_bytes(hashlib.blake2b(key.encode("utf-8"), digest_size=8, salt=salted).digest(), "big") / 2**64
