"""Pictures and sounds in a study: known by path and hash, told by their contents, shown to its raters alone."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import soundfile
from PIL import Image

from rated_files import file_study, listed
from rating import material, serving, study
from seqloom.data.examples import Example
from seqloom.errors import SeqloomError
from seqloom.rate.media import content, media_of
from seqloom.rate.store import Store


@pytest.fixture(params=["picture", "sound"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_a_study_keeps_whole_paths_and_hashes(tmp_path: Path, kind: str) -> None:
    with Store(file_study(tmp_path, kind)) as store:
        files = [item.media for item in store.plan.items]
    assert {one.kind for one in files if one} == {kind}
    for item, file in zip(store.plan.items, files, strict=True):
        assert file is not None
        assert Path(file.path).is_absolute()
        assert content(file) == (tmp_path / item.source).read_bytes()
        assert file.type == {"picture": "image/png", "sound": "audio/wav"}[kind]


def test_raters_are_sent_the_file_and_not_its_name(tmp_path: Path, kind: str) -> None:
    with serving(file_study(tmp_path, kind)) as served, served.client() as client:
        told = client.get("/api/tasks/1").json()
        assert (told["media"], told["source"]) == (kind, "")
        sent = client.get("/api/tasks/1/media")
        assert sent.headers["content-type"] in ("image/png", "audio/wav")
        assert sent.headers["x-content-type-options"] == "nosniff"
        assert sent.content in [
            path.read_bytes() for path in tmp_path.rglob("*.???") if path.suffix in (".png", ".wav")
        ]


def test_studies_of_texts_are_as_they_were(tmp_path: Path) -> None:
    with closing(sqlite3.connect(study(tmp_path / "texts", material()))) as file:
        kept = dict(file.execute("SELECT key, value FROM study"))
    assert kept["format"] == "1"
    with closing(sqlite3.connect(file_study(tmp_path, "picture"))) as file:
        kept = dict(file.execute("SELECT key, value FROM study"))
    assert kept["format"] == "2", "an older seqloom says that it needs a newer one"


def test_contents_tell_what_a_file_is(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    for form, kind in (("JPEG", "image/jpeg"), ("WEBP", "image/webp"), ("BMP", "image/bmp")):
        Image.new("RGB", (4, 4), (200, 0, 0)).save(path, form)
        found = media_of(Example(str(path), (), "list", 1), "picture")
        assert (found.type, found.converted) == (kind, False)
    for form in ("TIFF", "GIF", "PPM"):  # of which browsers draw only one, and that may move
        Image.new("RGB", (4, 6), (200, 0, 0)).save(path, form)
        found = media_of(Example(str(path), (), "list", 1), "picture")
        sent = content(found)
        assert sent.startswith(b"\x89PNG") == found.converted
    frames = [Image.new("RGB", (4, 4), (shade, 0, 0)) for shade in (0, 250)]
    frames[0].save(path, "WEBP", save_all=True, append_images=frames[1:], lossless=True)
    found = media_of(Example(str(path), (), "list", 1), "picture")
    assert content(found).startswith(b"\x89PNG"), "a model reads the first picture of an animation"


def test_sounds_that_browsers_do_not_know_are_sent_as_wav(tmp_path: Path) -> None:
    wave = (0.3 * np.sin(np.arange(800) / 5)).astype(np.float32)
    for form, coding, converted in (
        ("FLAC", "PCM_16", False),
        ("OGG", "VORBIS", False),
        ("MP3", "MPEG_LAYER_III", False),
        ("WAV", "PCM_24", False),
        ("WAV", "MS_ADPCM", True),
        ("AIFF", "PCM_16", True),
        ("AU", "ULAW", True),
    ):
        path = tmp_path / "x.wav"
        soundfile.write(path, wave, 8000, format=form, subtype=coding)
        found = media_of(Example(str(path), (), "list", 1), "sound")
        assert (form, found.converted) == (form, converted)
        if converted:
            (tmp_path / "y.wav").write_bytes(content(found))
            again, rate = soundfile.read(tmp_path / "y.wav")
            assert (rate, found.type) == (8000, "audio/wav")
            assert np.abs(again[:800] - wave[: len(again)]).max() < 0.1


def test_what_else_is_asked_stands_beside_a_picture(tmp_path: Path) -> None:
    listed(tmp_path, "picture")
    example = Example(str(tmp_path / "blocks/0.png"), (), "list", 1, {"question": "what colour?"})
    assert media_of(example, "picture").caption == "what colour?"


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda path: path.unlink(), "E_FILE"),
        (lambda path: path.write_bytes(path.read_bytes() + b"x"), "E_DATA"),
        (lambda path: path.write_bytes(bytes(len(path.read_bytes()))), "E_DATA"),
        (lambda path: (path.unlink(), path.symlink_to("/etc/hostname")), "E_DATA"),
        (lambda path: (path.unlink(), path.mkdir()), "E_FILE"),
    ],
)
def test_a_file_that_changed_is_not_sent(tmp_path: Path, spoil: object, code: str) -> None:
    with Store(file_study(tmp_path, "picture")) as store:
        media = store.plan.items[0].media
    assert media is not None
    spoil(Path(media.path))  # type: ignore[operator]
    with pytest.raises(SeqloomError) as refused:
        content(media)
    assert refused.value.code == code
