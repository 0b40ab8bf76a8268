"""The Smart Reply that is served beside other runs: loaded at the start, loaded anew when it changes.

A change is another bundle, or an edit of what people may edit in it: its replies and its settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seqloom.errors import SeqloomError
from seqloom.reply import bundle
from seqloom.reply.replier import Replier
from seqloom.serve.kept import Kept, Mark, mark_of

EDITED = (bundle.RESPONSES, bundle.SETTINGS)


class Replying(Kept[Replier]):
    """A Smart Reply that is served, and where its log goes."""

    def __init__(self, path: Path, log: Path | None, device: str, threads: int | None) -> None:
        def opened(folder: Path) -> Replier:
            return bundle.load(folder, device=device, threads=threads)

        super().__init__(path, opened, marked)
        self.name, self.log = path.resolve().name, log


def is_reply(path: Path) -> bool:
    """Was this folder filled by `seqloom reply train`?"""
    return _folder(path) is not None


def opened(paths: Sequence[Path], log: Path | None, device: str, threads: int | None) -> Replying | None:
    """The one Smart Reply among the runs to serve; E_USAGE where there are two, or a log and none."""
    if not paths:
        if log is not None:
            raise SeqloomError("E_USAGE", "--reply-log without a run of Smart Reply", fix="serve one: 'seqloom reply'")
        return None
    if len(paths) > 1:
        what = f"{len(paths)} runs of Smart Reply, and one is served at a time"
        raise SeqloomError("E_USAGE", what, where=str(paths[1]), fix="leave one out")
    return Replying(paths[0], log, device, threads)


def marked(path: Path) -> Mark | None:
    """What tells one state of a Smart Reply from the next. Nothing is repaired here: who writes it may be at work."""
    folder = _folder(path)
    return None if folder is None else mark_of(*(folder / name for name in (bundle.CARD, *EDITED)))


def _folder(path: Path) -> Path | None:
    return next((one for one in (path / bundle.FOLDER, path) if (one / bundle.CARD).is_file()), None)
