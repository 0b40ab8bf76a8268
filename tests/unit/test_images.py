"""Pictures as they come: modes, EXIF, sizes, damage. Whatever can be read is read upright, on white, in one size."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from PIL import Image

from seqloom.batch import Frames
from seqloom.data.augmenting import Augmentation, augmented
from seqloom.data.images import as_uri, check_picture, decoded, pictures_in
from seqloom.data.pixels import PixelsCodec
from seqloom.errors import SeqloomError
from seqloom.models.tables import ENCODERS
from seqloom.nn.frontends import FRONTENDS

RED, WHITE = [255, 0, 0], [255, 255, 255]
settings = PixelsCodec.Settings


def halves(mode: str, path: Path, **saved: object) -> Path:
    """Red above, white below, in any mode."""
    image = Image.new("RGB", (8, 8), (255, 255, 255))
    image.paste((255, 0, 0), (0, 0, 8, 4))
    image.convert(mode).save(path, **saved)
    return path


@pytest.mark.parametrize(("mode", "name"), [("RGB", "x.png"), ("P", "x.png"), ("RGBA", "x.png"), ("RGB", "x.bmp")])
def test_modes_become_red_green_and_blue(mode: str, name: str, tmp_path: Path) -> None:
    found = decoded(str(halves(mode, tmp_path / name)), (8, 8))
    assert found.shape == (8, 8, 3)
    assert found[1, 1].tolist() == RED
    assert found[6, 6].tolist() == WHITE


def test_cmyk_is_near(tmp_path: Path) -> None:
    found = decoded(str(halves("CMYK", tmp_path / "x.jpg", quality=100)), (8, 8)).astype(int)
    assert np.abs(found[1, 1] - RED).max() < 12
    assert np.abs(found[6, 6] - WHITE).max() < 12


def test_grey_has_one_channel_or_three_alike(tmp_path: Path) -> None:
    path = str(halves("L", tmp_path / "x.png"))
    assert decoded(path, (8, 8), colours="grey").shape == (8, 8, 1)
    pixel = decoded(path, (8, 8))[1, 1]
    assert pixel.tolist() == [76, 76, 76]  # 0.299 of red


def test_sixteen_bits_are_brought_to_eight(tmp_path: Path) -> None:
    values = np.array([[0, 65535], [32768, 257]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "x.png")
    assert decoded(str(tmp_path / "x.png"), (2, 2), colours="grey")[..., 0].tolist() == [[0, 255], [128, 1]]


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.putpixel((0, 0), (0, 0, 0, 255))
    image.save(tmp_path / "x.png")
    found = decoded(str(tmp_path / "x.png"), (4, 4))
    assert found[0, 0].tolist() == [0, 0, 0]
    assert found[2, 2].tolist() == WHITE
    palette = Image.new("P", (4, 4), 0)
    palette.putpalette([0, 0, 0, 9, 9, 9])
    palette.save(tmp_path / "p.gif", transparency=0)
    assert decoded(str(tmp_path / "p.gif"), (4, 4))[2, 2].tolist() == WHITE


@pytest.mark.parametrize(("orientation", "red"), [(1, (1, 4)), (3, (6, 4)), (6, (4, 6)), (8, (4, 1))])
def test_exif_turns_it(orientation: int, red: tuple[int, int], tmp_path: Path) -> None:
    image = Image.new("RGB", (8, 8), (255, 255, 255))
    image.paste((255, 0, 0), (0, 0, 8, 4))
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(tmp_path / "x.png", exif=exif)
    found = decoded(str(tmp_path / "x.png"), (8, 8))
    assert found[red].tolist() == RED
    assert found[7 - red[0], 7 - red[1]].tolist() == WHITE or red[1] == 4


@pytest.mark.parametrize(("fit", "corner", "middle"), [("crop", RED, RED), ("pad", WHITE, RED), ("squash", RED, RED)])
def test_fits(fit: str, corner: list[int], middle: list[int], tmp_path: Path) -> None:
    Image.new("RGB", (32, 8), (255, 0, 0)).save(tmp_path / "x.png")
    found = decoded(str(tmp_path / "x.png"), (16, 16), fit)  # type: ignore[arg-type]
    assert found[0, 0].tolist() == corner
    assert found[8, 8].tolist() == middle


def bomb(path: Path) -> None:
    """20,000 x 20,000 by its head; there are no pixels behind it."""
    head = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(b"")), (b"IEND", b""))
    parts = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))


def truncated(path: Path) -> None:
    image = Image.fromarray(np.random.default_rng(1).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    image.save(path.with_name("whole.png"))
    path.write_bytes(path.with_name("whole.png").read_bytes()[:4000])


FAULTS = {
    "text": (lambda path: path.write_text("hello"), "E_DATA", "not a picture"),
    "empty": (lambda path: path.write_bytes(b""), "E_DATA", "not a picture"),
    "missing": (lambda path: None, "E_FILE", "No such file"),
    "folder": (lambda path: path.mkdir(), "E_FILE", "a folder, not a file"),
    "bomb": (bomb, "E_DATA", "a picture of 20,000 x 20,000 pixels: at most 64,000,000 are read"),
    "truncated": (truncated, "E_DATA", "a damaged picture"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_no_picture_says_so(name: str, tmp_path: Path) -> None:
    spoil, code, said = FAULTS[name]
    path = tmp_path / "x.png"
    spoil(path)
    with pytest.raises(SeqloomError) as caught:
        decoded(str(path), (8, 8))
    assert (caught.value.code, caught.value.where) == (code, str(path))
    assert said in caught.value.what
    if name == "bomb":
        with pytest.raises(SeqloomError, match="20,000 x 20,000"):
            check_picture(str(path))


def test_folders_and_names(tmp_path: Path) -> None:
    for name in ("b.PNG", "a.jpg", "note.txt"):
        (tmp_path / name).write_text("")
    assert pictures_in(str(tmp_path)) == [str(tmp_path / "a.jpg"), str(tmp_path / "b.PNG")]
    assert pictures_in("list.tsv") is None
    assert pictures_in("x.jpeg") == ["x.jpeg"]


def codec(tmp_path: Path, **wanted: object) -> tuple[PixelsCodec, str]:
    rng = np.random.default_rng(3)
    paths = []
    for number in range(3):
        Image.fromarray(rng.integers(0, 255, (16, 16, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
        paths.append(str(tmp_path / f"{number}.png"))
    return PixelsCodec.train(settings(size=16, region=4, **wanted), lambda: iter(paths), 1), paths[0]


def test_training_pictures_have_mean_0_and_deviation_1(tmp_path: Path) -> None:
    made, _ = codec(tmp_path)
    read = np.stack([made.cut(str(tmp_path / f"{number}.png")) for number in range(3)]).reshape(-1, 3)
    assert np.abs(read.mean(0)).max() < 1e-5
    assert np.abs(read.std(0) - 1).max() < 1e-5


def test_regions_stand_row_by_row_and_become_the_picture_again(tmp_path: Path) -> None:
    made, path = codec(tmp_path)
    read = made.cut(path)
    assert read.shape == (16, 4 * 4 * 3)
    assert made.labels(read)[:5] == ["1,1", "1,2", "1,3", "1,4", "2,1"]
    picture = made._picture(read)
    pixels = (decoded(path, (16, 16)) / 255 - made.mean) / made.deviation
    np.testing.assert_allclose(picture, pixels, atol=1e-5)
    np.testing.assert_allclose(read[1].reshape(4, 4, 3), pixels[:4, 4:8], atol=1e-5)


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    made, path = codec(tmp_path)
    made.save(tmp_path)
    again = PixelsCodec.load(made.settings, tmp_path)
    assert np.array_equal(again.cut(path), made.cut(path))
    assert not again.difference(made)
    (tmp_path / "pixels.json").write_text('{"mean": [1], "deviation": [0]}')
    with pytest.raises(SeqloomError, match="E_BUNDLE"):
        PixelsCodec.load(made.settings, tmp_path)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"size": 20, "region": 8}, "use 16 or 24"),
        ({"region": 6}, "power of two"),
        ({"size": [16, 32], "augment": {"turn": True}}, "only squares"),
    ],
)
def test_sizes_that_cannot_be(wrong: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        settings.model_validate({"kind": "pixels", **wrong})


ALL = {"flip": "both", "turn": True, "shift": 0.2, "zoom": 0.3, "brightness": 0.5, "contrast": 0.3, "erase": 0.4}


def test_variation_comes_from_the_rng_alone(tmp_path: Path) -> None:
    made, path = codec(tmp_path, augment=ALL)
    read = made.cut(path)
    assert made.varies
    one, same, other = (made.varied(read, Random(seed)) for seed in ("1 2 3", "1 2 3", "1 3 3"))
    assert np.array_equal(one, same)
    assert not np.array_equal(one, other)
    assert one.shape == read.shape
    assert np.array_equal(made.cut(path), read), "what is read is never changed"


@pytest.mark.parametrize("key", ALL)
def test_each_change_is_a_change_of_its_own(key: str) -> None:
    picture = np.random.default_rng(1).normal(size=(8, 8, 3)).astype(np.float32)
    changed = [augmented(picture, Augmentation.model_validate({key: ALL[key]}), Random(seed)) for seed in range(5)]
    assert any(not np.array_equal(one, picture) for one in changed)
    assert np.array_equal(augmented(picture, Augmentation(), Random(1)), picture)
    if key in ("flip", "turn"):
        assert all(np.allclose(np.sort(one.ravel()), np.sort(picture.ravel())) for one in changed)
    if key == "erase":
        assert any((one == 0).any() for one in changed)


def test_a_page_gets_the_picture_as_the_model_sees_it(tmp_path: Path) -> None:
    uri = as_uri(str(halves("RGB", tmp_path / "x.png")), (8, 8), "crop", "rgb")
    assert uri.startswith("data:image/png;base64,")


def test_a_network_makes_one_state_of_every_region_whatever_its_size() -> None:
    for region, blocks in ((2, 1), (4, 2), (16, 1)):
        front = FRONTENDS.build(
            FRONTENDS.settings({"kind": "regions", "rows": 3, "columns": 2, "region": region}), vocabulary=0
        )
        encoder = ENCODERS.build(ENCODERS.settings({"kind": "cnn", "width": 12, "blocks": blocks}), embedding=front)
        picture = torch.randn(2, 7, front.width)
        memory = encoder(Frames(picture, torch.ones(2, 7, dtype=torch.bool)))
        assert memory.states.shape == (2, 7, 12)
        assert memory.summary[0][0].shape == (2, 12)


def test_planes_are_the_picture_again(tmp_path: Path) -> None:
    made, path = codec(tmp_path)
    front = FRONTENDS.build(FRONTENDS.settings({**made.settings.suits()["source_embedding"]}), vocabulary=0)
    read = torch.from_numpy(made.cut(path))[None]
    np.testing.assert_array_equal(front.planes(read)[0].permute(1, 2, 0).numpy(), made._picture(made.cut(path)))
