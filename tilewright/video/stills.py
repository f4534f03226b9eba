"""Files of single pictures: read with what they say of themselves, and that written again."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from tilewright.errors import ArgumentError, DeviceError, FileError
from tilewright.wording import PATH, in_one_line, short

SUFFIXES = (".png", ".jpg", ".jpeg", ".webp")
FORMATS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".webp": "WEBP"}
_CLEAR = {"P": "RGBA", "L": "LA", "RGB": "RGBA"}  # where one colour, or some, are transparent
_MODES = ("L", "LA", "RGB", "RGBA")
_XMP = "XML:com.adobe.xmp"  # a text of PNG
_TURNED, _BARE = 0x0112, ("icc_profile", "dpi")  # EXIF's orientation; what holds no picture
_EXIF_IFD, _EXIF_SIZES = 0x8769, (0xA002, 0xA003)


def pillow() -> Any:
    """Pillow's module of images. Raises DeviceError where it is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DeviceError(
            f"pictures need Pillow ({in_one_line(error)}); accepted is"
            " pip install 'tilewright[video]'"
        ) from None
    return Image


def opened(path: Path, argument: str = "source") -> Any:
    """A picture, decoded; messages call it `argument`.

    Raises FileError for what is none, ArgumentError for other colours.
    """
    image = pillow()
    label = f"{argument}={short(str(path), PATH)}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", image.DecompressionBombWarning)  # large, not a bomb
            picture = image.open(path)
        deep = any(str(part[3]).endswith(";16B") for part in getattr(picture, "tile", ()))
        picture.load()
    except (OSError, ValueError, SyntaxError, image.DecompressionBombError) as error:
        why = getattr(error, "strerror", None) or in_one_line(error)
        raise FileError(
            f"{label}: cannot be read ({why}); accepted are {', '.join(SUFFIXES)}"
        ) from None
    # A phone's JPEG may hold a smaller picture, or another exposure, beside the one that is meant.
    if getattr(picture, "n_frames", 1) > 1 and picture.format != "MPO":
        raise ArgumentError(f"{label}: it moves; accepted are single pictures, and films")
    if deep and picture.mode in _MODES:
        raise ArgumentError(f"{label}: its samples have sixteen bits; accepted are eight")
    clear = "transparency" in picture.info
    if picture.mode == "P" or (clear and picture.mode in _CLEAR):
        picture = _converted(picture, _CLEAR[picture.mode] if clear else "RGB")
    if picture.mode not in _MODES:
        raise ArgumentError(
            f"{label}: its colours are {picture.mode}; accepted are {', '.join(_MODES)}"
        )
    return picture


def _converted(picture: Any, mode: str) -> Any:
    """A picture in another mode, with all it says of itself but its one transparent colour."""
    made = picture.convert(mode)
    kept = picture.info | {"text": getattr(picture, "text", {})}
    made.info.update({key: kept[key] for key in kept if key != "transparency"})
    made.info.pop("transparency", None)
    made.format = picture.format
    return made


def noted(made: Any, picture: Any) -> Any:
    """A new picture with what the old one said of itself."""
    made.info.update({"text": getattr(picture, "text", {})} | picture.info)
    exif = picture.getexif()
    if exif:
        inner = exif.get_ifd(_EXIF_IFD)
        for tag, size in zip(_EXIF_SIZES, made.size, strict=True):
            if tag in inner:
                inner[tag] = size
        made.info["exif"] = exif.tobytes()
    return made


def bared(made: Any, picture: Any) -> Any:
    """A new picture with the old one's colours, density and orientation, and nothing else.

    What a camera notes may hold a small picture of what is to be hidden, as EXIF and XMP do.
    """
    made.info.update({key: picture.info[key] for key in _BARE if key in picture.info})
    if turn := picture.getexif().get(_TURNED):
        exif = pillow().Exif()
        exif[_TURNED] = turn
        made.info["exif"] = exif.tobytes()
    return made


def saving(picture: Any, out: Path) -> dict[str, Any]:
    """What Pillow is told of a picture that is saved."""
    name = FORMATS[out.suffix.lower()]
    options: dict[str, Any] = {"format": name}
    for key in ("icc_profile", "exif", "dpi", "xmp"):
        if picture.info.get(key):
            options[key] = picture.info[key]
    if name == "PNG":
        options["pnginfo"] = _texts(picture)
    if name == "JPEG":
        options |= {"quality": 95, "subsampling": 0}
    if name == "WEBP":
        options |= {"lossless": True}
    return options


def _texts(picture: Any) -> Any:
    """What a PNG has as text, and XMP, which other formats have a place of its own for."""
    from PIL.PngImagePlugin import PngInfo

    made, xmp = PngInfo(), picture.info.get("xmp", b"")
    texts = dict(picture.info.get("text") or getattr(picture, "text", {}))
    if xmp:
        texts[_XMP] = xmp.decode("utf-8", "replace") if isinstance(xmp, bytes) else xmp
    for key, text in texts.items():
        made.add_itxt(key, str(text))
    return made
