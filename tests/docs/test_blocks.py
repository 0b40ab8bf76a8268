"""Every command block and Python block of README and docs runs, in order, in an empty folder.

Three comments steer this, each on the line before a block and invisible to readers:
    <!-- docs-test: skip because REASON -->        the block is not run
    <!-- docs-test: instead COMMAND -->            a quicker command runs in its place
    <!-- docs-test: fails with CODE -->            the block must end with that exit code
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/howto").glob("*.md"))]
DOCUMENTS += sorted((ROOT / "docs/gallery").glob("*.md"))
BLOCK = re.compile(
    r"(?:<!-- docs-test: (?P<directive>.+?) -->\s*\n)?^```(?P<language>\w+)[^\n]*\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    directive: str
    line: int


def blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    return [
        Block(m["language"], m["body"], m["directive"] or "", text.count("\n", 0, m.start("body")))
        for m in BLOCK.finditer(text)
    ]


def run_shell(command: str, folder: Path, expected: int, where: str) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == expected, f"{where}\n$ {command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_blocks_run(document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {}
    for block in blocks(document):
        where = f"{document.name}:{block.line}"
        if block.directive.startswith("skip because "):
            continue
        if block.language in ("sh", "bash", "console"):
            command = block.directive.removeprefix("instead ") if block.directive.startswith("instead ") else block.body
            code = int(block.directive.split()[-1]) if block.directive.startswith("fails with ") else 0
            run_shell(command, tmp_path, code, where)
        elif block.language == "python":
            exec(compile(block.body, where, "exec"), namespace)  # noqa: S102 - our own documents


def test_local_links_lead_somewhere() -> None:
    for document in [*DOCUMENTS, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
