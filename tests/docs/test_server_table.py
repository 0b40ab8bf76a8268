"""The table of docs/server-faults.md names tests that exist, and every row of it names one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "server-faults.md"


def test_every_case_has_a_test_that_exists() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cases = [row for row in rows if not row.startswith("| case |")]
    assert len(cases) > 40
    for row in cases:
        named = re.findall(r"`(\S+\.py)::(\w+)`", row.rpartition(" | ")[2])
        assert named, f"no test: {row}"
        for file, name in named:
            tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
            assert any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body), f"{file}::{name}"
