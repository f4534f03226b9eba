"""Pictures of clips as networks of fusion learn from them: windows of luma, kept without loss.

    python -m train.dropped --clips CLIPS --out DROPPED

Of the clips that `bench.interpolate` judges by there is none among them. Where PyAV is not, as on a
machine that only learns, what this wrote is enough.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from train.photographs import NDArray

CLIPS = {"steel-cuts-dark.webm": (20, 180), "bunny-titles.mp4": (120, 200)}  # top, left of windows
HIGH, WIDE = 288, 448
WAYS = ((1, 2), (2, 4), (1, 3), (2, 3))  # which picture between two so far apart is dropped


def write(clips: Path, folder: Path) -> None:
    """A folder a clip, a file a picture."""
    from PIL import Image

    from tilewright import video

    for name, (top, left) in CLIPS.items():
        to = folder / Path(name).stem
        to.mkdir(parents=True, exist_ok=True)
        for number, frame in enumerate(video.frames(clips / name)):
            part = frame.planes[0][top : top + HIGH, left : left + WIDE]
            Image.fromarray(part).save(to / f"{number:04d}.webp", lossless=True, method=3)


def read(folder: Path) -> list[list[NDArray]]:
    """Pictures of each clip, uint8 [HIGH, WIDE]."""
    from PIL import Image

    found = []
    for clip in sorted(one for one in folder.iterdir() if one.is_dir()):
        files = sorted(clip.glob("*.webp"))
        found.append([np.asarray(Image.open(path).convert("L")) for path in files])
    return found


def triples(clips: list[list[NDArray]]) -> list[tuple[NDArray, float]]:
    """First, dropped and second picture, [3, rows, columns], and the dropped one's share."""
    return [
        (np.stack([clip[n], clip[n + at], clip[n + apart]]), at / apart)
        for clip in clips
        for at, apart in WAYS
        for n in range(len(clip) - apart)
    ]


def main() -> None:
    """Read the command line and write."""
    parser = argparse.ArgumentParser(
        prog="python -m train.dropped", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("--clips", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    write(given.clips, given.out)


if __name__ == "__main__":
    main()
