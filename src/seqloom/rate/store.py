"""A study on disk: one SQLite file that holds the plan, the raters and every click.

A click is a row that is never changed; the newest of a rater, output and question counts, and undo takes the newest
away. Once `save` has returned, neither `kill -9` nor a power cut takes the click back (write-ahead log, synced at
every commit). Who can read the file can rate and can see who said what: it is its owner's.
"""

from __future__ import annotations

import base64
import errno
import hashlib
import hmac
import json
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from seqloom import wording
from seqloom.errors import SeqloomError
from seqloom.files import file_error, sync_folder
from seqloom.rate.plan import Plan
from seqloom.rate.questions import Answer

FORMAT, PLAIN = 2, 1  # of studies with pictures or sounds; of those of texts alone
PATIENCE = 5.0  # seconds to wait for another program that writes
MOST_CHANGES = 500  # of one answer
MOST_RATERS = 1000
_NAME = re.compile(r"[^\W_][\w.@-]{0,63}")
_SCHEMA = """
CREATE TABLE study (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE raters (name TEXT PRIMARY KEY, added_at TEXT NOT NULL);
CREATE TABLE clicks (
  id INTEGER PRIMARY KEY AUTOINCREMENT, rater TEXT NOT NULL REFERENCES raters (name), task INTEGER NOT NULL,
  candidate INTEGER NOT NULL, question TEXT NOT NULL, answer TEXT, clicked_at TEXT NOT NULL
);
CREATE INDEX clicks_of ON clicks (rater, task, candidate, question);
"""
_COUNT = "SELECT count(*) FROM clicks WHERE rater = ? AND task = ? AND candidate = ? AND question = ?"
_NEWEST = """
SELECT answer FROM clicks WHERE rater = ? AND task = ? AND candidate = ? AND question = ? ORDER BY id DESC LIMIT 1
"""
_SAVE = "INSERT INTO clicks (rater, task, candidate, question, answer, clicked_at) VALUES (?, ?, ?, ?, ?, ?)"


@dataclass(frozen=True)
class Click:
    """One answer as it was given; None takes back what was said before."""

    rater: str
    task: int
    candidate: int
    question: str
    answer: Answer | None
    clicked_at: str

    @property
    def key(self) -> tuple[int, int, str]:
        return self.task, self.candidate, self.question


class Store:
    """An open study. May be used from several threads, and beside other processes."""

    def __init__(self, path: Path, patience: float | None = None) -> None:
        self.path = path
        if path.is_dir():
            raise SeqloomError(
                "E_FILE", "a folder, and a study is a file", where=str(path), fix="name the study's file"
            )
        if not path.is_file():
            fix = f"'seqloom rate new {path}' makes one"
            raise SeqloomError("E_FILE", "no such study", where=str(path), fix=fix)
        self._lock = threading.Lock()
        with self._errors():
            self._file = sqlite3.connect(
                path, timeout=PATIENCE if patience is None else patience, isolation_level=None, check_same_thread=False
            )
        try:
            with self._errors():
                kept = dict(self._file.execute("SELECT key, value FROM study"))
            self.plan, self._secret = _read(kept, path)
            with self._errors():  # only now: what is no study of ours is left as it is
                self._file.execute("PRAGMA journal_mode = WAL")
                self._file.execute("PRAGMA synchronous = FULL")
        except BaseException:
            self._file.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._file.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- raters ------------------------------------------------------------------------------------------------------

    def raters(self) -> list[str]:
        """In the order in which they came."""
        return [str(name) for (name,) in self._rows("SELECT name FROM raters ORDER BY rowid")]

    def add(self, rater: str) -> None:
        """Let somebody rate; who may already is left as they are."""
        refuse_name(rater)
        with self._errors(), self._lock:
            (known,) = self._file.execute("SELECT count(*) FROM raters").fetchone()
            if known >= MOST_RATERS:
                raise SeqloomError("E_USAGE", f"{known:,} raters are the most that a study has", where=str(self.path))
            self._file.execute("INSERT OR IGNORE INTO raters VALUES (?, ?)", (rater, _now()))

    def token(self, rater: str) -> str:
        """What a rater's link holds: it stays the same, so that links outlive the server."""
        mark = hmac.new(self._secret, rater.encode(), hashlib.sha256).digest()
        return base64.urlsafe_b64encode(mark).decode().rstrip("=")

    def rater_of(self, token: str) -> str | None:
        """Whose link this is. Every rater's is compared, each in constant time."""
        given, found = token.encode("utf-8", "surrogatepass"), None
        for rater in self.raters():
            if hmac.compare_digest(self.token(rater).encode(), given):
                found = rater
        return found

    # --- clicks ------------------------------------------------------------------------------------------------------

    def save(self, rater: str, key: tuple[int, int, str], answer: Answer | None) -> None:
        """Keep a click. What is said twice is kept once, so that it may be sent again where no answer came."""
        text = None if answer is None else json.dumps(answer)
        with self._errors(), self._lock:
            (count,) = self._file.execute(_COUNT, (rater, *key)).fetchone()
            last = self._file.execute(_NEWEST, (rater, *key)).fetchone()
            if (last is None and text is None) or (last is not None and last[0] == text):
                return
            if count >= MOST_CHANGES:
                what = f"one answer was changed {count:,} times"
                raise SeqloomError("E_USAGE", what, fix="leave it as it is")
            self._file.execute(_SAVE, (rater, *key, text, _now()))

    def undo(self, rater: str) -> Click | None:
        """Take the rater's newest click away, and what was said before it counts again; None where there is none."""
        with self._errors(), self._lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                row = self._file.execute(f"{_CLICKS} WHERE rater = ? ORDER BY id DESC LIMIT 1", (rater,)).fetchone()
                if row is not None:
                    self._file.execute("DELETE FROM clicks WHERE id = ?", row[:1])
                self._file.execute("COMMIT")
            except BaseException:
                self._file.execute("ROLLBACK")
                raise
        return None if row is None else self._click(row)

    def clicks(self, rater: str) -> list[Click]:
        """Every click of a rater that was not undone, oldest first."""
        return [self._click(row) for row in self._rows(f"{_CLICKS} WHERE rater = ? ORDER BY id", (rater,))]

    def answers(self, rater: str, task: int | None = None) -> dict[tuple[int, int, str], Click]:
        """What counts now, of all tasks or of one."""
        found: dict[tuple[int, int, str], Click] = {}
        for click in self.clicks(rater) if task is None else self._of_task(rater, task):
            if click.answer is None:
                found.pop(click.key, None)
            else:
                found[click.key] = click
        return found

    def _of_task(self, rater: str, task: int) -> list[Click]:
        rows = self._rows(f"{_CLICKS} WHERE rater = ? AND task = ? ORDER BY id", (rater, task))
        return [self._click(row) for row in rows]

    def _click(self, row: Sequence[object]) -> Click:
        _, rater, task, candidate, question, answer, clicked_at = row
        try:
            value = None if answer is None else json.loads(str(answer))
            datetime.fromisoformat(str(clicked_at))
        except ValueError:
            raise _damaged(self.path, "a click cannot be read") from None
        known = isinstance(task, int) and 0 <= task < len(self.plan.tasks) and question in self.plan.questions
        if not known or candidate not in range(len(self.plan.tasks[int(str(task))].candidates)):
            raise _damaged(self.path, "a click speaks of what is not there")
        return Click(str(rater), int(str(task)), int(str(candidate)), str(question), value, str(clicked_at))

    def _rows(self, query: str, values: Sequence[object] = ()) -> list[tuple[object, ...]]:
        with self._errors(), self._lock:
            return self._file.execute(query, values).fetchall()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise refusal(error, self.path) from None


_CLICKS = "SELECT id, rater, task, candidate, question, answer, clicked_at FROM clicks"


def create(path: Path, plan: Plan, raters: Sequence[str]) -> None:
    """Write a new study: afterwards it is there whole, or not at all. E_USAGE where something stands there."""
    refuse_existing(path)
    for rater in raters:
        refuse_name(rater)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with closing(sqlite3.connect(temporary)) as file, file:
            file.executescript(_SCHEMA)
            form = FORMAT if any(item.media is not None for item in plan.items) else PLAIN
            kept = {"format": str(form), "secret": secrets.token_hex(32), "plan": plan.model_dump_json()}
            file.executemany("INSERT INTO study VALUES (?, ?)", kept.items())
            file.executemany("INSERT OR IGNORE INTO raters VALUES (?, ?)", [(rater, _now()) for rater in raters])
        _put(temporary, path)
    except OSError as error:
        raise file_error(error, path) from None
    except sqlite3.Error as error:
        raise refusal(error, path) from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _put(temporary: Path, path: Path) -> None:
    """Give it its name, and never take one that is in use."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        refuse_existing(path)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP):  # file systems without second names
            raise
        refuse_existing(path)
        temporary.rename(path)
    sync_folder(path.parent)


def refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        fix = f"name another, or 'seqloom rate open {path}'"
        raise SeqloomError(
            "E_USAGE", "something stands there, and studies are never overwritten", where=str(path), fix=fix
        )


def refuse_name(rater: str) -> None:
    if not _NAME.fullmatch(rater):
        what = f"not a name for a rater: {wording.shown(rater)}"
        fix = "up to 64 letters, digits and . @ - _, beginning with a letter or digit"
        raise SeqloomError("E_USAGE", what, where="--rater", fix=fix)


def refusal(error: sqlite3.Error, path: Path) -> SeqloomError:
    """What SQLite complains of, as ours."""
    told = str(error)
    if "locked" in told or "busy" in told:
        return SeqloomError("E_LOCKED", "another program writes to the study", where=str(path), fix="try again soon")
    if "full" in told:
        return SeqloomError("E_DISK", f"cannot write: {told}", where=str(path), fix="free some space, then run again")
    if any(word in told for word in ("unable to open", "readonly", "disk I/O")):
        return SeqloomError("E_FILE", f"cannot be read and written: {told}", where=str(path))
    return _damaged(path, told)


def _damaged(path: Path, told: str) -> SeqloomError:
    fix = "name a file that 'seqloom rate new' made, or a copy of it from before"
    return SeqloomError("E_DATA", f"not a study, or a damaged one: {told}", where=str(path), fix=fix)


def _read(kept: dict[str, str], path: Path) -> tuple[Plan, bytes]:
    """The plan and the secret; E_FORMAT for a study of a newer seqloom, E_DATA for one that cannot be read."""
    number = kept.get("format", "")
    if number.isdecimal() and int(number) > FORMAT:
        what = f"the study has format {number}, this seqloom knows {FORMAT}"
        raise SeqloomError("E_FORMAT", what, where=str(path), fix="use a newer seqloom")
    try:
        plan, secret = Plan.model_validate_json(kept["plan"]), bytes.fromhex(kept["secret"])
    except KeyError as error:
        raise _damaged(path, f"it has no {error.args[0]}") from None
    except ValidationError as error:
        raise _damaged(path, wording.first_problem(error)) from None
    except ValueError:
        raise _damaged(path, "its secret cannot be read") from None
    return plan, secret


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
