"""Small objects found in photographs and clips that no network learned from, and how fast.

    python -m bench.detect IMAGES CLIPS [--only photographs clips both speed] [--output FILE.json]

IMAGES holds test/. Drawn objects of 10 to 16 samples, by other seeds than those that were learned
from, eight a picture of 640 x 360 (`train/scenes.py`); in clips they move, and the clip is encoded
again with them (x264, CRF 23), and one that hardly differs from what it moves over counts neither
way in that picture. Clips go through the stages that `--detect` means. A thing is found by a box of
its class that overlaps it by half; every other box is false. Beside the network stand blobs, the
extremes of the Laplacian of Gaussians over scales (Lindeberg 1998), which know no classes and see
every fourth picture; and, for speed, onnxruntime with the same network in the same stage. Speed
wants the machine for itself.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from bench.environment import RESULTS, environment
from bench.timing import load_average
from tilewright import models, video
from tilewright.inputs.devices import host
from tilewright.video.detection import heat
from tilewright.video.detection.boxes import Boxes, merged
from tilewright.video.detection.kinds import KINDS
from tilewright.video.detection.things import Found
from tilewright.video.look import Frame
from tilewright.video.stages.contract import Window, Work, windows
from tilewright.video.stages.follow import UNSURE
from train.photographs import NDArray, files_of
from train.scenes import (
    HIGH,
    LOOK,
    WIDE,
    Row,
    Thing,
    by_kind,
    coded,
    framed,
    judged,
    moving,
    pasted,
    photograph,
    scene,
    thing,
    without_hidden,
)

PARTS = ("photographs", "clips", "both", "speed")
_THINGS, _PICTURES, _FOURTH = 8, 12, 4
_RATE, _HALF = 0.1, 0.5
_LEAST = 0.02  # score of boxes that are judged
_ROUNDS, _EACH = 5, 6
_SCALES = (2.5, 3.2, 4.0, 5.0)  # deviations of blobs, of radii 3.5 to 7 samples
Case = list[tuple[NDArray, NDArray, Frame]]  # what is there: corners, kinds; and the picture


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.detect", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("images", type=Path)
    parser.add_argument("clips", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--output", type=Path, default=RESULTS / "detect-cpu.json")
    options = parser.parse_args()
    path: Path = options.output
    document: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {"cases": []}
    document |= {"environment": environment(host()), "load_before": load_average()}
    sources: dict[str, Callable[[], list[Case]]] = {
        "photographs": lambda: [[one] for one in photographs(options.images)],
        "clips": lambda: list(clips(options.clips)),
        "both": lambda: [*([one] for one in photographs(options.images)), *clips(options.clips)],
    }
    for part in options.only:
        if part == "speed":
            document["speed"] = speeds()
            print(document["speed"])
            continue
        found = measured(part, sources[part]())
        print(found)
        document["cases"] = [one for one in document["cases"] if one["name"] != part] + [found]
    path.write_text(json.dumps(document, indent=1) + "\n")


def photographs(folder: Path) -> Case:
    """Objects in the middles of the test photographs."""
    found = []
    for number, path in enumerate(files_of(folder / "test")):
        one = scene(photograph(path), _THINGS, 10_000 + number)
        found.append((one.corners, one.kinds, _still(one.picture, number)))
    return found


def _still(picture: NDArray, number: int) -> Frame:
    """Red, green, blue of 0 to 1 as a film's picture, 4:2:0."""
    import av

    codes = np.rint(picture.transpose(1, 2, 0) * 255).clip(0, 255).astype(np.uint8)
    made = av.VideoFrame.from_ndarray(codes, "rgb24").reformat(format="yuv420p")
    return framed(made, number)


def clips(folder: Path) -> Iterator[Case]:
    """Objects that move through the first pictures of each clip, encoded with it again."""
    paths = sorted(path for path in folder.glob("*") if path.suffix in (".mp4", ".mkv", ".webm"))
    for number, path in enumerate(paths):
        yield clip(path, 20_000 + number)


def clip(path: Path, seed: int) -> Case:
    """One clip: its first pictures, made 640 x 360."""
    scenes = moving(_opened(path), _PICTURES, seed)
    frames = coded([one.picture for one in scenes])
    return [(one.corners, one.kinds, frame) for one, frame in zip(scenes, frames, strict=True)]


def _opened(path: Path) -> Iterator[NDArray]:
    import av
    from PIL import Image, ImageOps

    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            small = ImageOps.fit(frame.to_image(), (WIDE, HIGH), Image.Resampling.BICUBIC)
            yield np.ascontiguousarray(np.asarray(small, np.float32).transpose(2, 0, 1) / 255)


def measured(name: str, cases: list[Case]) -> dict[str, Any]:
    """Shares that are found, and false boxes."""
    ours: list[Row] = []
    alone: list[Row] = []
    for case in cases:
        for found, way in ((ours, followed), (alone, by_itself)):
            seen = way([frame for *_, frame in case])
            for (corners, kinds, _), boxes in zip(case, seen, strict=True):
                found.append(without_hidden(corners, kinds, boxes))
    pictures = [one for case in cases for one in case]
    blobs = [
        without_hidden(corners, kinds, blobs_of(frame))
        for corners, kinds, frame in pictures[::_FOURTH]
    ]
    exact, any_kind = judged(ours), judged(ours, kind=False)
    recall, score = exact.recall(_RATE)
    return {
        "name": name, "pictures": exact.pictures, "things": exact.things,
        "recall": recall, "score": score,
        "at_half": float((exact.hits >= _HALF).sum() / exact.things),
        "false_at_half": float((exact.wrong >= _HALF).sum() / exact.pictures),
        "any_kind": any_kind.recall(_RATE)[0],
        "overlap of a third": judged(ours, alike=1 / 3).recall(_RATE)[0],
        "alone": judged(alone).recall(_RATE)[0],
        "by_kind": by_kind(ours, score),
        "blobs": judged(blobs, kind=False).recall(_RATE)[0],
        "blobs, eight false": judged(blobs, kind=False).recall(8.0)[0],
    }  # fmt: skip


def by_itself(frames: Sequence[Frame]) -> list[Boxes]:
    """What is found in each picture by itself."""
    work = video.Detect(score=_LEAST).bound(LOOK)
    return [_boxes(seen) for frame in frames for seen in work(Window(frame))]


def followed(frames: Sequence[Frame]) -> list[Boxes]:
    """What the stages find that `--detect` means, at any score."""
    find, follow = video.Detect(score=UNSURE * _HALF), video.Follow(_LEAST)
    work = find.bound(LOOK)
    looked = (seen for frame in frames for seen in work(Window(frame)))
    vote = follow.bound(LOOK)
    return [_boxes(seen) for window in windows(follow, looked) for seen in vote(window)]


def _boxes(seen: Frame) -> Boxes:
    assert isinstance(seen.found, Found)
    things = seen.found.things
    corners = [(one.x, one.y, one.x + one.w, one.y + one.h) for one in things]
    kinds = [KINDS.index(one.kind) for one in things]
    scores = np.asarray([one.score for one in things])
    return Boxes(np.asarray(corners).reshape(-1, 4), scores, np.asarray(kinds, np.int64))


def blobs_of(frame: Frame) -> Boxes:
    """Extremes of the Laplacian of Gaussians over places and scales, square boxes, of kind 0."""
    from scipy import ndimage

    luma = frame.planes[0].astype(np.float32) / 255
    stack = np.stack([abs(s**2 * ndimage.gaussian_laplace(luma, s)) for s in _SCALES])
    peaks = (stack == ndimage.maximum_filter(stack, 3)) & (stack > 0.05)
    scale, row, column = np.nonzero(peaks)
    radius = np.asarray(_SCALES)[scale] * np.sqrt(2)
    corners = np.stack([column - radius, row - radius, column + radius, row + radius], -1) + 0.5
    return merged(Boxes(corners, stack[peaks], np.zeros(len(row), np.int64)))


def speeds() -> dict[str, float]:
    """Pictures a second of 640 x 360: the stage, and the same with onnxruntime's network."""
    chance = np.random.default_rng(0)
    y, x = np.mgrid[:HIGH, :WIDE]
    luma = 128 + 60 * np.sin(x / 9) * np.cos(y / 7) + chance.normal(0, 8, (HIGH, WIDE))
    picture = np.stack([luma / 255] * 3).clip(0, 1).astype(np.float32)
    for number in range(_THINGS):
        one: Thing = thing(number % 4, number)
        picture, _ = pasted(picture, one, 60.0 + 70 * number, 60.0 + 30 * number)
    window = Window(_still(picture, 0))
    cores = host().compute_units
    ways = {
        "tilewright": [video.Detect().bound(LOOK) for _ in range(cores)],
        "tilewright, without the mirror image": [
            video.Detect(mirrored=False).bound(LOOK) for _ in range(cores)
        ],
        "onnxruntime, a picture a core": [_by_onnxruntime(1) for _ in range(cores)],
        "onnxruntime": [_by_onnxruntime(cores)],
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(_ROUNDS + 1):
        for name, works in ways.items():
            seconds = _run(works, window)
            times[name] += [seconds] if number else []
    return {name: 1 / statistics.median(some) for name, some in times.items()}


def _run(works: Sequence[Work], window: Window) -> float:
    """Seconds a picture, a picture a worker at once."""

    def some(work: Work) -> None:
        for _ in range(_EACH):
            list(work(window))

    with ThreadPoolExecutor(len(works)) as pool:
        begin = time.perf_counter()
        list(pool.map(some, works))
        return (time.perf_counter() - begin) / (_EACH * len(works))


def _by_onnxruntime(threads: int) -> Work:
    from bench.peers.film_onnxruntime import onnx_of, session

    made = session(onnx_of(models.load("detect-s"), heat.PLANES), threads)
    name = made.get_inputs()[0].name

    def run(planes: NDArray) -> NDArray:
        return np.asarray(made.run(None, {name: planes})[0])

    def looked(window: Window) -> list[Frame]:
        said = heat.both_ways(run, heat.planes(window.frame))[0]
        merged(heat.peaks(said, _HALF).inside(WIDE, HIGH))
        return [window.frame]

    return looked


if __name__ == "__main__":
    main()
