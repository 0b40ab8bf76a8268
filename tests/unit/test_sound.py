"""A recording becomes the same frames whatever file it is in; training hears it another way in every epoch."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
import soundfile

from seqloom.data.masking import Masks
from seqloom.data.resampling import length_of, resampled
from seqloom.data.sound import SoundCodec
from seqloom.errors import SeqloomError
from tones import tone

RATE = 16_000


def codec(paths: list[Path], **settings: object) -> SoundCodec:
    chosen = SoundCodec.Settings.model_validate({"bands": 20, **settings})
    return SoundCodec.train(chosen, lambda: map(str, paths), 1)


def chord(rate: int, seconds: float = 0.5) -> np.ndarray:
    return tone(500, seconds, rate) + tone(1300, seconds, rate, 0.2)


# --- resampling --------------------


@pytest.mark.parametrize(("given", "wanted"), [(96_000, 16_000), (44_100, 16_000), (8_000, 16_000), (16_000, 17_600)])
def test_a_tone_stays_the_tone_at_another_rate(given: int, wanted: int) -> None:
    made, expected = resampled(tone(440, 0.5, given), given, wanted), tone(440, 0.5, wanted)
    assert len(made) == length_of(given // 2, given, wanted)
    middle = slice(len(made) // 4, len(made) // 2)
    assert np.abs(made[middle] - expected[middle]).max() < 2e-3


def test_what_the_lower_rate_cannot_tell_is_gone() -> None:
    """A tone of 6 kHz would be heard as one of 2 kHz at 8,000 samples a second."""
    assert np.abs(resampled(tone(6_000, 0.5, 48_000), 48_000, 8_000))[200:-200].max() < 1e-3


def test_the_same_rate_changes_nothing() -> None:
    samples = tone(440, 0.1)
    assert resampled(samples, 8_000, 8_000) is samples


# --- files --------------------

KINDS = {
    "8.wav": {"subtype": "PCM_U8"},
    "16.wav": {"subtype": "PCM_16"},
    "24.wav": {"subtype": "PCM_24"},
    "32.wav": {"subtype": "FLOAT"},
    "64.wav": {"subtype": "DOUBLE"},
    "sound.flac": {},
    "sound.ogg": {},
    "sound.mp3": {},
}


@pytest.mark.parametrize("name", KINDS)
def test_every_format_tells_the_same(name: str, tmp_path: Path) -> None:
    first, other = tmp_path / "first.wav", tmp_path / name
    soundfile.write(first, chord(RATE), RATE, subtype="FLOAT")
    soundfile.write(other, chord(RATE), RATE, **KINDS[name])
    values, again = (SoundCodec.values(SoundCodec.Settings(bands=20), str(path)) for path in (first, other))
    assert abs(len(values) - len(again)) <= 2  # MP3 is a whole number of its own frames
    heard = values.mean(0) > values.mean(0).max() - 5  # the bands of the tones
    middle = slice(10, 40)
    assert np.abs(values[middle, heard] - again[middle, heard]).max() < 0.3, name


@pytest.mark.parametrize("rate", [8_000, 22_050, 44_100, 48_000, 96_000])
def test_every_rate_and_channel_tells_the_same(rate: int, tmp_path: Path) -> None:
    soundfile.write(tmp_path / "one.wav", chord(RATE), RATE)
    left = chord(rate)
    soundfile.write(tmp_path / "two.wav", np.stack([1.5 * left, 0.5 * left], axis=1), rate)
    values, again = (
        SoundCodec.values(SoundCodec.Settings(bands=20), str(tmp_path / f"{name}.wav")) for name in ("one", "two")
    )
    assert values.shape == again.shape
    heard = values.mean(0) > values.mean(0).max() - 5
    assert np.abs(values[5:45, heard] - again[5:45, heard]).max() < 0.1


def test_length_is_told_by_the_header(tmp_path: Path) -> None:
    for number, (seconds, rate) in enumerate([(0.5, 8_000), (0.123, 44_100), (1.0, 16_000), (0.006, 16_000)]):
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, tone(300, seconds, rate), rate)
        for stack in (1, 3):
            made = codec([path], stack=stack)
            assert made.length(str(path)) == len(made.cut(str(path)))


def test_frames_are_normalised_and_named_by_their_time(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.wav" for number in range(3)]
    for number, path in enumerate(paths):
        soundfile.write(path, chord(RATE) * (number + 1) / 3 + np.random.default_rng(1).normal(0, 0.1, RATE // 2), RATE)
    made = codec(paths)
    values = np.concatenate([made.cut(str(path)) for path in paths])
    assert np.abs(values.mean(0)).max() < 1e-4
    assert np.abs(values.std(0) - 1).max() < 1e-3
    assert made.labels(values)[:3] == ["0.00s", "0.01s", "0.02s"]
    assert made.size == 20
    made.save(tmp_path)
    again = SoundCodec.load(made.settings, tmp_path)
    assert np.array_equal(again.cut(str(paths[0])), made.cut(str(paths[0])))


def test_digital_silence_is_finite(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "a.wav", np.zeros(8_000), RATE)
    assert np.isfinite(codec([tmp_path / "a.wav"]).cut(str(tmp_path / "a.wav"))).all()


# --- what training hears --------------------


def test_speed_and_masks_are_drawn_from_the_rng_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, chord(RATE) + np.random.default_rng(1).normal(0, 0.1, RATE // 2), RATE)
    made = codec([path], speeds=[0.8, 1.0, 1.25], augment={"time_masks": 1, "feature_masks": 1})
    assert made.samples
    plain = made.cut(str(path))
    drawn = [made.recut(str(path), plain, Random(seed)) for seed in range(12)]
    assert {len(one) for one in drawn} == {40, 50, 63}  # frames at 1.25, 1 and 0.8 times the speed
    assert all(np.array_equal(one, made.recut(str(path), plain, Random(n))) for n, one in enumerate(drawn))
    assert np.array_equal(plain, made.cut(str(path)))


def test_without_speeds_the_file_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "a.wav"
    soundfile.write(path, chord(RATE), RATE)
    made = codec([path], stack=3, augment={"time_masks": 2, "time_width": 9})
    plain = made.cut(str(path))
    path.unlink()
    again = made.recut(str(path), plain, Random(3))
    assert again.shape == plain.shape
    assert not np.array_equal(again, plain)


def test_masks_are_stretches_of_zero_within_their_widths() -> None:
    values = np.ones((100, 30), np.float32)
    masks = Masks(time_masks=1, time_width=40, time_share=0.1, feature_masks=1, feature_width=5)
    for seed in range(50):
        masked = masks.masked(values, Random(seed))
        times, bands = (masked == 0).all(1), (masked == 0).all(0)
        assert times.sum() <= 10
        assert bands.sum() <= 5
        assert (masked == 0).sum() == times.sum() * 30 + bands.sum() * 100 - times.sum() * bands.sum()
        for hidden in (times, bands):
            assert np.abs(np.diff(hidden.astype(int))).sum() <= 2  # in one piece
    assert values.all(), "what was given is left as it is"


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soundfile.write(tmp_path / "a.wav", chord(RATE), RATE)
    for name in ("kaldi_native_fbank", "soundfile"):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(SeqloomError) as refused:
            codec([tmp_path / "a.wav"])
        assert refused.value.code == "E_EXTRA"
        assert name.replace("_", "-") in refused.value.what
        assert refused.value.fix == "pip install 'seqloom[audio]'"
