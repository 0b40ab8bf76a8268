"""A microphone that hears a file: what is said to the page reaches the run as it sounds, and is answered."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from selenium import webdriver
from starlette.requests import Request

import served_runs
from chromium import one_of, show, shows
from seqloom.serve import v1
from seqloom.serve.uploads import Upload, received
from serving import serving
from tones import tone

pytestmark = pytest.mark.xdist_group("browser")

HERTZ = 900.0


def loudest(content: bytes) -> float:
    """The frequency that a recording has most of."""
    samples, rate = soundfile.read(io.BytesIO(content))
    spectrum = np.abs(np.fft.rfft(samples))
    return float(np.fft.rfftfreq(len(samples), 1 / rate)[int(spectrum.argmax())])


def test_what_is_spoken_is_heard_and_answered(
    hearing: Callable[[Path], webdriver.Chrome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    soundfile.write(tmp_path / "spoken.wav", tone(HERTZ, 5, 48_000), 48_000, subtype="PCM_16")
    sent: list[Upload] = []

    async def kept(request: Request, most: int) -> Upload:
        sent.append(await received(request, most))
        return sent[-1]

    monkeypatch.setattr(v1, "received", kept)
    browser = hearing(tmp_path / "spoken.wav")
    show(browser)
    with serving(served_runs.sound()) as (client, _):
        browser.get(str(client.base_url))
        shows(lambda: one_of(browser, "[data-do=record]").text, "Speak")
        one_of(browser, "[data-do=record]").click()
        shows(lambda: one_of(browser, "[data-do=record]").text, "Stop")
        time.sleep(1.5)
        one_of(browser, "[data-do=record]").click()
        shows(lambda: "recording.wav" in one_of(browser, ".drop").text, True)
        shows(lambda: len(sent), 1)
        (upload,) = sent
        assert upload.name == "recording.wav"
        info = soundfile.info(io.BytesIO(upload.content))
        assert (info.format, info.subtype, info.channels) == ("WAV", "PCM_16", 1)
        assert info.duration > 0.5
        assert loudest(upload.content) == pytest.approx(HERTZ, abs=10)
        told = client.post("/v1/predict/file", files={"file": ("recording.wav", upload.content)}).json()
        shows(lambda: one_of(browser, ".output").text, told["predictions"][0]["text"] or "(nothing)")
        assert one_of(browser, ".signal canvas").is_displayed()
        assert not one_of(browser, ".panel .trouble").is_displayed()
        shows(lambda: one_of(browser, "[data-do=record]").text, "Speak")
        assert browser.get_log("browser") == []
