"""Sounds in files (WAV, FLAC, OGG, MP3), decoded by soundfile without trusting them: the header decides what is read.

What comes out is one channel of finite numbers between -1 and 1, however many channels and bits the file has. A file
that says it is too long is refused before anything is decoded. This file knows nothing of models or recipes.
"""

from __future__ import annotations

import importlib
import io
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np

from seqloom.data.resampling import Samples
from seqloom.data.source import check_file
from seqloom.errors import SeqloomError

SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3", ".aiff", ".aif", ".au")
FORMATS = "WAV, FLAC, OGG and MP3 are read"
LOWEST, HIGHEST = 1_000, 768_000  # samples a second
MOST_CHANNELS = 32
INSTALL = "pip install 'seqloom[audio]'"


def required(name: str) -> ModuleType:
    """A package of the extra `audio`; E_EXTRA where it is not installed."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:  # OSError: soundfile is there, and its library is not
        what = f"sound needs the package {name.replace('_', '-')} ({error})"
        raise SeqloomError("E_EXTRA", what, fix=INSTALL) from None


@dataclass(frozen=True)
class Clip:
    """What a file says of its sound: samples of each channel, and how many make a second."""

    path: str
    samples: int
    rate: int
    channels: int
    form: str = ""  # what it is by its contents, as soundfile calls it: WAV
    coding: str = ""  # of its samples: PCM_16

    @classmethod
    def read(cls, path: str, max_seconds: float) -> Clip:
        """E_FILE where nothing can be read; E_DATA for what is no sound, or none that can be listened to."""
        soundfile = required("soundfile")
        found = check_file(path)
        if not found.st_size:
            raise SeqloomError("E_DATA", "an empty file", where=path, fix=f"write it again; {FORMATS}")
        try:
            info = soundfile.info(path)
        except soundfile.SoundFileError as error:
            what = f"not a sound ({_reason(error)})"
            raise SeqloomError("E_DATA", what, where=path, fix=f"{FORMATS}: convert it, or mend its name") from None
        clip = cls(path, int(info.frames), int(info.samplerate), int(info.channels), info.format, info.subtype)
        clip._check(max_seconds)
        return clip

    def _check(self, max_seconds: float) -> None:
        if self.samples < 1:
            what, fix = "a sound of zero length", "take the line out of the list, or record it again"
        elif not LOWEST <= self.rate <= HIGHEST:
            what = f"{self.rate:,} samples a second"
            fix = f"{LOWEST:,} to {HIGHEST:,} are read: mend the file's header, or convert it"
        elif self.channels > MOST_CHANNELS:
            what, fix = f"{self.channels} channels", f"at most {MOST_CHANNELS} are read: mix them"
        elif self.seconds > max_seconds:
            what = f"a sound of {self.seconds:,.0f} seconds, at most {max_seconds:g} are read"
            fix = "cut it at pauses, or set a larger source.max_seconds in training"
        else:
            return
        raise SeqloomError("E_DATA", what, where=self.path, fix=fix)

    @property
    def seconds(self) -> float:
        return self.samples / self.rate

    @property
    def is_plain(self) -> bool:
        """Is it coded as everything that plays sounds understands?"""
        return self.form != "WAV" or self.coding.startswith("PCM") or self.coding == "FLOAT"

    def as_wav(self) -> bytes:
        """Its sound as one channel of 16 bits, which everything plays."""
        soundfile = required("soundfile")
        buffer = io.BytesIO()
        soundfile.write(buffer, self.mono().clip(-1, 1), self.rate, format="WAV", subtype="PCM_16")
        return buffer.getvalue()

    def mono(self) -> Samples:
        """The mean of all channels."""
        soundfile = required("soundfile")
        try:
            values, _ = soundfile.read(self.path, frames=self.samples, dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, OSError) as error:
            what = f"its sound cannot be decoded ({_reason(error)})"
            fix = "the file was not written or copied whole: write it again"
            raise SeqloomError("E_DATA", what, where=self.path, fix=fix) from None
        if not len(values):
            what = f"its header tells of {self.samples:,} samples, and there are none"
            raise SeqloomError("E_DATA", what, where=self.path, fix="write it again, or take the line out of the list")
        mixed: Samples = values.mean(1)
        if not np.isfinite(mixed).all():
            first = int(np.argmin(np.isfinite(mixed)))
            what = f"a sample that is no finite number, at {first / self.rate:.3f} s"
            raise SeqloomError("E_DATA", what, where=self.path, fix="mend the file, or take the line out of the list")
        return mixed


def _reason(error: Exception) -> str:
    """The library's own words, without the path."""
    return str(error).rpartition(": ")[2].strip().rstrip(".").lower() or type(error).__name__


def clips_in(place: str) -> list[str] | None:
    """The sound that a file is by its name, or those of a folder in the order of names; None for anything else."""
    path = Path(place)
    if not path.is_dir():
        return [place] if path.suffix.lower() in SUFFIXES else None
    found = sorted(str(one) for one in path.iterdir() if one.suffix.lower() in SUFFIXES)
    if not found:
        fix = f"names of sounds end in {', '.join(SUFFIXES)}"
        raise SeqloomError("E_FILE", "the folder holds no sounds", where=place, fix=fix)
    return found
