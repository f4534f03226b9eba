"""Damage taken out by the stages' networks, beside what ffmpeg's filters take out of the same.

    python -m bench.restore IMAGES CLIPS [--only noise jpeg films speed] [--ours] [--output FILE]

IMAGES holds test/: middles of photographs, luma under seeded noise, or through Pillow's JPEG. Of
films some pictures of each clip are looked at, whose first second x264 (medium) encoded anew. PSNR
of luma, of what is rounded to eight bits again, means over pictures; int8 (--int8) loses what it
loses on every fourth photograph. ffmpeg's filters are given the strength, by the factors that were
best on photographs that networks learn from. --ours measures the networks anew and keeps the rest
of FILE.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.environment import RESULTS, environment
from bench.timing import load_average
from tilewright import video
from tilewright.inputs.devices import host
from tilewright.video.look import Frame, Look
from tilewright.video.stages.contract import Stage, Window, Work
from train.coded import coded
from train.photographs import files_of, luma_of
from train.restoring import as_jpeg, noisy

NDArray = npt.NDArray[Any]
SIGMAS, QUALITIES, CRFS = (25, 50), (10, 20, 40), (33, 38)
SIZES = ("s", "m")
PICTURES, SPAN = 2, 24  # of a clip that are looked at, out of so many that are encoded
MIDDLE = 256
_FOURTH = 4
BM3D = {
    "bm3d, one pass": "bm3d=sigma={0}:block=4:bstep=2:group=1",
    "bm3d, both passes": (
        "split[a][b];[a]bm3d=sigma={1}:block=4:bstep=4:group=1:estim=basic[c];"
        "[b][c]bm3d=sigma={2}:block=4:bstep=4:group=16:estim=final:ref=1"
    ),
    "bm3d, both passes, sigma as given": (
        "split[a][b];[a]bm3d=sigma={3}:block=4:bstep=4:group=1:estim=basic[c];"
        "[b][c]bm3d=sigma={3}:block=4:bstep=4:group=16:estim=final:ref=1"
    ),
}
_FACTORS = (4, 5, 10, 1)  # of bm3d's sigma
_NLMEANS, _MOST = 0.68, 30.0
DEBLOCK = {f"deblock={kind}": f"deblock=filter={kind}" for kind in ("weak", "strong")}


@dataclass(frozen=True)
class Case:
    """Damaged pictures beside clean ones, and what is done about them."""

    name: str
    pairs: list[tuple[NDArray, NDArray]]
    filters: dict[str, str]
    stage: Callable[[str, str], Stage]
    deep: bool = False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("images", type=Path)
    parser.add_argument("clips", type=Path)
    parser.add_argument("--only", nargs="+", default=["noise", "jpeg", "films", "speed"])
    parser.add_argument("--ours", action="store_true")
    parser.add_argument("--int8", action="store_true", help="those networks too")
    parser.add_argument("--output", type=Path, default=RESULTS / "restore-cpu.json")
    options = parser.parse_args()
    there = options.output.exists()
    document = json.loads(options.output.read_text()) if there else {}
    document["environment"] = environment(host())
    document["load_before"] = load_average()
    parts = {"noise": _noise, "jpeg": _jpeg, "films": _films}
    for part in options.only:
        if part == "speed":
            document[part] = _speed()
        else:
            before = {case["name"]: case["psnr"] for case in document.get(part, [])}
            source = options.clips if part == "films" else options.images
            cases = []
            for case in parts[part](source):
                known = before.get(case.name) if options.ours else None
                cases.append(_measured(case, known, part, whole=options.int8))
                document[part] = cases
                options.output.write_text(json.dumps(document, indent=1) + "\n")
        options.output.write_text(json.dumps(document, indent=1) + "\n")


def _noise(images: Path) -> Iterator[Case]:
    """Middles of photographs."""
    lumas = _lumas(images)
    for sigma in SIGMAS:
        pairs = [(noisy(one, sigma, number), one) for number, one in enumerate(lumas)]
        middles = [(_middle(one), _middle(other)) for one, other in pairs]
        strength = min(_MOST, _NLMEANS * sigma)
        means = {"nlmeans": f"nlmeans=s={strength:g}:p=7:r=15"}
        blocks = {
            name: text.format(*(factor * sigma for factor in _FACTORS))
            for name, text in BM3D.items()
        }
        stage = _denoising(sigma)
        yield Case(f"σ {sigma}, middles of {MIDDLE} × {MIDDLE}", middles, means | blocks, stage)


def _denoising(sigma: float) -> Callable[[str, str], Stage]:
    return lambda size, dtype: video.Denoise(sigma, size, dtype, "host")


def _jpeg(images: Path) -> Iterator[Case]:
    lumas = _lumas(images)
    for quality in QUALITIES:
        pairs = [(_middle(as_jpeg(one, quality)), _middle(one)) for one in lumas]
        yield Case(f"JPEG q {quality}", pairs, DEBLOCK, _deblocking, deep=True)


def _deblocking(size: str, dtype: str) -> Stage:
    return video.Deblock(size, dtype, "host")


def _films(clips: Path) -> Iterator[Case]:
    """Each clip a case, so that the worst is seen."""
    for path in sorted(
        path for path in clips.iterdir() if path.suffix in (".mp4", ".mkv", ".webm")
    ):
        frames = video.frames(path)
        pictures = [_even(frame.planes[0]) for frame, _ in zip(frames, range(SPAN), strict=False)]
        at = np.linspace(0, len(pictures) - 1, PICTURES + 2).round().astype(int)[1:-1]
        for crf in CRFS:
            damaged = coded(pictures, "libx264", crf)
            pairs = [(damaged[n], pictures[n]) for n in at]
            yield Case(f"{path.stem}, CRF {crf}", pairs, DEBLOCK, _deblocking)


def _even(plane: NDArray) -> NDArray:
    rows, columns = plane.shape
    return plane[: rows // 2 * 2, : columns // 2 * 2].copy()


def _lumas(images: Path) -> list[NDArray]:
    return [luma_of(path).round().astype(np.uint8) for path in files_of(images / "test")]


def _middle(plane: NDArray) -> NDArray:
    top, left = ((length - MIDDLE) // 2 for length in plane.shape)
    return plane[top : top + MIDDLE, left : left + MIDDLE].copy()


def _measured(
    case: Case, before: dict[str, float] | None, part: str, *, whole: bool
) -> dict[str, Any]:
    """Means of PSNR by way; those of others from `before` where it is given."""
    found = dict(before or {})
    if before is None:
        found["damaged"] = statistics.fmean(_all(case.pairs, lambda x: x))
        for name, text in case.filters.items():
            found[name] = statistics.fmean(_all(case.pairs, partial(filtered, text=text)))
    step = 1 if part == "films" else _FOURTH
    for size in SIZES:
        floats = _ours(case, size, "float32", case.pairs)
        found[size] = statistics.fmean(floats)
        if not whole or part == "noise":
            continue
        ints = _ours(case, size, "int8", case.pairs[::step])
        lost = statistics.fmean(floats[::step]) - statistics.fmean(ints)
        found[f"{size}-int8"] = found[size] - lost
    print(case.name, {name: round(value, 2) for name, value in found.items()}, flush=True)
    return {"name": case.name, "pictures": len(case.pairs), "psnr": found}


def _all(
    pairs: Sequence[tuple[NDArray, NDArray]], way: Callable[[NDArray], NDArray]
) -> list[float]:
    """PSNR of every picture."""
    with ThreadPoolExecutor(host().compute_units) as pool:
        made = pool.map(way, [damaged for damaged, _ in pairs])
        return [psnr(one, clean) for one, (_, clean) in zip(made, pairs, strict=True)]


def psnr(one: NDArray, other: NDArray) -> float:
    """Decibels between pictures of eight bits."""
    apart = one.astype(np.float64) - other
    return float(10 * np.log10(255**2 / max(1e-9, (apart**2).mean())))


def _ours(
    case: Case, size: str, dtype: str, pairs: Sequence[tuple[NDArray, NDArray]]
) -> list[float]:
    """Through the stage, as films (eight bits) or pictures (sixteen) go through it."""
    stage = case.stage(size, dtype)
    works: dict[tuple[int, ...], list[Work]] = {}
    for damaged, _ in pairs:  # bound before threads, one for each
        look = _look(damaged.shape, case.deep)
        if damaged.shape not in works:
            works[damaged.shape] = [stage.bound(look) for _ in range(host().compute_units)]

    def one(x: NDArray) -> NDArray:
        work = works[x.shape].pop()
        try:
            plane = x.astype(np.uint16) * 257 if case.deep else x
            frame = Frame((plane,), 0, 1, Fraction(1, 25), _look(x.shape, case.deep))
            (made,) = work(Window(frame))
            out = made.planes[0]
            return (out / 257).round().astype(np.uint8) if case.deep else out.copy()
        finally:
            works[x.shape].append(work)

    return _all(pairs, one)


def _look(shape: tuple[int, ...], deep: bool) -> Look:
    rows, columns = shape
    look = Look(columns, rows, "gray", 8, "grey")
    return replace(look, format="gray16le", bits=16) if deep else look


def filtered(x: NDArray, text: str) -> NDArray:
    """A grey picture through a filter of the ffmpeg program.

    Raises RuntimeError with its complaint.
    """
    rows, columns = x.shape
    raw = ["-f", "rawvideo", "-pix_fmt", "gray"]
    line = ["ffmpeg", "-v", "error", *raw, "-s", f"{columns}x{rows}", "-i", "-"]
    line += ["-filter_complex", text, *raw, "-"]
    done = subprocess.run(line, input=x.tobytes(), capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ffmpeg: {done.stderr.decode()[-500:]}")
    return np.frombuffer(done.stdout, np.uint8).reshape(rows, columns)


def _speed() -> dict[str, dict[str, float]]:
    """Pictures a second of 640 x 480, 4:2:0, by all cores, a picture each; medians of three."""
    look = Look(640, 480, "yuv420p", 8, "yuv", halved=(1, 1))
    chance = np.random.default_rng(0)
    planes = tuple(chance.integers(0, 256, shape, np.uint8) for shape in look.shapes)
    window = Window(Frame(planes, 0, 1, Fraction(1, 25), look))
    found: dict[str, dict[str, float]] = {}
    for name, make in (("denoise", _denoising(25)), ("deblock", _deblocking)):
        for size in SIZES:
            found[f"{name}-{size}"] = {
                dtype: _rate(make(size, dtype), look, window)
                for dtype in (("float32", "int8") if name == "deblock" else ("float32",))
            }
    print(found)
    return found


def _rate(stage: Stage, look: Look, window: Window) -> float:
    works = [stage.bound(look) for _ in range(host().compute_units)]
    seconds = []
    with ThreadPoolExecutor(len(works)) as pool:
        for _ in range(4):
            begin = time.perf_counter()
            list(pool.map(lambda work: list(work(window)), works))
            seconds.append(time.perf_counter() - begin)
    return len(works) / statistics.median(seconds[1:])


if __name__ == "__main__":
    main()
