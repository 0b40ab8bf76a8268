"""API keys: shown once, hashed at rest, closed for good when they are revoked."""

from __future__ import annotations

import stat
from inspect import signature
from pathlib import Path

import pytest

from commands import Command
from seqloom.cli import serve
from seqloom.serve.batcher import Pace
from seqloom.serve.keys import Keys
from seqloom.serve.limits import Limits, Rates
from seqloom.web.refusals import Refusal

pytest_plugins = ["command_fixtures"]


def test_a_key_opens_until_it_is_revoked(tmp_path: Path) -> None:
    keys = Keys(tmp_path / "keys.sqlite")
    first, second = keys.add("anna", "5/second"), keys.add("ben")
    found = keys.find(first)
    assert found is not None
    assert (found.name, found.rate) == ("anna", "5/second")
    keys.revoke(found.id)
    assert keys.find(first) is None
    assert keys.find(second) is not None
    assert [key.revoked_at is None for key in keys.all()] == [False, True]


@pytest.mark.parametrize("change", ["{}x", "x{}", "", "sl_", "sl__", "{}\ud800", "sl_nobody_secret"])
def test_nothing_else_opens(tmp_path: Path, change: str) -> None:
    keys = Keys(tmp_path / "keys.sqlite")
    assert keys.find(change.format(keys.add("anna"))) is None


def test_the_file_holds_no_secret_and_is_its_owners(tmp_path: Path) -> None:
    path = tmp_path / "keys.sqlite"
    key = Keys(path).add("anna")
    assert key.split("_", 2)[2].encode() not in path.read_bytes()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_command_makes_lists_and_revokes(seqloom: Command, tmp_path: Path) -> None:
    file = tmp_path / "new" / "keys.sqlite"
    made = seqloom("keys", "add", "anna", "--file", file)
    assert made.code == 0
    key = made.out.strip()
    assert Keys(file).find(key) is not None
    listed = seqloom("keys", "list", "--file", file)
    assert "anna" in listed.out
    assert key not in listed.out
    number = key.split("_")[1]
    assert "no key has the id" in seqloom("keys", "revoke", "xyz", "--file", file).refused("E_USAGE", 2)
    assert seqloom("keys", "revoke", number, "--file", file).code == 0
    assert Keys(file).find(key) is None


def test_what_cannot_be_is_said(seqloom: Command, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.write_text("this is no database, and long enough to be seen as one that is broken" * 20)
    assert 'did you mean "list"' in seqloom("keys", "lst").refused("E_USAGE", 2)
    assert "needs a NAME" in seqloom("keys", "add").refused("E_USAGE", 2)
    assert "no such file of keys" in seqloom("keys", "list", "--file", tmp_path / "none").refused("E_FILE", 6)
    line = seqloom("keys", "list", "--file", bad).refused("E_FILE", 6)
    assert "not a file of keys" in line
    assert "'seqloom keys add NAME" in line, "what to do"
    assert "is no rate" in seqloom("keys", "add", "x", "--file", tmp_path / "k", "--rate", "9").refused("E_USAGE", 2)


def test_rates_are_per_client_and_say_when_to_come_again() -> None:
    rates = Rates("2/minute")
    for _ in range(2):
        rates.count("anna")
    with pytest.raises(Refusal, match="more than 2 per 1 minute") as refused:
        rates.count("anna")
    assert refused.value.status_code == 429
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 120
    rates.count("ben")
    rates.count("anna", "none")


def test_limits_read_their_rate() -> None:
    with pytest.raises(ValueError, match="is no rate"):
        Limits(rate="often")


def test_the_commands_defaults_are_the_settings_own() -> None:
    shown = {name: one.default.default for name, one in signature(serve.command).parameters.items()}
    limits, pace = Limits(), Pace()
    for name in ("characters", "batch", "beam", "n_best", "max_length", "body", "rate"):
        assert shown[name] == getattr(limits, name)
    waits = (shown["queue"], shown["budget"], shown["patience"] / 1000, shown["deadline"])
    assert waits == (pace.room, pace.budget, pace.patience, pace.deadline)
