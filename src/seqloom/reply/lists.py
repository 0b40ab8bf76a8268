"""The lists that rules are made of: plain text, one entry a line, `#` before a remark, by language and name.

They are shipped in `lists/LANGUAGE/NAME.txt` and meant to be edited: a file of one's own folder takes the place of the
shipped one of the same language and name. What is wrong with a file is said with its line. Nothing here knows what an
entry means.
"""

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path

from seqloom.errors import SeqloomError
from seqloom.files import file_error

SHIPPED = Path(__file__).parent / "lists"
MOST_BYTES = 2_000_000
MOST_CHARACTERS = 500  # of one entry


class Lists:
    """Entries by language and name: those of `folder` where it has such a file, otherwise the shipped ones."""

    def __init__(self, folder: Path | None = None) -> None:
        if folder is not None and not folder.is_dir():
            raise SeqloomError("E_FILE", "not a folder of lists", where=str(folder), fix="it holds LANGUAGE/NAME.txt")
        self.folder = folder

    def entries(self, language: str, name: str) -> tuple[str, ...]:
        """Those of one file, in order; none where there is no such file."""
        path = self.path(language, name)
        return () if path is None else read(path)

    def everywhere(self, name: str) -> tuple[str, ...]:
        """Those of all languages that have such a file, each once."""
        return tuple(dict.fromkeys(entry for language in self.languages for entry in self.entries(language, name)))

    def path(self, language: str, name: str) -> Path | None:
        folders = [SHIPPED] if self.folder is None else [self.folder, SHIPPED]
        return next((path for folder in folders if (path := folder / language / f"{name}.txt").is_file()), None)

    @cached_property
    def languages(self) -> tuple[str, ...]:
        """Every language that has a list."""
        folders = [SHIPPED] if self.folder is None else [self.folder, SHIPPED]
        return tuple(sorted({inner.name for folder in folders for inner in folder.iterdir() if inner.is_dir()}))


def read(path: Path) -> tuple[str, ...]:
    """The entries of one file; E_UTF8 or E_DATA names the line that is none."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise file_error(error, path, "read") from None
    if len(data) > MOST_BYTES:
        raise SeqloomError("E_DATA", f"a list of more than {MOST_BYTES:,} bytes", where=str(path))
    found = []
    for number, raw in enumerate(data.removeprefix(b"\xef\xbb\xbf").split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            what = f"not UTF-8 at byte {error.start} of the line"
            raise SeqloomError("E_UTF8", what, where=f"{path}:{number}", fix="save it as UTF-8") from None
        if len(line) > MOST_CHARACTERS and not line.startswith("#"):
            what = f"an entry of {len(line):,} characters, at most {MOST_CHARACTERS}"
            raise SeqloomError("E_DATA", what, where=f"{path}:{number}", fix="one entry a line")
        if line and not line.startswith("#"):
            found.append(line)
    return tuple(found)


def copy(languages: tuple[str, ...], folder: Path) -> list[Path]:
    """The shipped lists of some languages, to be edited; files that are there already are left alone."""
    made = []
    for language in languages:
        for path in sorted((SHIPPED / language).glob("*.txt")):
            goal = folder / language / path.name
            try:
                goal.parent.mkdir(parents=True, exist_ok=True)
                if not goal.exists():
                    shutil.copyfile(path, goal)
                    made.append(goal)
            except OSError as error:
                raise file_error(error, goal) from None
    return made
