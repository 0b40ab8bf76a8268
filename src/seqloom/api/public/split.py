"""Splits of sets that come as one: by document, or so that no sentence of either side stands on both sides of it.

A hash decides, so that the same files give the same split on every machine. It is not the split that the counts of the
catalogue are of: scores on one cannot be held against the other.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Iterator

WORDS = range(2, 81)  # of a segment of documentation
JUDGED_WORDS = range(3, 41)  # of an English sentence of dev or test


def documents(segments: Iterable[tuple[str, str, str]]) -> dict[str, Iterator[str]]:
    """(document, source, target): whole documents go to dev (4 of 100), test (6 of 100) or train."""
    parts: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for document, source, target in segments:
        if len(source.split()) in WORDS and len(target.split()) in WORDS:
            share = share_of(document)
            part = "dev" if share < 0.04 else "test" if share < 0.10 else "train"
            parts[part].append(f"{document}\t{source}\t{target}")
    return {f"{part}.tsv.gz": iter(lines) for part, lines in parts.items()}


def tatoeba(lines: Iterable[str]) -> dict[str, Iterator[str]]:
    """English, tab, German. Pairs that share a sentence of either side belong together and go to one part."""
    pairs = [*dict.fromkeys(_pair(line) for line in lines if line.count("\t"))]
    groups = _groups(pairs)
    parts: dict[str, list[str]] = {"train": [], "dev": [], "test": []}
    for (english, german), group in zip(pairs, groups, strict=True):
        share = share_of(group)
        part = "dev" if share < 0.01 else "test" if share < 0.03 else "train"
        if part != "train" and len(english.split()) not in JUDGED_WORDS:
            continue
        parts[part].append(f"{english}\t{german}")
    return {f"{part}.tsv.gz": iter(found) for part, found in parts.items()}


def _pair(line: str) -> tuple[str, str]:
    english, german = line.split("\t")[:2]  # later releases have a third column, the attribution
    return _plain(english), _plain(german)


def _plain(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _groups(pairs: list[tuple[str, str]]) -> list[str]:
    """For each pair a name that all pairs have which hang together by a shared sentence (union-find)."""
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    for english, german in pairs:
        one, other = root(f"en {english}"), root(f"de {german}")
        parent[max(one, other)] = min(one, other)
    return [root(f"en {english}") for english, _ in pairs]


def share_of(name: str) -> float:
    """A number from 0 to 1 that depends on the name alone."""
    return int(hashlib.sha256(name.encode()).hexdigest()[:12], 16) / 16**12
