"""Learns a net that takes Gaussian noise of a told strength out of luma, and writes its card.

    python -m train.denoise --size m --data PHOTOGRAPHS --minutes 16 --seconds 500
    python -m train.denoise --size m --data PHOTOGRAPHS --export models
    python -m train.denoise --size m --data PHOTOGRAPHS --card models

PHOTOGRAPHS holds train/. The same line goes on from its checkpoint in --out; the schedule is over
--minutes, of which a call takes --seconds. Strengths are 0 to 75 codes of eight bits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from torch import Tensor

from train.damage import Noisy
from train.restoring import gain, learn, means_of, noisy, options, split, task_of
from train.restoring_eight import teach
from train.shipped import card, export

_STRENGTHS = (5, 15, 25, 50)


def main() -> None:
    """Read the command line and learn."""
    given = options("denoise", __doc__)
    means = means_of(given)
    if given.card:
        card("denoise", given.size, Path(given.out), Path(given.figures), Path(given.card))
        return
    task = task_of("denoise", given)
    learned, judging, _ = split(Path(given.data))
    device = "cpu" if given.export or given.int8 else means.device
    crops = Noisy(learned, task.crop, device)
    if given.export:
        export("denoise", given.size, Path(given.out), Path(given.export), crops)
        return
    pairs = {s: [(noisy(one, s, n), one) for n, one in enumerate(judging)] for s in _STRENGTHS}

    def judge(net: Callable[[Tensor], Tensor]) -> str:
        found = [(s, gain(net, pairs[s], s / 255, device)) for s in _STRENGTHS]
        return ", ".join(f"{s}: {sum(one):.3f} dB" for s, one in found)

    if given.int8:
        teach(task, crops, judge, Path(given.out))
        return
    learn(task, means, crops, judge, Path(given.out))


if __name__ == "__main__":
    main()
