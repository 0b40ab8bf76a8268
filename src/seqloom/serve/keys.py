"""API keys in a file of their own: made once, shown once, kept as hashes.

A key is `sl_ID_SECRET`. The id finds the row and may be shown; of the secret, which is 256 random bits, only the
SHA-256 is kept: nobody can try so many, so a slow hash would protect nothing more. Compared in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from seqloom.errors import SeqloomError, nearest

_SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
  id TEXT PRIMARY KEY, name TEXT NOT NULL, hash BLOB NOT NULL, rate TEXT, created_at TEXT NOT NULL, revoked_at TEXT
)
"""
_ALL = "SELECT id, name, rate, created_at, revoked_at FROM keys ORDER BY created_at, rowid"
_ONE = "SELECT hash, id, name, rate, created_at, revoked_at FROM keys WHERE id = ?"
_NOBODY = bytes(32)  # what a key without a row is compared with


@dataclass(frozen=True)
class Key:
    """What may be known of a key."""

    id: str
    name: str
    rate: str | None  # such as 100/minute; null: the server's own
    created_at: str
    revoked_at: str | None


class Keys:
    """The keys of one file, which is made where it is not there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
            except OSError as error:
                raise SeqloomError("E_FILE", f"cannot be written: {error.strerror}", where=str(path)) from None
        with self._open() as file:
            file.execute(_SCHEMA)

    def add(self, name: str, rate: str | None = None) -> str:
        """A new key. This is the only time that it is seen."""
        number, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        row = (number, name, _hashed(secret), rate, datetime.now(UTC).isoformat(timespec="seconds"))
        with self._open() as file:
            file.execute("INSERT INTO keys VALUES (?, ?, ?, ?, ?, NULL)", row)
        return f"sl_{number}_{secret}"

    def all(self) -> list[Key]:
        """Every key that was ever made, oldest first."""
        with self._open() as file:
            return [Key(*row) for row in file.execute(_ALL)]

    def revoke(self, number: str) -> Key:
        """Close a key for good, from the next request on; E_USAGE where there is none of this id."""
        known = {key.id: key for key in self.all()}
        if number not in known:
            what = f"no key has the id {number!r}{nearest(number, known)}"
            raise SeqloomError("E_USAGE", what, where=str(self.path), fix="'seqloom keys list' shows them")
        with self._open() as file:
            revoked_at = datetime.now(UTC).isoformat(timespec="seconds")
            file.execute("UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (revoked_at, number))
        return known[number]

    def find(self, given: str) -> Key | None:
        """The key that this text is, if it opens."""
        _, _, rest = given.partition("_")
        number, _, secret = rest.partition("_")
        with self._open() as file:
            rows = file.execute(_ONE, (number,)).fetchone()
        known = _NOBODY if rows is None else rows[0]
        opens = hmac.compare_digest(known, _hashed(secret)) and given.startswith("sl_")
        key = None if rows is None else Key(*rows[1:])
        return key if opens and key is not None and key.revoked_at is None else None

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self.path, timeout=5)) as file, file:
                yield file
        except sqlite3.DatabaseError as error:
            fix = "name the file that 'seqloom keys add NAME --file FILE' made"
            raise SeqloomError("E_FILE", f"not a file of keys: {error}", where=str(self.path), fix=fix) from None


def _hashed(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
