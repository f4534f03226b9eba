"""A film made twice as large, read and written included, beside PyAV with onnxruntime in Python.

    python -m bench.film FILM.mkv [OTHER.mp4 ...] [--size s] [--rounds 3] [--output FILE.json]

Of the first film: all ways in turns in one process, after one run of each that is not counted; the
median of each, and ratios. Luma of both is compared: the encoder is the same, so pictures differ by
what networks round. Of every film: what `--dry-run` predicts,
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

DTYPES = ("float32", "int8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("films", nargs="+", type=Path)
    parser.add_argument("--size", default="s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        document = {
            "environment": environment(host()),
            "load_before": load_average(),
            "size": options.size,
            **_beside(options.films[0], folder, options.size, options.rounds),
            "forecasts": [_foreseen(film, folder, options.size) for film in options.films],
        }
    _show(document)
    if options.output:
        options.output.write_text(json.dumps(document, indent=1) + "\n")
        print(f"written: {options.output}")


def _beside(source: Path, folder: Path, size: str, rounds: int) -> dict[str, Any]:
    worked: dict[str, Any] = {}
    ways: dict[str, Callable[[Path], Any]] = {}
    for dtype in DTYPES:
        ways[f"tilewright {dtype}"] = _ours(source, size, dtype, worked)
        ways[f"onnxruntime {dtype}"] = _theirs(source, size, dtype)
    files = {name: folder / f"{number}.mkv" for number, name in enumerate(ways)}
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for name, way in ways.items():
            begin = time.perf_counter()
            way(files[name])
            if number:
                seconds[name].append(time.perf_counter() - begin)
            print(f"{name}: {seconds[name]}", flush=True)
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    luma = {name: _luma(path) for name, path in files.items()}
    count = len(luma["tilewright float32"])
    return {
        "film": source.name,
        "pictures": count,
        "seconds": seconds,
        "pictures_a_second": {name: count / value for name, value in medians.items()},
        "times_onnxruntime": {
            dtype: medians[f"onnxruntime {dtype}"] / medians[f"tilewright {dtype}"]
            for dtype in DTYPES
        },
        "luma_psnr_between_them": {
            dtype: min(
                psnr(one, other, 255)
                for one, other in zip(
                    luma[f"tilewright {dtype}"], luma[f"onnxruntime {dtype}"], strict=True
                )
            )
            for dtype in DTYPES
        },
        "worked": worked,
    }


def _ours(source: Path, size: str, dtype: str, worked: dict[str, Any]) -> Callable[[Path], Any]:
    def run(out: Path) -> None:
        stage = video.Upscale(size, dtype, device="host")
        worked[dtype] = dict(video.enhance(source, out, [stage], overwrite=True).worked)

    return run


def _theirs(source: Path, size: str, dtype: str) -> Callable[[Path], Any]:
    """A session of one thread for each core: faster than one session of all."""
    cores = host().compute_units
    model = peer.onnx_of(models.load(f"superres-{size}" + "-int8" * (dtype == "int8")))
    sessions = [peer.session(model, 1) for _ in range(cores)]
    return lambda out: peer.film(source, out, sessions, cores)


def _luma(path: Path) -> list[Any]:
    return [frame.planes[0].copy() for frame in video.frames(path)]


def _foreseen(source: Path, folder: Path, size: str) -> dict[str, Any]:
    out = folder / "foreseen.mkv"
    stages = [video.Upscale(size, device="host")]
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
    for key in ("times_onnxruntime", "luma_psnr_between_them", "worked"):
        print(f"{key}: {document[key]}")
    for case in document["forecasts"]:
        print(case)


if __name__ == "__main__":
    main()
