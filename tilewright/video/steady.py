"""Pictures of chunks: the same from wherever a run goes on, of damaged films too.

What a decoder fills in where packets are damaged depends on what it decoded before, on how many
threads it has (24 damaged H.264 films: 14 others with one thread than with three), and of some
codecs on which of its buffers are free by then. So chunks that follow each other are decoded in
one go, on all cores, only as long as nothing is amiss:

    sound     chunk, chunk, chunk, chunk ...          one decoder
    amiss           |  in this one                    what is left of it: a decoder of its own, of
                    '-> | the chunk after it          one thread, from the key picture before it on

A packet that is refused, a picture that says it is damaged, and one that does not come are amiss.
Where a decoder says nothing of damage, it works alone from the start.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence, Set
from contextlib import closing

from tilewright.video.decode import Damage, entered, rising, starts
from tilewright.video.look import Frame
from tilewright.video.source import Film

# Decoders that say nothing of most damage; of the second what they fill in is the picture before.
_SILENT, _REPEATING = ("vp8", "mjpeg"), ("ffv1",)
_BETWEEN, _MOST_BETWEEN = (3, 7), 16  # FFmpeg's B and BI; as many as a decoder has room for


class Stretch:
    """Pictures of chunks that follow each other, as far as they can be decoded in one go.

    ranges  for each chunk the numbers of the first picture it needs, and after the last
    last    of `ranges`, the one with which the pictures end; known before its last picture comes
    """

    def __init__(self, found: Film, ranges: Sequence[tuple[int, int]], damage: Damage) -> None:
        self._found, self._ranges, self._damage = found, ranges, damage
        # Where each picture is a key, to begin anew with every chunk costs nothing.
        anew = found.codec in _REPEATING or len(found.keys) == len(found.times)
        self.last = 0 if anew else len(ranges) - 1

    def pictures(self) -> Generator[Frame, None, None]:
        """The pictures, those that several chunks need once."""
        number, end = self._ranges[0][0], self._ranges[self.last][1]
        if self._found.codec not in _SILENT:
            with closing(_sound(self._found, number, end)) as sound:
                for frame in sound:
                    yield frame
                    number += 1
        if number < end:
            with closing(self._damaged(number)) as damaged:
                yield from damaged

    def _damaged(self, number: int) -> Generator[Frame, None, None]:
        """What is left from a picture on, of its chunk and those decoded from the same key on."""
        place = next(n for n, (_, end) in enumerate(self._ranges) if end > number)
        self.last, came = place, set[int]()
        begin = self._ranges[place][0]
        first = self._found.times[begin] if begin else None
        with closing(entered(self._found, first, self._damage, alone=True)) as pictures:
            for frame in pictures:
                came.add(frame.pts)
                while frame.pts >= self._end(place):
                    if not self._goes_on(place, came):
                        return
                    place = self.last = place + 1
                if frame.pts >= self._found.times[number]:
                    yield frame

    def _end(self, place: int) -> int | float:
        """When the first picture is shown that a chunk does not need."""
        number = self._ranges[place][1]
        return self._found.times[number] if number < len(self._found.times) else float("inf")

    def _goes_on(self, place: int, came: Set[int]) -> bool:
        """Whether the next chunk by itself would be decoded from the same key picture on."""
        both = [self._found.times[first] for first, _ in self._ranges[place : place + 2]]
        keys = [next(starts(self._found, time)) for time in both]
        sure = keys[0] is None or came >= set(both)  # else it began further back
        return len(both) == 2 and keys[0] == keys[1] and sure


def _sound(found: Film, number: int, end: int) -> Generator[Frame, None, None]:
    """Pictures from a number on to another, ended before the first that may be damaged."""
    times, searched = found.times, False
    for start in starts(found, times[number] if number else None):
        if start is None and searched:  # what is amiss would be from there on too
            return
        damage, place = Damage(), number
        with closing(rising(found, start, damage, strict=True)) as pictures:
            for frame in _sure(pictures, damage):
                early = frame.pts < times[place] and place == number
                searched = searched or early
                if early:
                    continue
                if frame.pts != times[place]:
                    break
                yield frame
                place += 1
                if place == end:
                    return
        if place > number:
            return


def _sure(pictures: Iterator[Frame], damage: Damage) -> Generator[Frame, None, None]:
    """Pictures up to the first sign of damage, a picture made of later ones after those."""
    held: list[Frame] = []
    for frame in pictures:
        if damage.packets or frame.carrier.is_corrupt:
            return
        held.append(frame)
        if frame.carrier.pict_type not in _BETWEEN or len(held) > _MOST_BETWEEN:
            yield from held
            held.clear()
    if not damage.packets:
        yield from held
