"""The encoders: which sample formats each takes, and how it is told quality, colours and light.

What a picture is (colour codes, chroma's place, aspect, light of HDR) goes into the encoder's own
headers, so that it survives every container.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

from tilewright.errors import ArgumentError
from tilewright.video.look import FULL_RANGE, Light, Look
from tilewright.video.pyav import pyav
from tilewright.wording import in_one_line, short

_FFV1_SLICED = 16  # samples a side; smaller pictures cannot be cut as its threads would
# SVT-AV1 of PyAV 18.1 waited for ever on pictures of 66x8 to 130x24 samples; 130x28 and 64x8 came.
_AV1_LEAST, _AV1_NARROW, _AV1_BLOCK = 4, 32, 64
_INTERLACED = 0x40000 | 0x20000000  # FFmpeg's flags for coding and searching fields


@dataclass(frozen=True, slots=True)
class Codec:
    """An encoder of FFmpeg.

    library     its name there
    crf         quality where nobody names one: the less the better; least to most are accepted
    options     what it is told always
    light       options that say what HDR's screen was; None where it has no place for that
    fields      whether it can code interlaced pictures
    alpha       whether opacity is kept
    containers  suffixes that hold it
    """

    library: str
    crf: int | None
    most: int
    options: tuple[tuple[str, str], ...]
    light: Callable[[Light], dict[str, str]] | None
    fields: bool = False
    alpha: bool = False
    containers: tuple[str, ...] = (".mp4", ".m4v", ".mov", ".mkv")


# What x264's assembly may use beside AVX-512, whose processors have all of these.
_BELOW_AVX512 = "MMX2,SSE2,SSSE3,SSE4.2,AVX,FMA3,BMI2,AVX2"


@cache
def _has_avx512() -> bool:
    extensions = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return any(name.startswith(("AVX512", "X86_V4")) for name in extensions.get("found", ()))


def _x264_light(light: Light) -> dict[str, str]:
    # With its AVX-512 code and macroblock trees the x264 of PyAV 18.1 gives other bits from run to
    # run, of one thread too: 24 runs of 16 pictures gave six films, without AVX-512 one.
    parts = [f"asm={_BELOW_AVX512}"] if _has_avx512() else []
    parts += [f"mastering-display={_mastering(light)}"] if light.mastering else []
    parts += ["cll={},{}".format(*light.content)] if light.content else []
    return {"x264-params": ":".join(parts)} if parts else {}


def _x265_light(light: Light) -> dict[str, str]:
    # One picture at a time: with more of these threads some rate controls depend on how the
    # threads ran (x265's manual, --frame-threads). Pictures smaller than its block of 64 x 64
    # differed from run to run even so.
    parts = ["log-level=error", "frame-threads=1"]
    parts += [f"master-display={_mastering(light)}"] if light.mastering else []
    parts += ["max-cll={},{}".format(*light.content)] if light.content else []
    return {"x265-params": ":".join(parts)}


def _svt_light(light: Light) -> dict[str, str]:
    parts = [f"mastering-display={_mastering_plain(light)}"] if light.mastering else []
    parts += ["content-light={},{}".format(*light.content)] if light.content else []
    return {"svtav1-params": ":".join(parts)} if parts else {}


CODECS = {
    "h264": Codec("libx264", 18, 51, (("preset", "veryfast"),), _x264_light, fields=True),
    "h265": Codec("libx265", 20, 51, (("preset", "veryfast"),), _x265_light),
    "av1": Codec(
        "libsvtav1",
        28,
        63,
        (("preset", "10"),),
        _svt_light,
        containers=(".mp4", ".m4v", ".mkv", ".webm"),
    ),
    "vp9": Codec(
        "libvpx-vp9",
        28,
        63,
        (("b", "0"), ("deadline", "good"), ("cpu-used", "5"), ("row-mt", "1")),
        None,
        containers=(".mp4", ".mkv", ".webm"),
    ),
    "ffv1": Codec(
        "ffv1",
        None,
        0,
        (("level", "3"), ("slicecrc", "1")),
        None,
        fields=True,
        alpha=True,
        containers=(".mkv",),
    ),
}


@dataclass(frozen=True, slots=True)
class Coding:
    """How a film is encoded: the same for every chunk, so that they follow each other as one."""

    codec: str
    crf: int | None
    threads: int
    rate: Fraction
    time_base: Fraction


def checked(codec: str, crf: int | None, look: Look, suffix: str) -> None:
    """Raise ArgumentError for what a codec cannot take, before work begins."""
    if codec not in CODECS:
        raise ArgumentError(f"codec={short(codec)}: accepted are {', '.join(CODECS)}")
    kind = CODECS[codec]
    try:
        formats = {one.name for one in pyav().codec.Codec(kind.library, "w").video_formats}
    except ValueError as error:
        raise ArgumentError(
            f"codec={codec!r}: PyAV was built without it ({in_one_line(error)}); accepted is"
            " another of " + ", ".join(CODECS)
        ) from None
    if suffix not in kind.containers:
        raise ArgumentError(
            f"codec={codec!r}: {suffix!r} cannot hold it; accepted are {', '.join(kind.containers)}"
        )
    whole = isinstance(crf, int) and not isinstance(crf, bool)
    if crf is not None and (kind.crf is None or not whole or not 0 <= crf <= kind.most):
        takes = f"0 to {kind.most}" if kind.crf is not None else "none, as it loses nothing"
        raise ArgumentError(f"crf={crf!r}: accepted for {codec} are {takes}")
    why = _refusal(codec, kind, look, formats)
    if why:
        raise ArgumentError(f"codec={codec!r}: {why}")


def _refusal(codec: str, kind: Codec, look: Look, formats: set[str]) -> str | None:
    if look.alpha and not kind.alpha:
        return f"opacity ({look.format}) would be lost; accepted is ffv1"
    if look.format not in formats:
        return f"no samples as {look.format}; accepted are {', '.join(sorted(formats))}"
    if look.interlaced and not kind.fields:
        return "interlaced pictures would lose their fields; accepted are h264 and ffv1"
    if look.light != Light() and kind.light is None:
        return "has no place for HDR's metadata; accepted are h264, h265, av1"
    if look.aspect != 1 and codec == "ffv1":
        return f"samples of aspect {look.aspect} would be lost; accepted are other codecs"
    return _too_small(codec, look)


def _too_small(codec: str, look: Look) -> str | None:
    """Why an encoder does not take pictures of this size."""
    less, more = sorted((look.width, look.height))
    across, down = look.halved
    if codec in ("h264", "h265") and (look.width % (1 << across) or look.height % (1 << down)):
        return (
            f"{look.said()}, whose chroma is halved, of an odd size; accepted are even sizes, as"
            " --upscale 2 makes them, and av1, vp9, ffv1"
        )
    if look.halved != (0, 0) and codec == "h265" and less < 16:
        return "pictures under 16 samples; accepted are larger ones, or ffv1"
    if codec == "av1" and less < _AV1_NARROW and (more > _AV1_BLOCK or less < _AV1_LEAST):
        return (
            f"pictures of {look.width}x{look.height} samples; accepted are {_AV1_NARROW} a side"
            f" and more, {_AV1_LEAST} to {_AV1_BLOCK} on both, or other codecs"
        )
    return None


def opened(container: Any, coding: Coding, look: Look) -> Any:
    """A stream of a container, set up for the film's pictures."""
    stream = container.add_stream(
        CODECS[coding.codec].library, rate=coding.rate, options=_options(coding, look)
    )
    _set(stream.codec_context, coding, look)
    stream.time_base = coding.time_base
    if look.turned:
        stream.set_display_matrix(look.turned)
    return stream


def encoder(coding: Coding, look: Look) -> Any:
    """An encoder by itself, for one chunk; headers apart from packets, as containers want them."""
    made = pyav().codec.context.CodecContext.create(CODECS[coding.codec].library, "w")
    _set(made, coding, look)
    made.framerate = coding.rate
    made.options = _options(coding, look)
    made.flags |= int(pyav().codec.context.Flags.global_header)
    return made


def _set(context: Any, coding: Coding, look: Look) -> None:
    context.width, context.height = look.width, look.height
    context.pix_fmt = look.format
    context.time_base = coding.time_base
    context.sample_aspect_ratio = look.aspect
    context.color_range = look.range
    context.colorspace = look.matrix
    context.color_primaries = look.primaries
    context.color_trc = look.transfer
    if look.interlaced:
        context.flags |= _INTERLACED


def _options(coding: Coding, look: Look) -> dict[str, str]:
    kind = CODECS[coding.codec]
    options = dict(kind.options)
    crf = kind.crf if coding.crf is None else coding.crf
    if crf is not None:
        options["crf"] = str(crf)
    if look.siting:
        options["chroma_sample_location"] = look.siting
    if kind.light is not None:
        options |= kind.light(look.light)
    if coding.codec == "ffv1" and min(look.width, look.height) < _FFV1_SLICED:
        options["slices"] = "1"
    if coding.codec == "h264" and look.range == FULL_RANGE:
        options["color_range"] = "pc"
    return options | {"threads": str(coding.threads)}


def _rationals(light: Light) -> tuple[list[Fraction], list[Fraction]]:
    """Chromaticities (red, green, blue, white: x, y) and luminances (least, most)."""
    numbers = struct.unpack("20i", light.mastering[:80])
    pairs = [Fraction(a, b or 1) for a, b in zip(numbers[::2], numbers[1::2], strict=True)]
    return pairs[:8], pairs[8:]


def _mastering(light: Light) -> str:
    """As x264 and x265 read it: units of 0.00002, and of 0.0001 candelas a square metre."""
    places, (least, most) = _rationals(light)
    rx, ry, gx, gy, bx, by, wx, wy = (round(place * 50000) for place in places)
    return (
        f"G({gx},{gy})B({bx},{by})R({rx},{ry})WP({wx},{wy})"
        f"L({round(most * 10000)},{round(least * 10000)})"
    )


def _mastering_plain(light: Light) -> str:
    """As SVT-AV1 reads it: plain decimals."""
    places, (least, most) = _rationals(light)
    rx, ry, gx, gy, bx, by, wx, wy = (f"{float(place):.6f}" for place in places)
    return (
        f"G({gx},{gy})B({bx},{by})R({rx},{ry})WP({wx},{wy})L({float(most):.4f},{float(least):.4f})"
    )
