"""Pictures a second of the stages that take damage away, beside ffmpeg's filters for the same.

640 x 480, 4:2:0, in all cores: a stage works on a picture a core, as in the pipeline, ffmpeg on a
film with its threads. All ways in turns, medians; ffmpeg's start is taken off by a film of fewer
pictures.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np

from bench.restore_cases import DEBLOCK, NDArray, against, deblocking, denoising
from tilewright.inputs.devices import host
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Stage, Window

_LOOK = Look(640, 480, "yuv420p", 8, "yuv", halved=(1, 1))
_ROUNDS = 3
_SIGMA = 25
_PICTURES = {"deblock": (60, 10), "nlmeans": (6, 2)}  # of the longer film and the shorter
_FEW = (2, 1)
_KINDS = (
    ("denoise", denoising(_SIGMA), ("float32", "float16")),
    ("deblock", deblocking, ("float32", "float16", "int8")),
)


def speeds() -> dict[str, dict[str, float]]:
    """Pictures a second: of networks by their type, of filters as `ffmpeg`."""
    chance = np.random.default_rng(0)
    planes = tuple(_smooth(chance, shape) for shape in _LOOK.shapes)
    window = Window(Frame(planes, 0, 1, Fraction(1, 25), _LOOK))
    ways: dict[tuple[str, str], Callable[[], float]] = {}
    for name, make, types in _KINDS:
        for size in ("s", "m"):
            for dtype in types:
                ways[f"{name}-{size}", dtype] = _pipeline(make(size, dtype), window)
    for name, text in {**against(_SIGMA), **DEBLOCK}.items():
        if "as given" not in name:
            ways[name, "ffmpeg"] = _film(planes, text, _PICTURES.get(name.partition("=")[0], _FEW))
    times: dict[tuple[str, str], list[float]] = {key: [] for key in ways}
    for _ in range(_ROUNDS):
        for key, way in ways.items():
            times[key].append(way())
    found: dict[str, dict[str, float]] = {}
    for (name, dtype), seconds in times.items():
        found.setdefault(name, {})[dtype] = 1 / statistics.median(seconds)
        print(name, dtype, f"{found[name][dtype]:.2f} pictures a second")
    return found


def _smooth(chance: np.random.Generator, shape: tuple[int, ...]) -> NDArray:
    """Waves under noise."""
    y, x = np.mgrid[: shape[0], : shape[1]]
    wave = 128 + 60 * np.sin(x / 9) * np.cos(y / 7)
    return np.asarray((wave + chance.normal(0, _SIGMA, shape)).clip(0, 255), np.uint8)


def _pipeline(stage: Stage, window: Window) -> Callable[[], float]:
    """Seconds a picture, a picture a core; warmed up."""
    works = [stage.bound(_LOOK) for _ in range(host().compute_units)]

    def seconds() -> float:
        with ThreadPoolExecutor(len(works)) as pool:
            begin = time.perf_counter()
            list(pool.map(lambda work: list(work(window)), works))
            return (time.perf_counter() - begin) / len(works)

    seconds()
    return seconds


def _film(planes: tuple[NDArray, ...], text: str, pictures: tuple[int, int]) -> Callable[[], float]:
    """Seconds a picture of a film that ffmpeg filters, without its start."""
    frame = b"".join(plane.tobytes() for plane in planes)
    size = f"{_LOOK.width}x{_LOOK.height}"
    raw = ["-f", "rawvideo", "-pix_fmt", "yuv420p", "-s", size]
    line = ["ffmpeg", "-v", "error", *raw, "-i", "-", "-filter_complex", text, "-f", "null", "-"]

    def whole(count: int) -> float:
        begin = time.perf_counter()
        subprocess.run(line, input=frame * count, check=True)
        return time.perf_counter() - begin

    many, few = pictures
    return lambda: max(1e-6, (whole(many) - whole(few)) / (many - few))
