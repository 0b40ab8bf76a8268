"""What tests of damaged folders share: every file of one is spoilt in every way, and put back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def damaged(folder: Path, card: str) -> Iterator[str]:
    """The name of each file in turn, while it is cut short, empty, changed, longer, missing or a link to a good one."""
    elsewhere = folder.with_name("elsewhere")
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        whole, name = path.read_bytes(), path.relative_to(folder).as_posix()
        for spoilt in (whole[:-1], b"", bytes([whole[0] ^ 255]) + whole[1:], whole + b"\0"):
            path.write_bytes(spoilt)
            yield name
        if name != card:  # without its card, a folder is none
            path.unlink()
            yield name
            elsewhere.write_bytes(whole)
            path.symlink_to(elsewhere)
            yield name
            path.unlink()
        path.write_bytes(whole)
