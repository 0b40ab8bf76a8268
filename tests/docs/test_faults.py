"""docs/faults.md names a test for every case, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = [
    line
    for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| case |")
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_a_case_has_tests_that_exist(row: str) -> None:
    named = re.findall(r"`([a-z]+/test_\w+\.py)(?:::(test_\w+))?`", row.split("|")[3])
    assert named, "no test"
    for file, test in named:
        text = (ROOT / "tests" / file).read_text(encoding="utf-8")
        assert not test or f"def {test}(" in text, f"{file} has no {test}"


def test_every_row_was_looked_at() -> None:
    assert len(ROWS) > 40
