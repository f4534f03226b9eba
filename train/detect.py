"""Learns the net that finds small objects, of drawn ones in photographs and clips, and writes it.

    python -m train.detect --data PHOTOGRAPHS --half --seconds 450
    python -m train.detect --data PHOTOGRAPHS --export models
    python -m train.detect --card models --figures bench/results/detect-cpu.json
    python -m train.detect --data PHOTOGRAPHS --labels labels.csv --film FILM --out mine

PHOTOGRAPHS holds train/; every sixteenth of them is only judged by. Clips are made of the others
first, on all cores (`filmed.py`). The same line goes on from its checkpoint in --out; the schedule
is over --minutes, of which a call takes --seconds. With --labels, a table that `tilewright label`
proposed and a person corrected, the net that is brought along goes on with the film's pictures and
their boxes; --minutes 3 is enough, and its .npz lies in --out.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tilewright.video.detection.kinds import KINDS
from train import checkpoints
from train.filmed import Both, Filmed, make
from train.judging import LEAST, found, given, judging
from train.labelled import Marked, OfFilm, begun, marked
from train.pasted import Pasted, cost
from train.photographs import NDArray, files_of
from train.scenes import Given
from train.seeking import SIZES, Seeker, run
from train.shipped_detect import card, export, learned_by
from train.steps import CHUNK, Crops, Plan, Steps, falling

_BEGAN = time.monotonic()
_SAVED = 60.0  # seconds between checkpoints
_HELD = 16  # each so-manieth photograph judges
_SCALES = (1.0, 0.8, 0.6, 0.45)
_RATE = 0.1  # false boxes a picture


@dataclass(frozen=True)
class Task:
    """A run: what a checkpoint must agree with to be gone on from."""

    size: str
    seed: int
    batch: int
    crop: int
    each: int
    rate: float
    minutes: float
    steps: int
    labels: str = ""
    clips: int = 0
    half: bool = False


@dataclass(frozen=True)
class Best:
    """The averaged net that found most of what was held out; a net that learns on may find less."""

    share: float = -2.0
    tensors: Sequence[Tensor] = ()

    def or_now(self, steps: Steps, share: float) -> Best:
        """This one, or that of now, where more of it is found."""
        if share <= self.share:
            return self
        return Best(share, [one.clone() for one in steps.averages])

    def plain(self) -> dict[str, object]:
        """As a checkpoint has it."""
        return {"best": self.share, "tensors": list(self.tensors)}


class Seeking(Steps):
    """Steps whose cost is that of heat, sizes and places."""

    def _cost(self, got: Tensor, wanted: Tensor) -> Tensor:
        return cost(got, wanted) / 255


def main() -> None:
    """Read the command line and learn."""
    given = _options()
    task = Task(
        given.size, given.seed, given.batch, given.crop, given.each,
        given.rate or SIZES[given.size].rate, given.minutes, given.steps,
        clips=given.clips, half=given.half,
    )  # fmt: skip
    out = Path(given.out)
    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    if given.card:
        card(task.size, out, Path(given.figures), Path(given.card))
        return
    marks = marked(Path(given.labels), Path(given.film)) if given.labels else None
    if marks is not None:
        task = replace(task, labels=marks.mark, clips=0)
    if given.export:
        scenes = judging(split(Path(given.data), task.crop)[1])
        net = Seeker(SIZES[task.size]).take(learned_by(out / f"detect-{task.size}.pt"))
        _, score = found(net, scenes, "cpu").recall(_RATE)
        print(export(task.size, out, Path(given.export), len(KINDS), max(score, LEAST)))
        return
    if marks is not None:
        path = _of_labels(task, marks, given.data, device, out, given.seconds)
    else:
        learned, held = split(Path(given.data), task.crop)
        kept = make(
            learning(Path(given.data), held), Path(given.filmed or out / "filmed"), 0, given.clips
        )
        scenes = judging(held)
        pasted = Pasted(learned, task.crop, device, task.each, task.seed)
        crops = Both(pasted, Filmed(kept, task.crop, device)) if kept else pasted
        begin = partial(Seeker, SIZES[task.size])
        path = learn(task, begin, crops, scenes, device, out, given.seconds, not given.eager)
    print(path)


def _of_labels(
    task: Task, marks: Marked, data: str, device: str, out: Path, seconds: float
) -> Path:
    """What a table teaches, on top of what the net that is brought along knows; its .npz."""
    kinds = len(marks.classes)
    pasted = None
    if data and marks.classes == KINDS:
        learned, _ = split(Path(data), task.crop)
        pasted = Pasted(learned, task.crop, device, task.each, task.seed)
    crops = OfFilm(marks.learned, kinds, task.crop, device, pasted)

    def begin() -> Seeker:
        return begun(Seeker(SIZES[task.size], kinds), kinds)

    learn(
        task, begin, crops, [given(one) for one in marks.judging], device, out, seconds, graph=False
    )
    print(f"--classes {','.join(marks.classes)}")
    return export(task.size, out, out, kinds, 0.5)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m train.detect", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--size", choices=SIZES, default="s")
    parser.add_argument("--data", default="", help="a folder with train/")
    parser.add_argument("--out", default="trained", help="where checkpoints lie")
    parser.add_argument("--minutes", type=float, default=6.5, help="of learning, over all calls")
    parser.add_argument("--seconds", type=float, default=0.0, help="at most, of this call")
    parser.add_argument("--steps", type=int, default=0, help="in the place of --minutes")
    parser.add_argument("--labels", default="", help="a table that `tilewright label` proposed")
    parser.add_argument("--film", default="", help="the film that it is of")
    parser.add_argument("--export", metavar="FOLDER", help="write ONNX and .npz there")
    parser.add_argument("--card", metavar="FOLDER", help="write the card there, by --figures")
    parser.add_argument("--figures", default="bench/results/detect-cpu.json", help="for the card")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=96)
    parser.add_argument("--crop", type=int, default=160)
    parser.add_argument("--each", type=int, default=400, help="objects drawn of each kind")
    parser.add_argument("--rate", type=float, default=0.0, help="largest; the size's by default")
    parser.add_argument("--clips", type=int, default=5000, help="coded clips that are made first")
    parser.add_argument("--filmed", default="", help="where those lie; in --out by default")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--half", action="store_true", help="passes in half precision")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    return parser.parse_args()


def split(folder: Path, crop: int) -> tuple[list[NDArray], list[Path]]:
    """Photographs to learn from, uint8 [3, rows, columns] at all scales, and files to judge by."""
    from PIL import Image

    files = files_of(folder / "train")
    whole = [path for path in files if not path.stem.endswith("-b")]
    held = whole[::_HELD]
    learned = []
    for path in learning(folder, held):
        with Image.open(path) as picture:
            colours = picture.convert("RGB")
        for scale in _SCALES:
            size = [round(length * scale) for length in colours.size]
            if min(size) >= crop:
                small = colours if scale == 1 else colours.resize(size, Image.Resampling.BICUBIC)
                learned.append(np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1)))
    return learned, held


def learning(folder: Path, held: list[Path]) -> tuple[Path, ...]:
    """Files to learn from: none of what judges, and no part of that."""
    names = {path.stem for path in held}
    files = files_of(folder / "train")
    return tuple(path for path in files if path.stem.removesuffix("-b") not in names)


def learn(
    task: Task, begin: Callable[[], Seeker], crops: Crops, scenes: Sequence[Given], device: str,
    out: Path, seconds: float, graph: bool,
) -> Path:  # fmt: skip
    """Run a task to the end of the call; returns the checkpoint's path.

    begin: gives the net that it begins with, once chance is seeded.

    Raises ValueError where a checkpoint is of another task, FloatingPointError where the loss is
    not a number any more.
    """
    torch.backends.cudnn.allow_tf32 = True
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"detect-{task.size}.pt"
    torch.manual_seed(task.seed)
    net = begin().to(device)
    plan = Plan(task.rate, task.batch, task.seed, half=task.half)
    steps = Seeking(net.tensors, run, lambda: net.tensors, crops, plan)
    spent, best = 0.0, Best()
    if path.exists():
        kept = checkpoints.read(path, asdict(task))
        steps.load(kept["steps"])
        spent, best = kept["seconds"], Best(kept["best"], kept["tensors"])
    began, saved = time.monotonic() - spent, time.monotonic()
    following = math.floor(20 * _over(task, steps.done, spent)) / 20 + 0.05
    while (over := _over(task, steps.done, spent)) < 1 and not _ended(seconds):
        count = min(CHUNK, task.steps - steps.done) if task.steps else CHUNK
        loss = steps.run(count, _shares(task, over), graph)
        if not math.isfinite(loss):
            raise FloatingPointError(f"{path.stem}: the loss is {loss} after {steps.done} steps")
        spent = time.monotonic() - began
        if _over(task, steps.done, spent) >= following:
            following += 0.05
            best = best.or_now(steps, _said(task, steps, spent, loss, scenes, device))
        if time.monotonic() - saved > _SAVED:
            checkpoints.write(path, asdict(task), steps, spent, best.plain())
            saved = time.monotonic()
    checkpoints.write(path, asdict(task), steps, spent, best.or_now(steps, -1.0).plain())
    return path


def _ended(seconds: float) -> bool:
    """Whether this call's seconds are over, counted from its beginning."""
    return 0 < seconds <= time.monotonic() - _BEGAN


def _over(task: Task, done: int, spent: float) -> float:
    """The share of the run that is over."""
    return done / task.steps if task.steps else spent / (60 * task.minutes)


def _shares(task: Task, over: float) -> Callable[[int], float]:
    """The share of the learning rate by a step's number."""
    return lambda number: falling(number / task.steps if task.steps else over)


def _said(
    task: Task, steps: Steps, seconds: float, loss: float, scenes: Sequence[Given], device: str
) -> float:
    kinds = len(steps.averages[-1]) - 4
    net = Seeker(SIZES[task.size], kinds).take(steps.averages).to(device)
    share, score = found(net, scenes, device).recall(_RATE)
    print(
        f"detect-{task.size}: {steps.done} steps, {seconds:.0f} s, loss {loss:.3f}; recall"
        f" {share:.3f} at {_RATE} false a picture, from {score:.2f} on", flush=True,
    )  # fmt: skip
    return float(share)


if __name__ == "__main__":
    main()
