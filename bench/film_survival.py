"""Films that are killed while they are made, and 10,000 pictures: what is promised, tried.

    python -m bench.film_survival [--kills 10] [--pictures 10000] [--output FILE.json]

Kills, drawn by a seed over the time that an unharmed run takes, each `kill -9`:

    alone      the process; the same line again must give the same film
    asking     the process that asks two workers; the same
    a worker   one of two workers; the run must end by itself, with the same film

Same: every sample of every decoded picture, every time stamp, every packet of sound.
Memory: resident bytes of the process after every hundred pictures, by psutil.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil

from bench.environment import environment
from tilewright import video
from tilewright.inputs.devices import host

_OPTIONS = ("--upscale", "2", "--sharpen", "0.3")
_WORKERS = ("--workers", "2")
_SEED = 14
_BEGUN = 200  # pictures after which memory has to be flat
_WATCHED = """
import sys, psutil
from tilewright import video
me, out = psutil.Process(), []
def seen(now):
    if now.done % 100 == 0:
        out.append((now.done, me.memory_info().rss))
video.enhance(sys.argv[1], sys.argv[2], [video.Upscale("s", device="host"), video.Sharpen(0.3)],
              codec=sys.argv[3], progress=seen)
print(out)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--pictures", type=int, default=10000)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    document: dict[str, Any] = {"environment": environment(host()), "seed": _SEED}
    with TemporaryDirectory() as name:
        folder = Path(name)
        if options.kills:
            document["kills"] = _kills(folder, options.kills)
        if options.pictures:
            document["memory"] = [_memory(folder, options.pictures, x) for x in ("h264", "ffv1")]
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {options.output}")


def drawn(path: Path, count: int, width: int, height: int) -> Path:
    """A film of waves that move, with sound."""
    import av

    y, x = np.mgrid[:height, :width]
    rng = np.random.default_rng(_SEED)
    noise = rng.normal(0, 4, (16, height, width))
    with av.open(str(path), "w") as out:
        stream: Any = out.add_stream("libx264", rate=25, options={"preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        sound: Any = out.add_stream("aac", rate=48000, layout="mono")
        for number in range(count):
            wave = 128 + 60 * np.sin(x / 7 + number / 9) * np.cos(y / 5 - number / 14)
            luma = (wave + noise[number % 16]).clip(0, 255).astype(np.uint8)
            chroma = np.full(height * width // 2, 128, np.uint8)
            planes = np.concatenate([luma.reshape(-1), chroma])
            out.mux(stream.encode(av.VideoFrame.from_ndarray(planes.reshape(-1, width), "yuv420p")))
        out.mux(stream.encode(None))
        for start in range(0, count * 1920, 1024):
            tone = np.sin(np.arange(start, start + 1024) * 0.03).astype(np.float32)[None]
            frame = av.AudioFrame.from_ndarray(tone, "fltp", "mono")
            frame.sample_rate, frame.pts, frame.time_base = 48000, start, Fraction(1, 48000)
            out.mux(sound.encode(frame))
        out.mux(sound.encode(None))
    return path


def digest(path: Path) -> str:
    """Of every sample, every time stamp, and every packet beside the pictures."""
    import av

    found = hashlib.sha256()
    for frame in video.frames(path):
        found.update(str(frame.time).encode())
        for plane in frame.planes:
            found.update(plane.tobytes())
    with av.open(str(path)) as container:
        for packet in container.demux():
            if packet.size and packet.stream.type != "video":
                found.update(f"{packet.stream.index} {packet.pts}".encode() + bytes(packet))
    return found.hexdigest()


def _kills(folder: Path, count: int) -> list[dict[str, Any]]:
    source = drawn(folder / "in.mp4", 720, 192, 128)
    cases = []
    for name, workers, victim in (
        ("alone", (), _process),
        ("asking", _WORKERS, _process),
        ("a worker", _WORKERS, _worker),
    ):
        line = (sys.executable, "-m", "tilewright", "enhance", str(source), *_OPTIONS, *workers)
        subprocess.run([*line, "-o", str(folder / "first.mp4"), "--overwrite"], check=True)
        begin = time.perf_counter()
        whole = folder / "whole.mp4"
        subprocess.run([*line, "-o", str(whole), "--overwrite"], check=True, stdout=_NONE)
        seconds = time.perf_counter() - begin
        right, draw = digest(whole), random.Random(_SEED)
        tries: list[dict[str, Any]] = []
        while sum(one["hit"] for one in tries) < count:  # a run may end before its moment
            tries.append(_killed(line, folder / "out.mp4", draw.uniform(0, seconds), victim, right))
        same = sum(one["same"] for one in tries if one["hit"])
        print(f"{name}: {same} of {count} films are the same")
        cases.append({"killed": name, "seconds_unharmed": seconds, "same": same, "tries": tries})
    return cases


_NONE = subprocess.DEVNULL


def _killed(
    line: tuple[str, ...],
    out: Path,
    moment: float,
    victim: Callable[[psutil.Process], psutil.Process | None],
    right: str,
) -> dict[str, Any]:
    """One run that is harmed, and where that ended it the same line again."""
    command = [*line, "-o", str(out)]
    process = subprocess.Popen(command, stdout=_NONE)
    time.sleep(moment)
    hit = False
    try:
        if (found := victim(psutil.Process(process.pid))) is not None:
            found.kill()
            hit = True
    except psutil.NoSuchProcess:
        pass
    again = process.wait() != 0
    if again:
        subprocess.run(command, check=True, stdout=_NONE)
    left = out.with_name(f"{out.name}.parts").exists()
    same = digest(out) == right and not left
    out.unlink()
    print(f"  at {moment:.2f} s: hit {hit}, run again {again}, same {same}", flush=True)
    return {"seconds": moment, "hit": hit, "again": again, "same": same}


def _process(process: psutil.Process) -> psutil.Process | None:
    return process if process.is_running() and process.status() != "zombie" else None


def _worker(process: psutil.Process) -> psutil.Process | None:
    """The first of a process's workers; None before they are there."""
    workers = [one for one in process.children() if "spawn_main" in " ".join(one.cmdline())]
    return workers[0] if workers else None


def _memory(folder: Path, count: int, codec: str) -> dict[str, Any]:
    source, out = folder / "long.mp4", folder / f"long-{codec}.mkv"
    if not source.exists():
        drawn(source, count, 96, 64)
    command = [sys.executable, "-c", _WATCHED, str(source), str(out), codec]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seen: list[tuple[int, int]] = json.loads(said.replace("(", "[").replace(")", "]"))
    out.unlink()
    after = [resident for done, resident in seen if done >= _BEGUN]
    grown = max(after) / after[0] - 1
    print(f"{codec}: {after[0] >> 20} MiB after {_BEGUN} pictures, at most {100 * grown:+.1f} %")
    return {"codec": codec, "pictures": count, "grown_at_most": grown, "resident": seen}


if __name__ == "__main__":
    if os.name != "posix":
        raise SystemExit("kill -9 is of POSIX systems")
    main()
