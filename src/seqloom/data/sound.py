"""Sound: a source that is a recording, read as frames of log-mel features, one each hundredth of a second.

What stands in the data is the file's name, relative to the list that names it. A recording becomes one channel, is
brought to one sample rate, and every window of it is told by the logarithm of its energy in bands that are spaced as
we hear (Davis and Mermelstein 1980); from there on it is frames like any others, normalised, stacked and cached. In
training it may be played faster or slower (Ko et al. 2015) and be masked, another way in every epoch.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Literal, cast

import numpy as np
from pydantic import Field, model_validator

from seqloom.data.arrays import Values
from seqloom.data.clips import SUFFIXES, Clip, clips_in, required
from seqloom.data.frames import FramesCodec, FrameSettings
from seqloom.data.resampling import Samples, length_of, resampled
from seqloom.data.source import Read, SourceSettings
from seqloom.errors import SeqloomError

LOUDEST = 32_768.0  # samples are between -1 and 1; features count in steps of 16 bits, as Kaldi's do
FLOOR = 0.0  # the log-energy of less than a step: digital silence is no quieter than a quiet room
Speed = Annotated[float, Field(ge=0.25, le=4.0)]


class SoundCodec(FramesCodec):
    """A file of sound <-> normalised log-mel frames."""

    suffixes = SUFFIXES

    class Settings(FrameSettings):
        kind: Literal["sound"] = "sound"
        sample_rate: int = Field(16_000, ge=2_000, le=96_000)  # samples a second; every file is brought to it
        bands: int = Field(80, ge=4, le=256)  # F
        window: float = Field(0.025, ge=0.005, le=0.2)  # seconds that a frame hears
        shift: float = Field(0.01, ge=0.001, le=0.1)  # seconds from frame to frame
        max_seconds: float = Field(60.0, gt=0.0, le=3_600.0)  # longer sounds are refused, by their header
        speeds: tuple[Speed, ...] = ()  # of training: each time one of these is drawn, 1 being the sound as it is

        @model_validator(mode="after")
        def _hears(self) -> SoundCodec.Settings:
            if self.shift > self.window:
                raise ValueError("shift: from window to window nothing would be heard; at most as long as window")
            if self.bands > (most := int(self.sample_rate * self.window / 4)):
                raise ValueError(f"bands: a window of {self.window:g} s tells at most {most} apart; use a longer one")
            return self

    settings: Settings

    @classmethod
    def values(cls, settings: SourceSettings, path: str) -> Values:
        chosen = cast(SoundCodec.Settings, settings)
        return _heard(Clip.read(path, chosen.max_seconds), chosen)

    def count(self, path: str) -> int:
        clip = Clip.read(path, self.settings.max_seconds)
        return _frames(length_of(clip.samples, clip.rate, self.settings.sample_rate), self.settings)

    def recut(self, text: str, read: Read, rng: Random) -> Values:
        """At another speed, where one is drawn, and masked."""
        speed = rng.choice(self.settings.speeds) if self.settings.speeds else 1.0
        if speed != 1.0:
            clip = Clip.read(text, self.settings.max_seconds)
            read = self._checked(text, _heard(clip, self.settings, speed))
        return super().recut(text, read, rng)

    @property
    def samples(self) -> bool:
        return bool(self.settings.speeds) or super().samples

    @property
    def frame_rate(self) -> float | None:
        return 1 / self.settings.shift

    def inputs(self, place: str) -> list[str] | None:
        return clips_in(place)


def _heard(clip: Clip, settings: SoundCodec.Settings, speed: float = 1.0) -> Values:
    """The features of a recording, S F."""
    samples = resampled(clip.mono(), clip.rate * speed, settings.sample_rate)
    if not _frames(len(samples), settings):
        what = f"a sound of {1000 * clip.seconds:.1f} ms is too short for one frame"
        raise SeqloomError("E_DATA", what, where=clip.path, fix="take the line out of the list, or record it again")
    return np.maximum(_mel(samples, settings), np.float32(FLOOR))


def _frames(samples: int, settings: SoundCodec.Settings) -> int:
    """How many frames so many samples give: one each `shift`, the first and last of them reaching over the ends."""
    shift = int(settings.sample_rate * settings.shift)
    return (samples + shift // 2) // shift


def _mel(samples: Samples, settings: SoundCodec.Settings) -> Values:
    fbank = required("kaldi_native_fbank")
    options = fbank.FbankOptions()
    frame, mel = options.frame_opts, options.mel_opts
    frame.samp_freq, frame.dither, frame.snip_edges = settings.sample_rate, 0.0, False  # nothing is drawn in secret
    frame.frame_length_ms, frame.frame_shift_ms = 1000 * settings.window, 1000 * settings.shift
    mel.num_bins = settings.bands
    made = fbank.OnlineFbank(options)
    made.accept_waveform(settings.sample_rate, samples * np.float32(LOUDEST))
    made.input_finished()
    return np.stack([made.get_frame(place) for place in range(made.num_frames_ready)])
