"""Learns a net that takes out of luma what JPEG, H.264 and H.265 did, and writes it with its card.

    python -m train.coded --data PHOTOGRAPHS --out CODED
    python -m train.deblock --size m --data PHOTOGRAPHS --coded CODED --minutes 16 --seconds 500
    python -m train.deblock --size s --data PHOTOGRAPHS --coded CODED --minutes 7 --batch 16 --int8
    python -m train.deblock --size m --data PHOTOGRAPHS --coded CODED --export models
    python -m train.deblock --size m --data PHOTOGRAPHS --card models

PHOTOGRAPHS holds train/. The same line goes on from its checkpoint in --out; the schedule is over
--minutes, of which a call takes --seconds. How strong the damage is the net sees for itself; it is
told whether it was a picture's or a film's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from torch import Tensor

from train.coded import Place, window
from train.damage import FILM, STILL, Blocky
from train.photographs import NDArray, files_of, luma_of
from train.restoring import as_jpeg, gain, learn, means_of, options, split, task_of
from train.restoring_eight import teach
from train.shipped import card, export

_QUALITIES = (10, 20, 40)
_JUDGED = 24  # pictures of films


def films(
    folder: Path, data: Path, held: list[str]
) -> tuple[list[tuple[NDArray, NDArray]], list[tuple[NDArray, NDArray]]]:
    """Damaged pictures and their clean sides: to learn from, and of the photographs held out."""
    from PIL import Image

    places = [Place(**one) for one in json.loads((folder / "coded.json").read_text())]
    lumas = {path.stem: luma_of(path) for path in files_of(data / "train")}
    learned, judging = [], []
    for place in places:
        clean = window(lumas[place.photograph], place.halved, place.soft, place.top, place.left)
        pair = np.asarray(Image.open(folder / place.file).convert("L")), clean
        if place.photograph in held:
            judging.append(pair)
        elif place.photograph.removesuffix("-b") not in held:
            learned.append(pair)
    return learned, judging[:_JUDGED]


def main() -> None:
    """Read the command line and learn."""
    given = options("deblock", __doc__)
    means = means_of(given)
    if given.card:
        card("deblock", given.size, Path(given.out), Path(given.figures), Path(given.card))
        return
    task = task_of("deblock", given)
    data = Path(given.data)
    photographs, judging, held = split(data)
    learned, filmed = films(Path(given.coded), data, held)
    device = "cpu" if given.export or given.int8 else means.device
    crops = Blocky(photographs, learned, task.crop, device)
    if given.export:
        export("deblock", given.size, Path(given.out), Path(given.export), crops)
        return
    pairs = {q: [(as_jpeg(one, q), one) for one in judging] for q in _QUALITIES}

    def judge(net: Callable[[Tensor], Tensor]) -> str:
        found = [(f"q{q}", gain(net, pairs[q], STILL, device)[1]) for q in _QUALITIES]
        if filmed:
            found.append(("films", gain(net, filmed, FILM, device)[1]))
        return ", ".join(f"{name} {one:+.3f} dB" for name, one in found)

    if given.int8:
        teach(task, crops, judge, Path(given.out))
        return
    learn(task, means, crops, judge, Path(given.out))


if __name__ == "__main__":
    main()
