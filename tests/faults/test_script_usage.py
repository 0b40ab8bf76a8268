"""Scripts beside the library can be imported, and tell how they are used instead of ending in a traceback."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.parametrize("script", sorted(path.name for path in FOLDER.glob("*.py")))
def test_every_script_of_benchmarks_tells_how_it_is_used(
    script: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "__main__" not in (FOLDER / script).read_text(encoding="utf-8"):
        pytest.skip("a part of others, not a script")
    monkeypatch.syspath_prepend(str(FOLDER))
    monkeypatch.setattr(sys, "argv", [script, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(FOLDER / script), run_name="__main__")
    assert ended.value.code == 0
    assert "usage:" in capsys.readouterr().out
