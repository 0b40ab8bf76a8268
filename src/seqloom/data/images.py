"""Pictures in files, decoded by Pillow without trusting them: the size is looked at before a pixel is.

What comes out is upright (EXIF), in red, green and blue (or grey), on white where it was transparent, and of the asked
size. Of an animation it is the first picture. This file knows nothing of models or recipes.
"""

from __future__ import annotations

import base64
import io
import struct
import warnings
import zlib
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from seqloom.data.source import check_file
from seqloom.errors import SeqloomError

if TYPE_CHECKING:
    from PIL.Image import Image

SUFFIXES = (".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MAX_PIXELS = 64_000_000  # of one picture, before it is resized; decoded it takes three bytes for each
SHOWN = 256  # pixels of the longer side of a picture on a page
INSTALL = "pip install 'seqloom[image]'"
WHITE = (255, 255, 255, 255)

Fit = Literal["crop", "pad", "squash"]
Colours = Literal["rgb", "grey"]
Pixels = npt.NDArray[np.uint8]  # H W C

# What decoders raise for files that are not what they say: Pillow promises OSError, its plugins keep no promise.
_BROKEN = (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, TypeError, struct.error, zlib.error)
_opening = Lock()  # Pillow's own bound on sizes is one for all, and does not tell width and height


def decoded(path: str, size: tuple[int, int], fit: Fit = "crop", colours: Colours = "rgb") -> Pixels:
    """The picture of a file at this height and width; E_FILE or E_DATA, with the path, for what is none."""
    resized = _fitted(_upright(path, size), size, fit)
    pixels = np.asarray(resized.convert("RGB" if colours == "rgb" else "L"), dtype=np.uint8)
    return pixels.reshape(*size, -1)


def check_picture(path: str) -> tuple[int, int]:
    """Height and width by the file's head alone; E_FILE or E_DATA as `decoded` has it."""
    with _opened(path) as image:
        return image.height, image.width


def as_uri(path: str, size: tuple[int, int], fit: Fit, colours: Colours) -> str:
    """What a model sees of a file as a data URI, finer than it sees it, for a page that has no files beside it."""
    scale = max(1, SHOWN // max(size))
    from PIL import Image

    pixels = decoded(path, (size[0] * scale, size[1] * scale), fit, colours)
    buffer = io.BytesIO()
    Image.fromarray(pixels.squeeze(-1) if pixels.shape[-1] == 1 else pixels).save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def still_format(path: str) -> str:
    """What a file is by its contents, as Pillow calls it (PNG); empty for an animation, which is read in part only."""
    with _opened(path) as image:
        return "" if getattr(image, "is_animated", False) else image.format or ""


def as_png(path: str) -> bytes:
    """The picture of a file as it is, upright, in a form that every browser knows."""
    with _opened(path) as image:
        size = image.height, image.width
    buffer = io.BytesIO()
    _upright(path, size).save(buffer, "PNG")
    return buffer.getvalue()


def pictures_in(place: str) -> list[str] | None:
    """The picture that a file is by its name, or those of a folder in the order of names; None for anything else."""
    path = Path(place)
    if not path.is_dir():
        return [place] if path.suffix.lower() in SUFFIXES else None
    found = sorted(str(one) for one in path.iterdir() if one.suffix.lower() in SUFFIXES)
    if not found:
        fix = f"names of pictures end in {', '.join(SUFFIXES)}"
        raise SeqloomError("E_FILE", "the folder holds no pictures", where=place, fix=fix)
    return found


def require() -> None:
    """E_EXTRA where Pillow is not installed."""
    try:
        import PIL  # noqa: F401
    except ImportError:
        raise SeqloomError("E_EXTRA", "pictures need Pillow, which is not installed", fix=INSTALL) from None


def _opened(path: str) -> Image:
    require()
    from PIL import Image, UnidentifiedImageError

    check_file(path)
    with _opening:
        bound, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None
        try:
            image = Image.open(path)
        except UnidentifiedImageError:
            fix = "save it as JPEG or PNG, or take it out of the list"
            raise SeqloomError("E_DATA", "not a picture", where=path, fix=fix) from None
        except _BROKEN as error:
            raise _damaged(path, error) from None
        finally:
            Image.MAX_IMAGE_PIXELS = bound
    if image.width * image.height > MAX_PIXELS:
        what = f"a picture of {image.width:,} x {image.height:,} pixels: at most {MAX_PIXELS:,} are read"
        image.close()
        raise SeqloomError("E_DATA", what, where=path, fix="make it smaller, or take it out of the list")
    return image


def _upright(path: str, size: tuple[int, int]) -> Image:
    """Decoded, turned as its EXIF says, and without transparency."""
    from PIL import ImageOps

    with _opened(path) as image, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd EXIF and palettes: nothing that a person could do about
        try:
            image.draft("RGB", (2 * max(size), 2 * max(size)))  # a JPEG can be decoded smaller than it is
            image.load()
        except (MemoryError, *_BROKEN) as error:
            raise _damaged(path, error) from None
        try:
            turned: Image = ImageOps.exif_transpose(image)
        except _BROKEN:  # damaged EXIF says nothing
            turned = image
        return _on_white(turned)


def _on_white(image: Image) -> Image:
    from PIL import Image as Images

    if image.mode.startswith(("I", "F")):  # 16 bits and more: brought to 8
        values = np.asarray(image, dtype=np.float64)
        full = 65535.0 if image.mode.startswith("I") else max(float(values.max(initial=0.0)), 1e-9)
        return Images.fromarray(np.clip(values / full * 255, 0, 255).round().astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        above = image.convert("RGBA")
        return Images.alpha_composite(Images.new("RGBA", above.size, WHITE), above).convert("RGB")
    return image.convert("RGB")


def _fitted(image: Image, size: tuple[int, int], fit: Fit) -> Image:
    from PIL import Image as Images
    from PIL import ImageOps

    wanted, how = (size[1], size[0]), Images.Resampling.BICUBIC
    if image.size == wanted:
        return image
    if fit == "crop":
        return ImageOps.fit(image, wanted, how)
    return image.resize(wanted, how) if fit == "squash" else ImageOps.pad(image, wanted, how, color=_plain(image))


def _plain(image: Image) -> int | tuple[int, int, int]:
    return 255 if image.mode == "L" else WHITE[:3]


def _damaged(path: str, error: BaseException) -> SeqloomError:
    reason = str(error).strip().rstrip(".") or type(error).__name__
    fix = "copy or save it again, or take it out of the list"
    return SeqloomError("E_DATA", f"a damaged picture: {reason[:200]}", where=path, fix=fix)
