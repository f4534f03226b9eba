"""A run of a net that takes damage away: the same for noise and for what compression did.

    learn      from its checkpoint on, until the run is over or this call's seconds are
    held_out   the photographs that lines of the log judge by: none that the net learns from

A run may be cut into calls: its schedule is over all of them (--minutes), and --seconds ends a call
with a checkpoint. The test photographs are not read here.
"""

from __future__ import annotations

import argparse
import io
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train import checkpoints
from train.damage import Blocky, Noisy, told
from train.photographs import NDArray, files_of, luma_of
from train.restorer import DEPTHS, Restorer, run
from train.steps import CHUNK, Plan, Steps, falling

_BEGAN = time.monotonic()
_SAVED = 60.0  # seconds between checkpoints
_HELD = 16  # each so-manieth photograph judges
SCALES = (1.0, 0.8, 0.6)  # photographs are learned from as they are and smaller
Damaged = Noisy | Blocky
Judge = Callable[[Callable[[Tensor], Tensor]], str]


@dataclass(frozen=True)
class Task:
    """A run: what a checkpoint must agree with to be gone on from."""

    kind: str
    size: str
    seed: int
    batch: int
    crop: int
    rate: float
    minutes: float
    steps: int

    @property
    def name(self) -> str:
        """Of files."""
        return f"{self.kind}-{self.size}"


@dataclass(frozen=True)
class Means:
    """By what a run is made, and the seconds of this call (0: all)."""

    device: str
    half: bool
    graph: bool
    seconds: float

    def ended(self) -> bool:
        """Whether this call's seconds are over, counted from its beginning."""
        return 0 < self.seconds <= time.monotonic() - _BEGAN


def options(kind: str, page: str | None) -> argparse.Namespace:
    """The command line that all such recipes have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m train.{kind}", description=page,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--size", choices=DEPTHS, required=True)
    parser.add_argument("--data", required=True, help="a folder with train/ (and test/)")
    parser.add_argument("--coded", default="", help="what train.coded wrote; deblock needs it")
    parser.add_argument("--out", default="trained", help="where checkpoints lie")
    parser.add_argument("--minutes", type=float, default=16.0, help="of learning, over all calls")
    parser.add_argument("--seconds", type=float, default=0.0, help="at most, of this call")
    parser.add_argument("--steps", type=int, default=0, help="in the place of --minutes")
    parser.add_argument("--int8", action="store_true", help="teach a learned net to round; CPU")
    parser.add_argument("--export", metavar="FOLDER", help="write ONNX and .npz there")
    parser.add_argument("--card", metavar="FOLDER", help="write the card there, by --figures")
    parser.add_argument("--figures", default="bench/results/restore-cpu.json", help="for the card")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--crop", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.0, help="largest; the size's by default")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--single", action="store_true", help="single precision on CUDA too")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    return parser.parse_args()


def task_of(kind: str, given: argparse.Namespace) -> Task:
    """The run that a command line asks for."""
    rate = given.rate or DEPTHS[given.size].rate
    return Task(
        kind, given.size, given.seed, given.batch, given.crop, rate, given.minutes, given.steps
    )


def means_of(given: argparse.Namespace) -> Means:
    """The means that it asks for: half precision and graphs on CUDA."""
    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    half = device == "cuda" and not given.single
    return Means(device, half, not given.eager, given.seconds)


def learn(task: Task, means: Means, crops: Damaged, judge: Judge, out: Path) -> Path:
    """Run a task to the end of the call; returns the checkpoint's path.

    Raises ValueError where a checkpoint is of another task, FloatingPointError where the loss is
    not a number any more.
    """
    torch.backends.cudnn.allow_tf32 = True
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{task.name}.pt"
    torch.manual_seed(task.seed)
    net = Restorer(DEPTHS[task.size]).to(means.device)
    plan = Plan(task.rate, task.batch, task.seed, means.half, decibels=True)
    steps = Steps(net.tensors, run, lambda: net.tensors, crops, plan)
    spent = 0.0
    if path.exists():
        kept = checkpoints.read(path, asdict(task))
        steps.load(kept["steps"])
        spent = kept["seconds"]
    log = _Log(task, judge, means.device, spent)
    began, saved = time.monotonic() - spent, time.monotonic()
    while (over := _over(task, steps.done, spent)) < 1 and not means.ended():
        count = min(CHUNK, task.steps - steps.done) if task.steps else CHUNK
        loss = steps.run(count, _shares(task, over), means.graph)
        if not math.isfinite(loss):
            raise FloatingPointError(f"{task.name}: the loss is {loss} after {steps.done} steps")
        spent = time.monotonic() - began
        log.line(steps, spent, loss, _over(task, steps.done, spent))
        if time.monotonic() - saved > _SAVED:
            checkpoints.write(path, asdict(task), steps, spent, {})
            saved = time.monotonic()
    checkpoints.write(path, asdict(task), steps, spent, {})
    log.say(steps, spent, math.nan)
    return path


def _over(task: Task, done: int, spent: float) -> float:
    """The share of the run that is over."""
    return done / task.steps if task.steps else spent / (60 * task.minutes)


def _shares(task: Task, over: float) -> Callable[[int], float]:
    """The share of the learning rate by a step's number."""
    return lambda number: falling(number / task.steps if task.steps else over)


class _Log:
    """A line twenty times a run: how good the averaged net is by now."""

    def __init__(self, task: Task, judge: Judge, device: str, spent: float) -> None:
        self._task, self._judge, self._device = task, judge, device
        self._next = math.floor(20 * spent / (60 * task.minutes)) / 20 + 0.05

    def line(self, steps: Steps, seconds: float, loss: float, over: float) -> None:
        """Print it where the next twentieth of the run is over."""
        if over >= self._next:
            self._next += 0.05
            self.say(steps, seconds, loss)

    @torch.no_grad()
    def say(self, steps: Steps, seconds: float, loss: float) -> None:
        """Print it."""
        net = Restorer(DEPTHS[self._task.size]).take(steps.averages).to(self._device)
        text = f"{self._task.name}: {steps.done} steps, {seconds:.0f} s, loss {loss:.3f}"
        print(f"{text}; {self._judge(net)}", flush=True)


def split(folder: Path) -> tuple[list[NDArray], list[NDArray], list[str]]:
    """Photographs to learn from, at all scales, and to judge by (uint8), and the latter's names.

    A closer crop of a photograph that judges (`-b`) is neither learned from nor judged by.
    """
    files = files_of(folder / "train")
    whole = [path for path in files if not path.stem.endswith("-b")]
    held = {path.stem for path in whole[::_HELD]}
    learned, judging = [], []
    for path in files:
        if path.stem in held:
            judging.append(_codes(luma_of(path)))
        elif path.stem.removesuffix("-b") not in held:
            luma = luma_of(path)
            learned += [_codes(smaller(luma, scale)) for scale in SCALES]
    return learned, judging, sorted(held)


def smaller(luma: NDArray, scale: float) -> NDArray:
    """By an antialiased bicubic filter."""
    if scale == 1:
        return luma
    size = [round(length * scale) for length in luma.shape]
    x = torch.from_numpy(luma)[None, None]
    return np.asarray(functional.interpolate(x, size, mode="bicubic", antialias=True)[0, 0].numpy())


def _codes(luma: NDArray) -> NDArray:
    return np.asarray(luma.round().clip(0, 255), np.uint8)


def decibels(got: Tensor, wanted: NDArray) -> float:
    """Of a picture of 0 to 1, rounded to codes, against codes."""
    codes = (got.double().clamp(0, 1) * 255).round()
    difference = codes - torch.from_numpy(wanted).to(got.device).double()
    return 10 * math.log10(255**2 / max(1e-9, float((difference**2).mean())))


def gain(
    net: Callable[[Tensor], Tensor], pairs: list[tuple[NDArray, NDArray]], what: float, device: str
) -> tuple[float, float]:
    """Mean decibels of damaged pictures (the first sides), and how many more a net gives them."""
    before, after = [], []
    for damaged, clean in pairs:
        x = torch.from_numpy(damaged).to(device)[None, None].float() / 255
        before.append(decibels(x[0, 0], clean))
        after.append(decibels(net(told(x, what))[0, 0], clean))
    return float(np.mean(before)), float(np.mean(after) - np.mean(before))


def noisy(clean: NDArray, strength: float, seed: int) -> NDArray:
    """Under Gaussian noise, cut and rounded to codes: as a film stores it."""
    noise = np.random.default_rng(seed).normal(0, strength, clean.shape)
    return _codes(clean + noise)


def as_jpeg(clean: NDArray, quality: int) -> NDArray:
    """As Pillow's JPEG keeps a grey picture."""
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(clean).save(file, "JPEG", quality=quality)
    return np.asarray(Image.open(file))
