"""A film made twice as large, read and written included, beside PyAV with onnxruntime in Python.

    python -m bench.film FILM.mkv [OTHER.mp4 ...] [--size s] [--dtype float32] [--rounds 3]
        [--output FILE.json]

Of the first film: all ways in turns in one process, after one run of each that is not counted; the
median of each, and the ratio to the faster of the other ways. Luma of all is compared: the encoder
is the same, so pictures differ by what networks round. Of every film: what `--dry-run` predicts,
and what came.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.environment import environment
from bench.peers import film_onnxruntime as peer
from bench.timing import load_average
from tilewright import models, video
from tilewright.inputs.devices import host
from tilewright.video.forecast import forecast
from tilewright.video.likeness import psnr
from tilewright.video.making import planned


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("films", nargs="+", type=Path)
    parser.add_argument("--size", default="s")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    options.stage = video.Upscale(options.size, options.dtype, device="host")
    with TemporaryDirectory() as name:
        folder = Path(name)
        document = {
            "environment": environment(host()),
            "load_before": load_average(),
            "size": options.size,
            "dtype": options.dtype,
            **_beside(options, folder),
            "forecasts": [_foreseen(film, folder, options) for film in options.films],
        }
    _show(document)
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {options.output}")


def _beside(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    cores, source = host().compute_units, options.films[0]
    model = peer.onnx_of(models.load(options.stage.card + "-int8" * (options.dtype == "int8")))
    wide, narrow = [peer.session(model, cores)], [peer.session(model, 1) for _ in range(cores)]
    worked: list[Any] = []

    def ours(out: Path) -> None:
        worked.append(dict(video.enhance(source, out, [options.stage], overwrite=True).worked))

    ways: dict[str, Callable[[Path], Any]] = {
        "tilewright": ours,
        "onnxruntime": lambda out: peer.film(source, out, wide, cores),
        "onnxruntime, a picture a core": lambda out: peer.film(source, out, narrow, cores),
    }
    files = {name: folder / f"{number}.mkv" for number, name in enumerate(ways)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(options.rounds + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way(files[name])
            if number:
                seconds[name].append(time.perf_counter() - begin)
            time.sleep(0.5)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    mine, theirs = _luma(files["tilewright"]), _luma(files["onnxruntime"])
    fastest = min(value for name, value in medians.items() if name != "tilewright")
    return {
        "film": source.name,
        "pictures": len(mine),
        "seconds": seconds,
        "pictures_a_second": {name: len(mine) / value for name, value in medians.items()},
        "times_the_faster_peer": fastest / medians["tilewright"],
        "luma_psnr_between_them": min(
            psnr(one, other, 255) for one, other in zip(mine, theirs, strict=True)
        ),
        "worked": worked[-1],
    }


def _luma(path: Path) -> list[Any]:
    return [frame.planes[0].copy() for frame in video.frames(path)]


def _foreseen(source: Path, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    out = folder / "foreseen.mkv"
    stages = [options.stage]
    found = forecast(planned(source, out, stages))
    made = video.enhance(source, out, stages)
    case = {
        "film": source.name,
        "pictures": made.frames,
        "predicted": {"seconds": found.seconds, "bytes": found.bytes, "memory": found.memory},
        "came": {"seconds": made.seconds, "bytes": out.stat().st_size},
    }
    out.unlink()
    return case


def _show(document: dict[str, Any]) -> None:
    for name, rate in document["pictures_a_second"].items():
        print(f"{name:30} {rate:6.1f} pictures a second")
    print(f"{document['times_the_faster_peer']:.2f} times the faster peer; worked:")
    print(document["worked"], document["luma_psnr_between_them"])
    for case in document["forecasts"]:
        print(case)


if __name__ == "__main__":
    main()
