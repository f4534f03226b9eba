"""Pictures between pictures: every second one of seven clips dropped and made again, beside ffmpeg.

    python -m bench.interpolate CLIPS [--only PART ...] [--seconds 150] [--output FILE]
    python -m bench.interpolate CLIPS --only speed [--device cuda:0]

    clips   PSNR of luma of the dropped pictures, by the stage as it is and with `fuse-s`, by
            ffmpeg's minterpolate as it is and with all it can, by mixing both neighbours, and by
            repeating the one before
    text    the same inside a title and a subtitle that were drawn over 40 pictures of each clip,
            which x264 (CRF 18) encoded then; of the stage both ways, the copy and the mix
    speed   pictures made a second by one thread and by one a core, by the clock, which wants the
            machine alone; and by the processor's time of one, which does not; as it is and with
            `fuse-s`; of what --device names, where there is no network, by the clock alone: from
            planes in memory to planes in memory. A processor by its OpenCL driver has time of all
            its threads, beside what the host's loops take of one

The seven are the clips in which no scene ends. The same line goes on with what is not in FILE yet,
and ends after --seconds, until it says that all is done. Pictures that minterpolate leaves out, two
at the ends of a clip, are left out of all.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench.environment import RESULTS, environment
from bench.restore_cases import encoded
from bench.timing import load_average
from tilewright import video
from tilewright.facts.device import Device
from tilewright.inputs.devices import host
from tilewright.video.decode import planes
from tilewright.video.look import Frame, Look
from tilewright.video.motion_places import place_of
from tilewright.video.pyav import pyav
from tilewright.video.stages.contract import Window, Work

NDArray = npt.NDArray[Any]
Pictures = list[NDArray]
CLIPS = (
    *("flower.mp4", "stream-of-water.mp4", "rabbit320.mp4", "signing-book.mkv"),
    *("person-green-wall.mp4", "cars-from-above.mp4", "bunny-720p.mp4"),
)
NET = "fuse-s"
PARTS = ("clips", "text", "speed")
MCI = {
    "minterpolate": "mi_mode=mci",
    "minterpolate, all it can": "mi_mode=mci:mc_mode=aobmc:me_mode=bidir:vsbmc=1",
}
SIZES = ((640, 480), (960, 540), (1280, 720))
_WRITTEN, _CRF = 40, 18
_TICKS = 20  # a second, of pictures that ffmpeg is given and gives


def main() -> None:
    """Read the command line and measure what is not measured yet."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.interpolate", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("clips", type=Path)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--device", default="host", help="where speed is measured")
    parser.add_argument("--output", type=Path, help="left out: bench/results/interpolate-....json")
    options = parser.parse_args()
    device = place_of(options.device)
    gpu = device.backend != "host"
    if gpu and tuple(options.only) != ("speed",):
        parser.error(f"--device={options.device}: accepted beside it is --only speed")
    options.output = options.output or RESULTS / f"interpolate-{_short(device)}.json"
    until = time.monotonic() + options.seconds
    document = json.loads(options.output.read_text()) if options.output.exists() else {}
    for part in options.only:
        if part == "speed":
            document[part] = speeds(options.clips, device)
            if not gpu:
                document[f"speed, {NET}"] = speeds(options.clips, device, NET)
            _write(document, options.output, device)
            continue
        for name in CLIPS:
            entry = document.setdefault(part, {}).setdefault(name, {})
            for way, made in (_ways if part == "clips" else _written)(options.clips / name).items():
                if way in entry:
                    continue
                if time.monotonic() > until:
                    print("time is over; the same line goes on")
                    return
                entry[way] = made()
                _write(document, options.output, device)
            said = {way: round(value, 2) for way, value in means(entry).items()}
            print(part, name, said, flush=True)
    print("all is done")


def _short(device: Device) -> str:
    """What results of a device are called: cpu, h200, opencl-intel."""
    if device.backend == "opencl":
        return f"opencl-{device.platform.lower().partition(' ')[0].partition('(')[0]}"
    return "cpu" if device.backend == "host" else device.name.lower().split()[1]


def _write(document: dict[str, Any], path: Path, device: Device) -> None:
    document["environment"] = environment(device)
    document["load_before"] = load_average()
    path.write_text(json.dumps(document) + "\n")


def means(entry: dict[str, Any]) -> dict[str, float]:
    """Means by way, over the pictures that all ways made."""
    ways = {name: values for name, values in entry.items() if name != "notes"}
    whole = [n for n, row in enumerate(zip(*ways.values(), strict=True)) if None not in row]
    return {name: statistics.fmean(values[n] for n in whole) for name, values in ways.items()}


def lumas(path: Path, most: int | None = None) -> Pictures:
    """Luma of a clip's pictures, the first so many."""
    frames = zip(video.frames(path), range(most or 1 << 30), strict=False)
    return [frame.planes[0].copy() for frame, _ in frames]


def psnr(found: NDArray, right: NDArray, where: NDArray | None = None) -> float:
    """Decibels of eight bits, over all samples or some."""
    apart = found.astype(np.float64) - right
    square = float((apart**2 if where is None else apart[where] ** 2).mean())
    return round(float(10 * np.log10(255**2 / max(square, 1e-3))), 4)


def _ways(path: Path) -> dict[str, Callable[[], Any]]:
    pictures = lumas(path)
    kept, right = pictures[::2], pictures[1:-1:2]

    def judged(made: Callable[[Pictures], Sequence[NDArray | None]]) -> list[float | None]:
        pairs = zip(made(kept), right, strict=False)
        return [None if one is None else psnr(one, other) for one, other in pairs]

    found: dict[str, Callable[[], Any]] = {
        "copy": lambda: judged(list),
        "mix": lambda: judged(mixes),
        "stage": lambda: judged(lambda given: lumas_of(staged(given))),
        NET: lambda: judged(lambda given: lumas_of(staged(given, NET))),
        "notes": lambda: _notes(staged(kept)),
    }
    for name, text in MCI.items():
        found[name] = partial(judged, partial(by_ffmpeg, text=text))
    return found


def _notes(frames: Sequence[Frame]) -> dict[str, int]:
    words = [note for frame in frames for note in frame.notes]
    return {one: words.count(one) for one in sorted(set(words))}


def mixes(pictures: Pictures) -> Pictures:
    """The mean of each picture and the next."""
    pairs = pairwise(pictures)
    return [((a.astype(np.int32) + b + 1) // 2).astype(np.uint8) for a, b in pairs]


def lumas_of(frames: Sequence[Frame]) -> Pictures:
    """Luma of what the stage gave."""
    return [one.planes[0] for one in frames]


def staged(pictures: Pictures, net: str = "none") -> list[Frame]:
    """What the stage puts between each picture and the next, a picture a core."""
    rows, columns = pictures[0].shape
    look = Look(columns, rows, "gray", 8, "grey")
    frames = [Frame((one,), n, 1, Fraction(1), look) for n, one in enumerate(pictures)]
    stage = video.Interpolate(2, known=True, device="host", net=net)
    works = [stage.bound(look) for _ in range(host().compute_units)]

    def one(number: int) -> Frame:
        work = works.pop()
        try:
            _, made = work(Window(frames[number], (), (frames[number + 1],)))
            return made
        finally:
            works.append(work)

    with ThreadPoolExecutor(len(works)) as pool:
        return list(pool.map(one, range(len(frames) - 1)))


def by_ffmpeg(pictures: Pictures, text: str) -> list[NDArray | None]:
    """The same by its filter, by time; None where it gives no picture."""
    av = pyav()
    rows, columns = pictures[0].shape
    graph = av.filter.Graph()
    chain = [
        graph.add_buffer(width=columns, height=rows, format="gray", time_base=Fraction(1, _TICKS)),
        graph.add("format", "pix_fmts=yuv420p"),
        graph.add("minterpolate", f"fps={_TICKS}:{text}"),
        graph.add("format", "pix_fmts=gray"),
        graph.add("buffersink"),
    ]
    for one, other in pairwise(chain):
        one.link_to(other)
    graph.configure()
    found: dict[Fraction, NDArray] = {}

    def drained() -> None:
        while True:
            try:
                frame = graph.pull()
            except (av.BlockingIOError, av.EOFError):
                return
            plane = frame.planes[0]
            whole = np.frombuffer(plane, np.uint8).reshape(-1, plane.line_size)
            found[frame.pts * frame.time_base] = whole[:rows, :columns].copy()

    for number, picture in enumerate(pictures):
        frame = av.VideoFrame.from_ndarray(picture, format="gray")
        frame.pts, frame.time_base = 2 * number, Fraction(1, _TICKS)
        graph.push(frame)
        drained()
    graph.push(None)
    drained()
    return [found.get(Fraction(2 * n + 1, _TICKS)) for n in range(len(pictures) - 1)]


def _written(path: Path) -> dict[str, Callable[[], Any]]:
    """PSNR inside the text."""
    pictures = [picture.copy() for picture in lumas(path, _WRITTEN)]
    rows, columns = (length // 2 * 2 for length in pictures[0].shape)
    pictures = [picture[:rows, :columns] for picture in pictures]
    where = written(pictures)
    grey = np.full((rows // 2, columns // 2), 128, np.uint8)
    coded = [one[0] for one in encoded([(one, grey, grey) for one in pictures], _CRF)]
    kept, right = coded[::2], coded[1:-1:2]

    def judged(made: Sequence[NDArray]) -> list[float]:
        return [psnr(one, other, where) for one, other in zip(made, right, strict=False)]

    return {
        "copy": lambda: judged(kept),
        "mix": lambda: judged(mixes(kept)),
        "stage": lambda: judged(lumas_of(staged(kept))),
        NET: lambda: judged(lumas_of(staged(kept, NET))),
    }


def written(pictures: Pictures) -> NDArray:
    """Draw a title and a subtitle, white with a dark line round it, and give where they are."""
    from PIL import Image, ImageDraw, ImageFont

    rows, columns = pictures[0].shape
    fill, line = Image.new("L", (columns, rows)), Image.new("L", (columns, rows))
    for text, size, high in (("A still title", 9, 0.12), ("and what somebody says.", 16, 0.9)):
        font = ImageFont.load_default(rows / size)
        place, wide = (columns / 2, rows * high), max(1, rows // 240)
        for image, stroke in ((fill, 0), (line, wide)):
            ImageDraw.Draw(image).text(place, text, 255, font, "mm", stroke_width=stroke)
    inside, outline = np.asarray(fill) / 255, np.asarray(line) / 255
    for picture in pictures:
        dark = picture + outline * (16 - picture.astype(np.float64))
        picture[:] = np.rint(dark + inside * (235 - dark))
    return np.asarray(outline > 0.5)


def speeds(clips: Path, device: Device, net: str = "none") -> dict[str, Any]:
    """Pictures made a second, of two pictures of a clip at these sizes, 4:2:0."""
    frames = [frame for frame, _ in zip(video.frames(clips / CLIPS[0]), range(44), strict=False)]
    frames = frames[40:44:2]
    found = {}
    on_host = device.backend == "host"
    for size in SIZES:
        name = f"{size[0]}x{size[1]}"
        stage = video.Interpolate(2, known=True, device=device.id, net=net)
        if device.backend == "opencl" and device.kind == "cpu":
            loops = video.Interpolate(2, known=True, device="host")
            for words, one in (("own times", stage), ("host's own times", loops)):
                found[f"{name}, {words}"] = _rate(frames, size, 1, time.process_time, one)
            continue
        for workers in (1, stage.workers):
            found[f"{name}, {workers}"] = _rate(frames, size, workers, time.perf_counter, stage)
        if on_host:
            found[f"{name}, own time"] = _rate(frames, size, 1, time.thread_time, stage)
    return found


def _rate(
    frames: Sequence[Frame],
    size: tuple[int, int],
    workers: int,
    clock: Callable[[], float],
    stage: video.Interpolate,
) -> float:
    look = Look(*size, "yuv420p", 8, "yuv", (1, 1))
    made = [frame.carrier.reformat(*size, "yuv420p") for frame in frames]
    pair = [Frame(planes(one, look), n, 1, Fraction(1), look) for n, one in enumerate(made)]
    window = Window(pair[0], (), (pair[1],))
    works = [stage.bound(look) for _ in range(workers)]
    rounds = 200 if place_of(stage.device).kind == "gpu" else 6

    def again(work: Work) -> None:
        for _ in range(rounds):
            list(work(window))

    times = []
    with ThreadPoolExecutor(workers) as pool:
        for _ in range(4):
            begin = clock()
            if workers == 1:  # in this thread, whose own time may be asked for
                again(works[0])
            else:
                list(pool.map(again, works))
            times.append((clock() - begin) / (rounds * workers))
    return round(1 / statistics.median(times[1:]), 2)


if __name__ == "__main__":
    main()
