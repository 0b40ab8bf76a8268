"""The peers' environments: one each, made on first use, with versions that are known to work together.

torch comes first and stays: peers that ask for another one would bring gigabytes of it.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from dataclasses import dataclass, field
from pathlib import Path

TORCH = "torch==2.13.0"
NUMPY = "numpy==2.4.6"
MARK = "installed.txt"


@dataclass(frozen=True)
class Environment:
    """What is installed: `alone` without what it asks for, then `packages`, then `unwanted` is removed."""

    packages: tuple[str, ...]
    alone: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)


ENVIRONMENTS = {
    "marian": Environment(("transformers==5.22.2", "accelerate==1.15.0")),
    "ctranslate2": Environment(("ctranslate2==4.8.4",)),
    "eole": Environment(("eole==0.6.4", "pyonmttok==1.38.1", "aiohttp==3.14.5")),
    "opennmt": Environment(
        (
            "configargparse==1.9.0",
            "ctranslate2==4.8.4",
            "fasttext-wheel==0.9.2",
            "flask==3.1.3",
            "pyahocorasick==2.3.1",
            "pyonmttok==1.38.1",
            "pyyaml==6.0.3",
            "rapidfuzz==3.14.6",
            "sacrebleu==2.6.0",
            "sentencepiece==0.2.2",
            "setuptools==80.10.2",
            "six==1.17.0",
            "spacy==3.8.18",
            "tensorboard==2.21.0",
            "waitress==3.0.2",
        ),
        alone=("OpenNMT-py==3.5.1",),
        variables={"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"},
    ),
    "joeynmt": Environment(("joeynmt==2.3.0", "importlib_metadata==10.2.0")),
    "yoyodyne": Environment(("yoyodyne==0.5.27", "lightning==2.6.6"), unwanted=("torchvision", "torchaudio")),
}


def python(name: str, folder: Path) -> Path:
    """The interpreter of a contender: its own environment's, or this one for scripts without."""
    if name not in ENVIRONMENTS:
        return Path(sys.executable)
    place = folder / name
    wanted = repr((TORCH, NUMPY, ENVIRONMENTS[name]))
    if not (place / MARK).exists() or (place / MARK).read_text() != wanted:
        print(f"installing {name}: some minutes", file=sys.stderr)
        _install(ENVIRONMENTS[name], place)
        (place / MARK).write_text(wanted)
    return place / "bin" / "python"


def _install(environment: Environment, place: Path) -> None:
    venv.create(place, clear=True, with_pip=True)
    constraints = place / "constraints.txt"
    constraints.write_text(f"{TORCH}\n{NUMPY}\n")
    pip = [str(place / "bin" / "python"), "-m", "pip", "--quiet", "--disable-pip-version-check"]
    install = [*pip, "install", "--constraint", str(constraints)]
    subprocess.run([*pip, "install", TORCH, NUMPY], check=True)
    if environment.alone:
        subprocess.run([*install, "--no-deps", *environment.alone], check=True)
    subprocess.run([*install, *environment.packages], check=True)
    if environment.unwanted:
        subprocess.run([*pip, "uninstall", "--yes", *environment.unwanted], check=True)
