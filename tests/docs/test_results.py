"""The numbers of README and docs are those of the files that scripts wrote."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tables_are_what_the_result_files_say() -> None:
    done = subprocess.run([sys.executable, ROOT / "docs" / "results.py", "--check"], check=False)
    assert done.returncode == 0, "run: python docs/results.py"
