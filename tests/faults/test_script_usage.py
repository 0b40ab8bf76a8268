"""Scripts beside the library can be imported, and tell how they are used instead of ending in a traceback."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(path.relative_to(ROOT) for folder in ("benchmarks", "recipes") for path in (ROOT / folder).glob("*.py"))
SCRIPTS = [
    file for file in FILES if "__main__" in (ROOT / file).read_text(encoding="utf-8")
]  # others are parts of them


@pytest.mark.parametrize("script", SCRIPTS, ids=str)
def test_every_script_tells_how_it_is_used(
    script: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str((ROOT / script).parent))
    monkeypatch.setattr(sys, "argv", [script.name, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(ROOT / script), run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out
