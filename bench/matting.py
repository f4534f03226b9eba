"""Mattes of people whose opacity is known: error, what is left open, speed; ffmpeg beside.

    python -m bench.matting --photographs DIR --textures DIR --clip FILE

`matting_scenes.py` says how people are composed. The stages see decoded films, as always. Beside a
key stand ffmpeg's `chromakey` and `colorkey`, each with the best of several thresholds, found with
the opacity at hand; beside a plate nothing does, as the ffmpeg at hand has no `backgroundkey`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bench import matting_scenes as scenes
from bench.environment import RESULTS, environment
from tilewright import video
from tilewright.inputs.devices import host
from tilewright.video.source import film
from tilewright.video.stages.blur import covering
from tilewright.video.stages.contract import Stage, Watching, windows
from tilewright.video.stages.plate_matte import GROWN

NDArray = npt.NDArray[Any]
PICTURES, EVERY = 8, 8  # of a film; photographs: every eighth
GREEN = (0.0, 177.0, 64.0)


def mattes(source: Path, stage: Stage) -> list[video.Frame]:
    """A film's pictures with opacity."""
    known = stage.watched(film(source), None) if isinstance(stage, Watching) else stage
    frames = list(video.frames(source))
    work = known.bound(frames[0].look)
    return [made for one in windows(known, iter(frames)) for made in work(one)]


def held(frames: Sequence[video.Frame]) -> list[NDArray]:
    """Their opacity, held still over time, 0 to 1."""
    stage = video.Alpha()
    work = stage.bound(frames[0].look)
    made = (next(iter(work(one))) for one in windows(stage, iter(frames)))
    return [one.planes[0] / 255 for one in made]


def against(found: Sequence[NDArray], true: Sequence[NDArray]) -> dict[str, float]:
    """Mean error, the worst picture's, and the most of somebody that a picture leaves open."""
    pairs = list(zip(found, true, strict=True))
    errors = [float(np.abs(one - other).mean()) for one, other in pairs]
    opened = [float((one[other > 0.5] < 0.5).mean()) for one, other in pairs if (other > 0.5).any()]
    return {"error": float(np.mean(errors)), "worst": max(errors), "open": max(opened)}


def hidden(frames: Sequence[video.Frame], true: Sequence[NDArray]) -> dict[str, float]:
    """Pictures whose blur grew, and the most of somebody that a blur leaves open."""
    opened = []
    for number, other in enumerate(true):
        cover = covering(frames[max(0, number - 2) : number + 3])
        opened.append(float((cover[other > 0.5] < 1).mean()) if (other > 0.5).any() else 0.0)
    grown = sum(GROWN in frame.notes for frame in frames)
    return {"open": max(opened), "grown": grown, "pictures": len(frames)}


def peer(source: Path, filters: Sequence[str]) -> dict[str, list[NDArray]]:
    """Opacity by each of some filters of ffmpeg."""
    found = {}
    for one in filters:
        line = ["ffmpeg", "-loglevel", "error", "-i", str(source), "-vf"]
        samples = "rgba" if one.startswith("colorkey") else "yuva444p"  # what each takes
        line += [f"format={samples},{one},alphaextract", "-f", "rawvideo", "-pix_fmt", "gray", "-"]
        done = subprocess.run(line, check=True, capture_output=True).stdout
        pictures = np.frombuffer(done, np.uint8).reshape(-1, scenes.HEIGHT, scenes.WIDTH)
        found[one] = [picture / 255 for picture in pictures]
    return found


def best(found: dict[str, dict[str, float]]) -> tuple[str, dict[str, float]]:
    """The setting with the least mean error, and its figures."""
    name = min(found, key=lambda one: found[one]["error"])
    return name, found[name]


def joined(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {
        "error": float(np.mean([row["error"] for row in rows])),
        "worst": max(row["worst"] for row in rows),
        "open": max(row["open"] for row in rows),
    }


def rate(source: Path, stages: Sequence[Stage]) -> float:
    """Pictures a second of the stages alone, a picture a core: the median of five rounds."""
    frames = list(video.frames(source))
    look, seconds = frames[0].look, []
    first, second = stages
    known = first.watched(film(source), None) if isinstance(first, Watching) else first
    cores = host().compute_units
    finders = [known.bound(look) for _ in range(cores)]
    turned = known.turned(look)
    users = [second.bound(turned) for _ in range(cores)]
    with ThreadPoolExecutor(cores) as pool:
        for _ in range(6):
            begin = time.perf_counter()
            given = list(windows(known, iter(frames)))
            parts = [given[n::cores] for n in range(cores)]
            made = list(pool.map(lambda w, p: [next(iter(w(o))) for o in p], finders, parts))
            order = sorted((one for part in made for one in part), key=lambda one: one.pts)
            given = list(windows(second, iter(order)))
            parts = [given[n::cores] for n in range(cores)]
            list(pool.map(lambda w, p: [len(list(w(o))) for o in p], users, parts))
            seconds.append(time.perf_counter() - begin)
    return len(frames) / float(np.median(seconds[1:]))


def measured(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    men = scenes.swaying(scenes.men(arguments.clip, PICTURES, 16))
    texture = scenes.photograph(sorted(arguments.textures.iterdir())[9])
    people = {"man": men, "drawn": scenes.drawn(texture, PICTURES, 1)}
    paths = sorted(arguments.photographs.glob("*.webp"))[2::EVERY]
    rows, covers = [], []
    for number, path in enumerate(paths):
        behind = scenes.photograph(path)
        plate = scenes.plate(folder / f"{path.stem}.png", behind, 1000 + number)
        for kind in ("man", "drawn"):
            cutouts = people[kind]
            source = scenes.written(
                folder / f"{kind}.mp4", (scenes.composed(one, behind) for one in cutouts), number
            )
            true = [one.alpha for one in cutouts]
            found = held(mattes(source, video.PlateMatte(str(plate))))
            rows.append({"photograph": path.stem, "person": kind, **against(found, true)})
            careful = mattes(source, video.PlateMatte(str(plate), careful=True))
            covers.append({"person": kind, **hidden(careful, true)})
    wall = np.broadcast_to(np.array(GREEN), (scenes.HEIGHT, scenes.WIDTH, 3)) * np.linspace(
        1, 0.8, scenes.WIDTH
    ).reshape(1, -1, 1)
    green = scenes.written(
        folder / "green.mp4", (scenes.composed(one, wall) for one in people["man"]), 77
    )
    true = [one.alpha for one in men]
    keyed = against(held(mattes(green, video.KeyMatte())), true)
    filters = [f"chromakey=0x00b140:{s}:{b}" for s in (0.05, 0.1, 0.15) for b in (0.0, 0.05, 0.1)]
    filters += [f"colorkey=0x00b140:{s}:{b}" for s in (0.1, 0.2, 0.3) for b in (0.0, 0.1)]
    theirs = {n: against(one, true) for n, one in peer(green, filters).items()}
    return {
        "photographs": len(paths),
        "pictures": PICTURES,
        "rows": rows,
        "plate": {k: joined([r for r in rows if r["person"] == k]) for k in people},
        "hidden": {
            k: {
                "open": max(c["open"] for c in covers if c["person"] == k),
                "grown": sum(c["grown"] for c in covers if c["person"] == k),
                "pictures": sum(c["pictures"] for c in covers if c["person"] == k),
            }
            for k in people
        },
        "key": keyed,
        "keys": {
            kind: best({n: one for n, one in theirs.items() if n.startswith(kind)})
            for kind in ("chromakey", "colorkey")
        },
    }


def timed(arguments: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Pictures of 640 x 480 a second, of all cores."""
    path = sorted(arguments.photographs.glob("*.webp"))[2]
    behind = scenes.photograph(path)
    plate = str(scenes.plate(folder / "plate.png", behind, 1))
    people = scenes.swaying(scenes.men(arguments.clip, PICTURES, 16))
    pictures = (scenes.composed(one, behind) for one in people)
    source = scenes.written(folder / "man.mp4", pictures, 2)
    return {
        "plate, alpha": rate(source, [video.PlateMatte(plate), video.Alpha()]),
        "plate, blur": rate(source, [video.PlateMatte(plate), video.Blur()]),
        "key, alpha": rate(source, [video.KeyMatte("green"), video.Alpha()]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("photographs", "textures", "clip"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--time", action="store_true", help="speed alone, beside what is there")
    arguments = parser.parse_args()
    out = RESULTS / "matting-cpu.json"
    document = json.loads(out.read_text()) if out.exists() else {}
    document["environment"] = environment(host())
    with tempfile.TemporaryDirectory() as folder:
        if arguments.time:
            document["rate"] = timed(arguments, Path(folder))
        else:
            document |= measured(arguments, Path(folder))
    out.write_text(json.dumps(document, indent=1) + "\n")
    print(json.dumps({k: v for k, v in document.items() if k != "rows"}, indent=1))


if __name__ == "__main__":
    main()
