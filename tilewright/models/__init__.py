"""Networks that the package brings along, each with a card: what it learned from, figures, limits.

names    what there is: `superres-s`, `-m` and `-l` enlarge luma twice; `deblock-s` and `-m` take
         out what compression did, `denoise-s` and `-m` noise; `detect-s` finds small drawn things;
         `fuse-s` says how much of which of two moved pictures is right; `-int8` ends the names of
         those that compute in int8
load     a network by its name, to be bound
card     its card, in Markdown; photographs: those that all of them learned from, with credits

Those that enlarge take luma as films store it, BT.601's 16 to 235, over 255: float32
[N, 1, height, width] gives [N, 1, 2 * height, 2 * width]. `detect-s` takes 24 planes of a quarter
of the sides and gives 8; the others take and give planes of half the sides: `fuse-s` [N, 23, ...]
to [N, 8, ...], those before it [N, 5, ...] to [N, 4, ...], as their cards say. `train/` holds the
recipes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.errors import ArgumentError

if TYPE_CHECKING:
    from tilewright.nn.net import Network

__all__ = ["card", "load", "names", "photographs"]
_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Names that `load` and `card` take, sorted."""
    return tuple(sorted(path.stem for path in _FOLDER.glob("*.npz")))


def load(name: str) -> Network:
    """A network by its name.

    Raises ArgumentError for a name that is not there.
    """
    from tilewright.nn.stored import load as read

    return read(_FOLDER / f"{_known(name)}.npz")


def card(name: str) -> str:
    """What a network is, learned from, reaches and does not, in Markdown.

    Raises ArgumentError for a name that is not there.
    """
    return (_FOLDER / f"{_known(name).removesuffix('-int8')}.md").read_text(encoding="utf-8")


def photographs() -> str:
    """The photographs that the networks learned from, their sources and licences, in Markdown."""
    return (_FOLDER / "photographs.md").read_text(encoding="utf-8")


def _known(name: str) -> str:
    if name not in names():
        raise ArgumentError(f"name={name!r}: accepted are {', '.join(names())}")
    return name
