"""Scripts beside the library tell how they are used, and end without a traceback where they are used otherwise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", sorted(path.name for path in (ROOT / "benchmarks").glob("*.py")))
def test_every_script_of_benchmarks_tells_how_it_is_used(script: str) -> None:
    source = (ROOT / "benchmarks" / script).read_text(encoding="utf-8")
    if "__main__" not in source:
        pytest.skip("a part of others, not a script")
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / script, "--help"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
