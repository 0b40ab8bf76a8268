"""What is read is never unpickled or run: `make check` fails on a line that would do so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLANTED = {
    "import pickle": "TID251",
    "from pickle import loads": "TID251",
    "import torch\n\ntorch.load('x')": "TID251",
    "import numpy\n\nnumpy.load('x')": "TID251",
    "eval('1')": "S307",
    "exec('1')": "S102",
    "import yaml\n\nyaml.load('x', Loader=yaml.UnsafeLoader)": "S506",
    "import subprocess\n\nsubprocess.run('ls', shell=True)": "S602",
    "import os\n\nos.system('ls ' + 'x')": "S605",
    "import marshal\n\nmarshal.loads(b'')": "S302",
}


@pytest.mark.parametrize("code", PLANTED)
def test_a_planted_line_is_found(code: str) -> None:
    command = [Path(sys.executable).with_name("ruff"), "check", "--output-format", "json"]
    command += ["--stdin-filename", "src/seqloom/planted.py", "-"]
    done = subprocess.run(command, input=code + "\n", capture_output=True, text=True, cwd=ROOT, check=False)
    assert PLANTED[code] in {one["code"] for one in json.loads(done.stdout)}
    assert done.returncode == 1
