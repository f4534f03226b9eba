"""Learns a net that enlarges luma twice, as a plain one and in int8, and writes it with its card.

    python -m train.superres --size m --data PHOTOGRAPHS --minutes 8
    python -m train.superres --size m --data PHOTOGRAPHS --minutes 1.5 --int8
    python -m train.superres --size m --data PHOTOGRAPHS --export models

Further runs make it better by a few hundredths of a decibel; the cards say how many there were:

    ... --minutes 8 --teacher trained/superres-l.pt        from what size l makes, too
    ... --minutes 2 --start trained/superres-m.pt --out last --decibels --rate 2e-4

PHOTOGRAPHS holds train/ and test/. Every minute a checkpoint is written to --out; the same line
goes on from there, and a line that is done does nothing. Sizes: s 16 channels and 3 inner layers, m
32 and 4, l 64 and 4 (`nets.py`). --steps in the place of --minutes makes a run that is the same
every time on a processor.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from tilewright.pytorch import qat
from train import checkpoints
from train.eight_bits import STAGES, Rounded, Settled, ranges_of, rounding, sample
from train.export import export
from train.judged import bicubic, judged
from train.nets import SIZES, Branched, balanced, plain_of
from train.photographs import Crops, Pair, eightfold, pairs_of, taught
from train.steps import CHUNK, Plan, Steps, falling

_SAVED = 60.0  # seconds between checkpoints
_OWN = 0.5  # share of the float32 net's own output in what int8 learns from
_FLAT = 1e-5  # squared difference below which its crops count less


@dataclass(frozen=True)
class Task:
    """A run: what a checkpoint must agree with to be gone on from."""

    size: str
    int8: bool
    seed: int
    batch: int
    crop: int
    rate: float
    decibels: bool = False
    taught: float = 0.0
    stage: int = 0

    @property
    def name(self) -> str:
        """Of files."""
        stage = f"-{self.stage}" if self.int8 and self.stage + 1 < len(STAGES) else ""
        return f"superres-{self.size}" + ("-int8" if self.int8 else "") + stage


@dataclass(frozen=True)
class Limits:
    """When a run ends, and by what means it runs."""

    steps: int
    minutes: float
    device: str
    half: bool
    graph: bool

    def over(self, done: int, seconds: float) -> float:
        """The share of the run that is over."""
        return done / self.steps if self.steps else seconds / (60 * self.minutes)


def main() -> None:
    """Read the command line, learn, or export what was learned."""
    options = _options()
    folder = Path(options.data)
    rate = options.rate or SIZES[options.size].rate
    task = Task(
        options.size,
        options.int8,
        options.seed,
        options.batch,
        options.crop,
        rate,
        options.decibels,
        options.share if options.teacher else 0.0,
    )
    if options.export:
        export(task.size, Path(options.out), folder, Path(options.export))
        return
    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    half = device == "cuda" and not options.single and not options.int8
    limits = Limits(options.steps, options.minutes, device, half, not options.eager)
    pairs = pairs_of(folder / "train")
    test = pairs_of(folder / "test")[:: options.judge] if options.judge else []
    out = Path(options.out)
    if options.teacher:
        net = plain_of(SIZES["l"], checkpoints.net(Path(options.teacher))).to(device)
        pairs = taught(pairs, eightfold(net), task.taught, device)
    if task.int8:
        learn_int8(task, limits, pairs, test, out)
    else:
        learn(task, limits, pairs, test, out, options.start and Path(options.start))


def learn_int8(task: Task, limits: Limits, pairs: list[Pair], test: list[Pair], out: Path) -> Path:
    """The stages of int8 one after another; returns the last checkpoint's path."""
    path = out
    net = _learned(task, out, limits.device)
    pairs = taught(pairs, lambda x: net(x.double()), _OWN, limits.device)
    for number, stage in enumerate(STAGES):
        steps, minutes = math.ceil(limits.steps * stage.share), limits.minutes * stage.share
        mine = replace(limits, steps=steps, minutes=minutes, half=False)
        rate = task.rate * stage.rate
        path = learn(replace(task, stage=number, rate=rate), mine, pairs, test, out)
    return path


def _learned(task: Task, out: Path, device: str) -> nn.Sequential:
    """The net that a run in int8 begins from, in float64: what it is judged by is not rounded."""
    path = out / f"{replace(task, int8=False).name}.pt"
    return plain_of(SIZES[task.size], checkpoints.net(path)).to(device).double()


def learn(
    task: Task, limits: Limits, pairs: list[Pair], test: list[Pair], out: Path,
    start: Path | None = None,
) -> Path:  # fmt: skip
    """Run a task to its end, from its checkpoint where there is one; returns the checkpoint's path.

    test: photographs that lines of the log judge by; start: a checkpoint whose net to begin as.

    Raises ValueError where a checkpoint is of another task, FloatingPointError where the loss is
    not a number any more.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"{task.name}.pt"
    torch.manual_seed(task.seed)
    crops = Crops(pairs, task.crop, limits.device)
    kept = checkpoints.read(path, asdict(task)) if path.exists() else {}
    steps, extra = (
        _int8_steps(task, limits, crops, out) if task.int8 else _steps(task, limits, crops, start)
    )
    spent = kept.get("seconds", 0.0)
    if kept:
        steps.load(kept["steps"])
    log = _Log(task, test, limits.device)
    began, saved = time.monotonic() - spent, time.monotonic()
    while (over := limits.over(steps.done, spent)) < 1:
        count = min(CHUNK, limits.steps - steps.done) if limits.steps else CHUNK
        loss = steps.run(count, _shares(limits, over), limits.graph)
        if not math.isfinite(loss):
            raise FloatingPointError(f"{task.name}: the loss is {loss} after {steps.done} steps")
        spent = time.monotonic() - began
        log.line(steps, spent, loss, limits.over(steps.done, spent))
        if time.monotonic() - saved > _SAVED:
            checkpoints.write(path, asdict(task), steps, spent, extra)
            saved = time.monotonic()
    checkpoints.write(path, asdict(task), steps, spent, extra)
    return path


def _shares(limits: Limits, over: float) -> Callable[[int], float]:
    """The share of the learning rate by a step's number."""
    return lambda number: falling(number / limits.steps if limits.steps else over)


def _plan(task: Task, limits: Limits) -> Plan:
    return Plan(task.rate, task.batch, task.seed, limits.half, task.decibels)


def _steps(
    task: Task, limits: Limits, crops: Crops, start: Path | None
) -> tuple[Steps, dict[str, Any]]:
    """Of a net that learns by branches."""
    model = Branched(SIZES[task.size]).to(limits.device)
    extra = {}
    if start is not None:
        source = checkpoints.read(start)
        model.begin_as(source["steps"]["averages"])
        extra["before"] = checkpoints.spent(source)
    parameters = list(model.parameters())
    return Steps(parameters, model.run, model.collapsed, crops, _plan(task, limits)), extra


def _int8_steps(
    task: Task, limits: Limits, crops: Crops, out: Path
) -> tuple[Steps, dict[str, Any]]:
    """Of the plain net that was learned, which rounds now; and the ranges of its values."""
    before = replace(task, stage=task.stage - 1) if task.stage else replace(task, int8=False)
    source = checkpoints.read(out / f"{before.name}.pt")
    net = plain_of(SIZES[task.size], source["steps"]["averages"]).to(limits.device)
    if not task.stage:
        balanced(net, sample(crops, task.seed))
    model = qat.prepare(net, ranges_of(net)).train()
    made = Settled(model) if STAGES[task.stage].settles else Rounded(model)
    plan = replace(_plan(task, limits), warm=50, kept=0.99, decibels=True, flat=_FLAT)
    steps = Steps(made.parameters, made.run, made.current, crops, plan)
    extra = {"before": checkpoints.spent(source)} if task.stage else {}
    return steps, extra


class _Log:
    """A line ten times a run: how good the averaged net is by now."""

    def __init__(self, task: Task, test: list[Pair], device: str) -> None:
        self._task, self._test, self._device = task, test, device
        self._bicubic = judged(bicubic, test, structure=False).psnr if test else 0.0
        self._next = 0.1

    def line(self, steps: Steps, seconds: float, loss: float, over: float) -> None:
        """Print it where the next tenth of the run is over."""
        if over < self._next:
            return
        self._next += 0.1
        text = f"{self._task.name}: {steps.done} steps, {seconds:.0f} s, loss {loss:.3f}"
        if self._test:
            made = rounding if self._task.int8 else plain_of
            net = made(SIZES[self._task.size], steps.averages).to(self._device)
            psnr = judged(net, self._test, self._device, structure=False).psnr
            text += f", {psnr:.3f} dB, gain over bicubic {psnr - self._bicubic:.3f}"
        print(text, flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m train.superres", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--size", choices=SIZES, required=True)
    parser.add_argument("--data", required=True, help="a folder with train/ and test/")
    parser.add_argument("--out", default="trained", help="where checkpoints lie")
    parser.add_argument("--minutes", type=float, default=8.0, help="of learning")
    parser.add_argument("--steps", type=int, default=0, help="in the place of --minutes")
    parser.add_argument("--int8", action="store_true", help="teach the trained net to round")
    parser.add_argument("--export", metavar="FOLDER", help="write ONNX, .npz and card there")
    parser.add_argument("--start", metavar="FILE", help="a checkpoint whose net to begin as")
    parser.add_argument("--teacher", metavar="FILE", help="a checkpoint of size l to learn from")
    parser.add_argument("--share", type=float, default=0.5, help="of the teacher in the pictures")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--crop", type=int, default=64, help="of the half picture")
    parser.add_argument("--rate", type=float, default=0.0, help="largest; the size's by default")
    parser.add_argument("--decibels", action="store_true", help="of each crop are the loss, to end")
    parser.add_argument("--judge", type=int, default=1, help="each so-manieth test picture; 0 none")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--single", action="store_true", help="single precision on CUDA too")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    return parser.parse_args()


if __name__ == "__main__":
    main()
