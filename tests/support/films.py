"""Little films, made here with PyAV: drawn pictures that move, sound, subtitles, odd clocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

CLIPS = Path(__file__).parents[3] / "shared" / "data" / "clips"
CAME = "the clips that promises are held on are not here"


@dataclass(frozen=True)
class Making:
    """What a little film is."""

    width: int = 64
    height: int = 48
    format: str = "yuv420p"
    codec: str = "ffv1"
    times: Sequence[int] = tuple(range(0, 12 * 512, 512))
    time_base: Fraction = Fraction(1, 12800)
    rate: Fraction = Fraction(25)
    sound: int = 0
    options: tuple[tuple[str, str], ...] = ()
    turned: float | None = None
    colours: tuple[int, int, int, int] = (0, 2, 2, 2)  # range, matrix, primaries, transfer
    aspect: Fraction = Fraction(1)
    seed: int = 0
    noise: float = 1 / 60  # of the largest sample


def drawn(make: Making, number: int, plane: int, shape: tuple[int, int]) -> np.ndarray:
    """A plane of waves that move, and a little noise."""
    rng = np.random.default_rng((make.seed, number, plane))
    most = 1023 if "10" in make.format else 255
    y, x = np.mgrid[: shape[0], : shape[1]]
    wave = np.sin(x / (3 + plane) + number / 2) + np.cos(y / 4 - number / 3)
    noisy = most * (0.5 + 0.2 * wave) + rng.normal(0, most * make.noise, shape)
    return noisy.clip(0, most).astype(np.uint16 if most > 255 else np.uint8)


def film(path: Path, make: Making = Making()) -> Path:
    """Write one."""
    import av

    with av.open(str(path), "w", options=_muxing(path, make)) as out:
        stream = out.add_stream(make.codec, rate=make.rate, options=dict(make.options))
        context = stream.codec_context
        context.width, context.height, context.pix_fmt = make.width, make.height, make.format
        context.time_base = stream.time_base = make.time_base
        context.sample_aspect_ratio = make.aspect
        context.color_range, context.colorspace = make.colours[:2]
        context.color_primaries, context.color_trc = make.colours[2:]
        if make.turned is not None:
            stream.set_display_rotation(make.turned)
        sounds = [_sound(out, number) for number in range(make.sound)]
        out.start_encoding()
        for number, time in enumerate(make.times):
            out.mux(stream.encode(_picture(make, number, time)))
        out.mux(stream.encode(None))
        for number, sound in enumerate(sounds):
            _fill(out, sound, number)
    return path


def _muxing(path: Path, make: Making) -> dict[str, str]:
    if path.suffix != ".mp4":
        return {}
    return {"video_track_timescale": str(make.time_base.denominator)}


def _picture(make: Making, number: int, time: int) -> Any:
    import av

    frame = av.VideoFrame(make.width, make.height, make.format)
    for at, plane in enumerate(frame.planes):
        samples = drawn(make, number, at, (plane.height, plane.width))
        pitch = plane.line_size // samples.itemsize
        into = np.frombuffer(plane, samples.dtype).reshape(-1, pitch)
        into[: plane.height, : plane.width] = samples
    frame.pts, frame.time_base = time, make.time_base
    return frame


def _sound(out: Any, number: int) -> Any:
    stream = out.add_stream("aac", rate=48000, options={"b": "32k"})
    stream.layout = "mono"
    stream.metadata["language"] = ("deu", "fra", "eng")[number]
    return stream


def _fill(out: Any, stream: Any, number: int) -> None:
    import av

    for start in range(0, 24 * 1024, 1024):
        wave = np.sin(np.arange(start, start + 1024) * 0.03 * (number + 1))
        frame = av.AudioFrame.from_ndarray(wave.astype(np.float32)[None], "fltp", "mono")
        frame.sample_rate, frame.pts, frame.time_base = 48000, start, Fraction(1, 48000)
        out.mux(stream.encode(frame))
    out.mux(stream.encode(None))


def samples(path: Path) -> list[tuple[Fraction, list[np.ndarray]]]:
    """Time and planes of every picture, as the library sees them."""
    from tilewright import video

    return [(one.time, [plane.copy() for plane in one.planes]) for one in video.frames(path)]


def packets(path: Path) -> dict[int, list[tuple[Fraction | None, bytes]]]:
    """Time and bytes of every packet that is no picture, by stream."""
    import av

    with av.open(str(path)) as container:
        pictures = container.streams.video[0].index
        found: dict[int, list[tuple[Fraction | None, bytes]]] = {}
        for packet in container.demux():
            if packet.size and packet.stream_index != pictures:
                time = None if packet.pts is None else packet.pts * packet.time_base
                found.setdefault(packet.stream_index, []).append((time, bytes(packet)))
        return found
