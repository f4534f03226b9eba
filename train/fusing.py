"""Learns the net that fuses two moved pictures into the one between them, and writes it.

    python -m train.dropped --clips CLIPS --out DROPPED
    python -m train.fusing --data PHOTOGRAPHS --dropped DROPPED --half --seconds 500
    python -m train.fusing --export models
    python -m train.fusing --card models --figures bench/results/interpolate-cpu.json

PHOTOGRAPHS holds train/. What the net reads is made first, on all cores, by the motion of
`tilewright enhance --interpolate` (`between.py`). The same line goes on from its checkpoint in
--out; the schedule is over --minutes, of which a call takes --seconds. Every sixteenth file judges.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from train import checkpoints
from train.between import Seen, made
from train.dropped import read, triples
from train.fuser import DEPTHS, Fuser, run, unfused
from train.photographs import NDArray
from train.shipped_fusing import card, export
from train.steps import CHUNK, Plan, Steps, falling

_BEGAN = time.monotonic()
_SAVED = 60.0  # seconds between checkpoints
_HELD = 16  # each so-manieth file judges
_FLAT = 2e-5  # squared difference below which a crop counts less: 47 dB


@dataclass(frozen=True)
class Task:
    """A run: what a checkpoint must agree with to be gone on from."""

    size: str
    seed: int
    batch: int
    crop: int
    rate: float
    minutes: float
    steps: int
    scenes: int
    clips: float
    half: bool


def main() -> None:
    """Read the command line and learn."""
    given = _options()
    out = Path(given.out)
    if given.card:
        card(given.size, out, Path(given.figures), Path(given.card))
        return
    if given.export:
        print(export(given.size, out, Path(given.export)))
        return
    device = given.device or ("cuda" if torch.cuda.is_available() else "cpu")
    task = Task(
        given.size, given.seed, given.batch, given.crop, given.rate or DEPTHS[given.size].rate,
        given.minutes, given.steps, given.scenes, given.clips, given.half,
    )  # fmt: skip
    clips = triples(read(Path(given.dropped))) if given.dropped else []
    folder = Path(given.seen or out / "seen")
    paths = made(Path(given.data) / "train", clips, folder, task.scenes)
    print(f"{time.monotonic() - _BEGAN:.0f} s until all is made that it learns from", flush=True)
    print(learn(task, paths, device, out, given.seconds, not given.eager))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m train.fusing", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--size", choices=DEPTHS, default="s")
    parser.add_argument("--data", default="", help="a folder with train/")
    parser.add_argument("--dropped", default="", help="what train.dropped wrote")
    parser.add_argument("--out", default="trained", help="where checkpoints lie")
    parser.add_argument("--seen", default="", help="where what is made lies; in --out by default")
    parser.add_argument("--minutes", type=float, default=6.0, help="of learning, over all calls")
    parser.add_argument("--seconds", type=float, default=0.0, help="at most, of this call")
    parser.add_argument("--steps", type=int, default=0, help="in the place of --minutes")
    parser.add_argument("--export", metavar="FOLDER", help="write ONNX and .npz there")
    parser.add_argument("--card", metavar="FOLDER", help="write the card there, by --figures")
    parser.add_argument(
        "--figures", default="bench/results/interpolate-cpu.json", help="for the card"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--crop", type=int, default=64, help="of planes, half as many as samples")
    parser.add_argument("--scenes", type=int, default=4096, help="of layers that are rendered")
    parser.add_argument(
        "--clips", type=float, default=0.15, help="share of crops that are of clips"
    )
    parser.add_argument("--rate", type=float, default=0.0, help="largest; the size's by default")
    parser.add_argument("--device", choices=("cuda", "cpu"))
    parser.add_argument("--half", action="store_true", help="passes in half precision")
    parser.add_argument("--eager", action="store_true", help="no CUDA graph")
    return parser.parse_args()


def learn(
    task: Task, paths: list[Path], device: str, out: Path, seconds: float, graph: bool
) -> Path:
    """Run a task to the end of the call; returns the checkpoint's path.

    Raises ValueError where a checkpoint is of another task, FloatingPointError where the loss is
    not a number any more.
    """
    torch.backends.cudnn.allow_tf32 = True
    out.mkdir(parents=True, exist_ok=True)
    path = out / f"fuse-{task.size}.pt"
    held = paths[::_HELD]
    learned = [one for one in paths if one not in held] if len(paths) > _HELD else paths
    crops = Seen(learned, task.crop, device, task.clips)
    torch.manual_seed(task.seed)
    net = Fuser(DEPTHS[task.size]).to(device)
    plan = Plan(task.rate, task.batch, task.seed, task.half, decibels=True, flat=_FLAT)
    steps = Steps(net.tensors, run, lambda: net.tensors, crops, plan)
    spent = 0.0
    if path.exists():
        kept = checkpoints.read(path, asdict(task))
        steps.load(kept["steps"])
        spent = kept["seconds"]
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
            print(f"{path.stem}: {steps.done} steps, {spent:.0f} s, loss {loss:.3f}; held out: "
                  f"{_said(task, steps, held, device)}", flush=True)  # fmt: skip
        if time.monotonic() - saved > _SAVED:
            checkpoints.write(path, asdict(task), steps, spent, {})
            saved = time.monotonic()
    checkpoints.write(path, asdict(task), steps, spent, {})
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


@torch.no_grad()
def _said(task: Task, steps: Steps, held: list[Path], device: str) -> str:
    """How much better than unfused, in decibels, the averaged net is in files that judge."""
    net = Fuser(DEPTHS[task.size]).take(steps.averages).to(device)
    gains: dict[str, list[float]] = {}
    for path in held:
        with np.load(path) as kept:
            x, wanted = torch.from_numpy(kept["planes"]).to(device).float(), kept["wanted"]
        before, after = (_decibels(way(x).cpu().numpy(), wanted) for way in (unfused, net))
        gains.setdefault(path.stem.partition("-")[0], []).append(after - before)
    return ", ".join(f"{kind} {np.mean(found):+.3f} dB" for kind, found in gains.items())


def _decibels(got: NDArray, wanted: NDArray) -> float:
    """The mean over pictures, in codes."""
    right = torch.nn.functional.pixel_shuffle(torch.from_numpy(wanted), 2).numpy()
    codes = np.rint(got.clip(0, 1).astype(np.float64) * 255)
    square = ((codes - right) ** 2).mean((1, 2, 3)).clip(1e-3)
    return float((10 * np.log10(255**2 / square)).mean())


if __name__ == "__main__":
    main()
