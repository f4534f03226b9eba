"""Low light: darkened photographs beside the best power curve, flicker of clips, time of a picture.

    python -m bench.low_light --photographs DIR --clips DIR

Every photograph (luma) is darkened, y = gain * x**g plus noise, in eight bits, with g of 2 to 3.5
and a gain of 0.5 to 1 drawn, once for each noise. The stage sees the dark picture alone. Beside it
stand power curves, found with the clean pictures at hand: the one exponent that is best for all
photographs and noises together, as an editor or `ffmpeg -vf eq=gamma` is set once; the exponent
that is best for that very picture; and that with the best gain too. And ways that anybody can take,
who has the dark picture alone: the exponent that makes its mean one half, as ImageMagick's
`-auto-gamma` does, and ffmpeg's filters `normalize` (stretched) and `histeq` (light shared out).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.environment import RESULTS, environment
from tilewright import video
from tilewright.inputs.devices import host
from tilewright.video.analysis.survey import surveyed
from tilewright.video.look import FULL_RANGE
from tilewright.video.source import film
from tilewright.video.stages.contract import Window, Work
from tilewright.video.stages.low_light import KNOTS, seen_in
from tilewright.video.tables import Key

NDArray = npt.NDArray[Any]
NOISES = (1.0, 2.0, 4.0, 6.0)
EXPONENTS = np.arange(0.15, 1.01, 0.01)
GAINS = np.arange(0.8, 2.01, 0.05)
DARK = (2.75, 0.7, 2.0)  # of clips: exponent, gain, noise
# ffmpeg's filters, each as it comes, but without the memory of pictures before.
FILTERS = {"normalize": "normalize=smoothing=0", "histeq": "histeq"}
CLIPS = ("signing-book.mkv", "cars-from-above.mp4", "flower.mp4", "steel-cuts-dark.webm")


def darkened(clean: NDArray, exponent: float, gain: float, noise: float, seed: int) -> NDArray:
    """Light of 0 to 1 as dark eight bits."""
    chance = np.random.default_rng(seed)
    made = 255 * gain * clean**exponent + chance.normal(0, noise, clean.shape)
    return np.asarray(np.rint(made).clip(0, 255), np.uint8)


def psnr(found: NDArray, clean: NDArray) -> float:
    return float(-10 * np.log10(np.mean((found - clean) ** 2)))


@dataclass(frozen=True)
class Power:
    """The best gain * x**exponent of all that were tried, and its PSNR."""

    exponent: float
    gain: float
    psnr: float


def powers(dark: NDArray, clean: NDArray, gains: NDArray) -> NDArray:
    """PSNR of every gain and exponent for one picture, rounded to eight bits."""
    often = np.bincount(dark.ravel(), minlength=256)
    sums = np.bincount(dark.ravel(), clean.ravel(), 256)
    codes = np.arange(256) / 255
    curves = gains[:, None, None] * codes ** EXPONENTS[None, :, None]
    curves = np.rint(255 * curves.clip(0, 1)) / 255
    errors = (curves**2 @ often - 2 * curves @ sums + (clean**2).sum()) / clean.size
    return np.asarray(-10 * np.log10(errors))


def best_power(dark: NDArray, clean: NDArray, gains: NDArray) -> Power:
    """For one picture; the clean one is at hand."""
    reached = powers(dark, clean, gains)
    gain, exponent = np.unravel_index(int(reached.argmax()), reached.shape)
    return Power(float(EXPONENTS[exponent]), float(gains[gain]), float(reached.max()))


def by_mean(dark: NDArray) -> NDArray:
    """The power that makes the mean one half: exponent log(0.5) / log(mean), in eight bits."""
    light = dark / 255
    return np.asarray(np.rint(255 * light ** (np.log(0.5) / np.log(light.mean()))) / 255)


def filtered(dark: NDArray, how: str) -> NDArray:
    """What a filter of ffmpeg makes of it, as grey of red, green and blue."""
    height, width = dark.shape
    raw = ("-f", "rawvideo", "-pix_fmt", "rgb24")
    line = ("ffmpeg", "-v", "error", *raw, "-s", f"{width}x{height}", "-i", "-", "-vf", how)
    colours = np.repeat(dark[..., None], 3, axis=2)
    came = subprocess.run((*line, *raw, "-"), input=colours.tobytes(), stdout=-1, check=True).stdout
    return np.frombuffer(came, np.uint8).reshape(height, width, 3)[..., 1] / 255


def told(frame: video.Frame, power: Power) -> video.LowLight:
    """The stage with the noise that it finds, and a curve that it is told."""
    places = np.linspace(0, 1, KNOTS) ** 2
    knots = (power.gain * places**power.exponent).clip(0, 1)
    return video.LowLight(keys=(Key(0.0, (seen_in(frame)[0], 1.0, *map(float, knots)), True),))


def grey(luma: NDArray) -> video.Frame:
    look = video.Look(luma.shape[1], luma.shape[0], "gray", 8, "grey", range=FULL_RANGE)
    return video.Frame((luma,), 0, 1, Fraction(1, 25), look)


def made(stage: video.LowLight, frame: video.Frame) -> NDArray:
    (found,) = stage.bound(frame.look)(Window(frame))
    return np.asarray(found.planes[0]) / 255


def photographs(folder: Path) -> list[dict[str, Any]]:
    from PIL import Image

    rows: list[dict[str, Any]] = []
    curves = []
    for number, path in enumerate(sorted(folder.glob("*.webp"))):
        with Image.open(path) as picture:
            clean = np.asarray(picture.convert("L"), np.float64) / 255
        for noise in NOISES:
            seed = 100 * number + int(noise)
            chance = np.random.default_rng(seed)
            exponent, gain = float(chance.uniform(2, 3.5)), float(chance.uniform(0.5, 1))
            dark = darkened(clean, exponent, gain, noise, seed)
            frame = grey(dark)
            power, both = (best_power(dark, clean, one) for one in (np.ones(1), GAINS))
            curves.append(powers(dark, clean, np.ones(1))[0])
            rows.append({
                "name": path.stem, "noise": noise, "exponent": exponent, "gain": gain,
                "power": power.psnr, "power and gain": both.psnr,
                "told": psnr(made(told(frame, power), frame), clean),
                "2d": psnr(made(video.LowLight(method="2d"), frame), clean),
                "3d": psnr(made(video.LowLight(), frame), clean),
                "by mean": psnr(by_mean(dark), clean),
                **{name: psnr(filtered(dark, how), clean) for name, how in FILTERS.items()},
            })  # fmt: skip
    one = int(np.mean(curves, axis=0).argmax())
    for row, curve in zip(rows, curves, strict=True):
        row |= {"one power": float(curve[one]), "one exponent": float(EXPONENTS[one])}
    return rows


def flicker(means: list[float], cuts: tuple[int, ...]) -> tuple[float, float]:
    """Mean difference of successive pictures' mean luma, absolute and as a share of it."""
    pairs = [n for n in range(1, len(means)) if n not in cuts]
    apart = [abs(means[n] - means[n - 1]) for n in pairs]
    share = [2 * abs(means[n] - means[n - 1]) / (means[n] + means[n - 1]) for n in pairs]
    return statistics.fmean(apart), statistics.fmean(share)


def clip(path: Path, dark: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        source = _dark_copy(path, Path(folder) / "dark.mkv") if dark else path
        found = film(source)
        seen = surveyed(found)
        stage = video.LowLight().fitted(seen)
        work = stage.bound(found.look)
        before, after = [], []
        for frame in video.frames(source):
            before.append(float(frame.planes[0].mean()) - 16)
            after.append(float(work(Window(frame))[0].planes[0].mean()) - 16)  # type: ignore[index]
    given, came = flicker(before, seen.cuts), flicker(after, seen.cuts)
    return {
        "name": path.name, "darkened": dark, "frames": len(before),
        "mean": [statistics.fmean(before), statistics.fmean(after)],
        "absolute": [given[0], came[0]], "relative": [given[1], came[1]],
        "ratio": came[1] / given[1],
    }  # fmt: skip


def _dark_copy(path: Path, out: Path) -> Path:
    """A clip whose luma is darkened, and its chroma as much less, without loss."""
    import av

    exponent, gain, noise = DARK
    with av.open(str(out), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        context = stream.codec_context
        for number, frame in enumerate(video.frames(path)):
            height, width = frame.planes[0].shape
            if number == 0:
                context.width, context.height, context.pix_fmt = width, height, "yuv420p"
                context.color_range = 1
            picture = av.VideoFrame(width, height, "yuv420p")
            light = ((frame.planes[0] - 16.0) / 219).clip(0, 1)
            luma = 16 + darkened(light, exponent, gain, noise, number) * (219 / 255)
            planes = (luma, *(128 + (one - 128.0) * 0.4 for one in frame.planes[1:]))
            for plane, samples in zip(picture.planes, planes, strict=True):
                into = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
                rows, columns = samples.shape
                into[:rows, :columns] = np.rint(samples)
            picture.color_range = 1
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))
    return out


def _again(frame: video.Frame, work: Work) -> None:
    for _ in range(8):
        work(Window(frame))


def seconds(workers: int) -> dict[str, float]:
    """Of a 640 x 480 picture (4:2:0), so many at once: median milliseconds a picture."""
    chance = np.random.default_rng(0)
    look = video.Look(640, 480, "yuv420p", 8, "yuv", (1, 1))
    planes = tuple(chance.integers(16, 90, shape, dtype=np.uint8) for shape in look.shapes)
    frame = video.Frame(planes, 0, 1, Fraction(1, 25), look)
    fitted = video.LowLight(keys=(Key(0.0, seen_in(frame), True),))
    found = {}
    for name, used, looked in (("", fitted, look), (", luma alone", fitted, None)):
        given = frame if looked else grey(planes[0])
        works = [used.bound(given.look) for _ in range(workers)]
        with ThreadPoolExecutor(workers) as pool:
            times = []
            for _ in range(12):
                begin = time.perf_counter()
                list(pool.map(partial(_again, given), works))
                times.append((time.perf_counter() - begin) / (8 * workers) * 1e3)
        found[f"table{name}"] = statistics.median(times[2:])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=Path)
    parser.add_argument("--clips", type=Path)
    parser.add_argument("--time", action="store_true")
    parser.add_argument("--output", type=Path, default=RESULTS / "low-light-cpu.json")
    options = parser.parse_args()
    document = json.loads(options.output.read_text()) if options.output.exists() else {}
    if options.clips or options.time or not document:
        document["environment"] = environment(host())
    if options.photographs:
        document["photographs on"] = {"environment": environment(host())}
        document["photographs"] = photographs(options.photographs)
    if options.clips:
        names = [name for name in CLIPS if (options.clips / name).exists()]
        document["clips"] = [clip(options.clips / name, "dark" not in name) for name in names]
    if options.time:
        document["milliseconds"] = seconds(2)
    options.output.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
