"""What was seen of a film: plain values, that go into a journal, a JSON file, or another process.

Pictures are looked at closely a few times a second (`Sample`); cuts are between any two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tilewright.video.tables import Key

_SMOOTH = 1.0  # seconds: the deviation of the weights that values over time are smoothed by


@dataclass(frozen=True, slots=True)
class Sample:
    """One picture, measured. Light is of 0 (black) to 1.

    time     in seconds
    scene    the number of its scene
    mean     of luma
    noise    deviation, of 255 (`noise.noise`)
    blocks   by how much seams of a grid of 8 exceed steps inside it (`measures.blocks`)
    blur     deviation of the Gaussian that edges look blurred by, in samples
    banding  steps of one code between even stretches, a hundred samples
    combing  hundredths of samples that are of two moments
    haze     share of the light that is haze's, 0 to 1, and how light that is
    air      how light the haze itself is
    veil     that share where luma is so light (`measures.Haze`)
    screen   share of samples that are as their neighbours, 0 to 1
    text     share of cells with text that stayed while the picture moved, 0 to 1
    tones    quantiles of luma (`light.TONES`)
    light    traits that tell how dark it was made (`light.traits`)
    motion   how far things go to the next picture, in hundredths of the height (`moving.moved`)
    """

    time: float
    scene: int
    mean: float
    noise: float
    blocks: float
    blur: float
    banding: float
    combing: float
    haze: float
    air: float
    screen: float
    text: float
    veil: tuple[float, ...]
    tones: tuple[float, ...]
    light: tuple[float, ...]
    motion: float = 0.0


@dataclass(frozen=True, slots=True)
class Survey:
    """A film, looked at once.

    frames   how many pictures it has
    cuts     numbers of the pictures that a scene begins with, without the first
    starts   when scenes begin, in seconds; the first with the first picture
    samples  in order of time, at least one a scene
    """

    frames: int
    cuts: tuple[int, ...]
    starts: tuple[float, ...]
    samples: tuple[Sample, ...]

    def scene(self, number: int) -> list[Sample]:
        """The samples of one scene."""
        return [one for one in self.samples if one.scene == number]

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def of_plain(values: Mapping[str, Any]) -> Survey:
    """A survey that `plain` gave, through JSON. Raises TypeError or KeyError for anything else."""
    samples = tuple(_sample(one) for one in values["samples"])
    cuts, starts = tuple(values["cuts"]), tuple(values["starts"])
    return Survey(**{**values, "cuts": cuts, "starts": starts, "samples": samples})


def _sample(values: Mapping[str, Any]) -> Sample:
    plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    return Sample(**plain)


def smoothed(survey: Survey, values: Sequence[tuple[float, ...]]) -> tuple[Key, ...]:
    """Values of a survey's samples as keys: weighed over a second or so, never across a cut."""
    return tuple(
        key for number in range(len(survey.starts)) for key in _keys(survey, values, number)
    )


def _keys(survey: Survey, values: Sequence[tuple[float, ...]], number: int) -> Iterator[Key]:
    chosen = [n for n, one in enumerate(survey.samples) if one.scene == number]
    times = np.array([survey.samples[n].time for n in chosen])
    found = np.array([values[n] for n in chosen])
    for place, time in enumerate(times):
        weights = np.exp(-((times - time) ** 2) / (2 * _SMOOTH**2))
        mixed = weights @ found / weights.sum()
        begins = place == 0
        at = survey.starts[number] if begins else float(time)
        yield Key(at, tuple(float(one) for one in mixed), begins)
