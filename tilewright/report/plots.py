"""A ladder as a picture: bars at one size, lines over several. PNG or SVG, by the file's suffix.

Colours are Okabe and Ito's, which colour-blind readers tell apart; lines carry markers and their
names as well. matplotlib is imported when drawing begins and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from tilewright.errors import ArgumentError
from tilewright.facts.device import Device
from tilewright.files.whole import check_writable, replacing
from tilewright.report.peers import SERIAL
from tilewright.report.records import KERNEL, PEER, Ladder, Rung

MISSING = "matplotlib is not installed; pip install 'tilewright[plot]' brings it"
SUFFIXES = (".png", ".svg")
_KERNEL, _BEST, _PEER = "#56B4E9", "#0072B2", "#E69F00"
LINES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#8C510A", "#000000")
MARKERS = "osD^vPX*"
INK, _FAINT = "#222222", "#6B6B6B"
_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": _FAINT,
    "xtick.color": _FAINT,
    "ytick.color": INK,
    "svg.hashsalt": "tilewright",
    "svg.fonttype": "none",
}


def available() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check(path: Path, argument: str) -> None:
    """Raise ArgumentError for what `draw` could not draw; asked before anything is measured."""
    if path.suffix.lower() not in SUFFIXES:
        raise ArgumentError(
            f"{argument}={str(path)!r}: suffix {path.suffix!r}; accepted are .png and .svg"
        )
    if not available():
        raise ArgumentError(f"{argument}={str(path)!r}: {MISSING}")
    check_writable(path, argument)


def draw(ladders: Sequence[Ladder], path: Path, argument: str) -> None:
    """Draw ladders of one device and dtype into `path`, a whole file or none."""
    with canvas(path, argument) as save:
        save(_bars(ladders[0]) if len(ladders) == 1 else _lines(ladders))


@contextmanager
def canvas(path: Path, argument: str) -> Iterator[Callable[[Any], None]]:
    """matplotlib in our style; what it gives saves a figure in `path`, a whole file or none."""
    check(path, argument)
    from matplotlib import rc_context

    form = path.suffix.lower().removeprefix(".")
    # Without a date the same figures give the same file, so a repository sees no change.
    metadata = {"Date": None} if form == "svg" else None
    with rc_context(_STYLE), replacing(path, argument) as temporary:
        yield lambda figure: figure.savefig(temporary, format=form, dpi=160, metadata=metadata)


def readable(text: Any) -> None:
    """A text above what is drawn, on white; it stays text in an SVG, which an outline does not."""
    text.set_zorder(5)
    text.set_bbox({"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.8})


def _bars(ladder: Ladder) -> Any:
    """GFLOP/s as horizontal bars, the fastest on top."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rungs, best = ladder.rungs, ladder.winner
    figure = Figure(figsize=(9, 1.9 + 0.36 * len(rungs)), layout="constrained")
    axes = figure.add_subplot()
    colours = [_PEER if r.kind == PEER else _BEST if r is best else _KERNEL for r in rungs]
    names = [rung.name + ("*" if ladder.scaled(rung) else "") for rung in rungs]
    bars = axes.barh(names, [rung.gflops for rung in rungs], color=colours, height=0.72)
    axes.bar_label(bars, [_label(ladder, rung) for rung in rungs], padding=5, fontsize=10)
    # Room for the label of the longest bar.
    axes.set_xlim(0, 1.3 * max(rung.gflops for rung in rungs))
    axes.set_xlabel(f"GFLOP/s{_scaled_note(ladder)}")
    axes.xaxis.set_major_formatter("{x:,.0f}" if axes.get_xlim()[1] > 5 else "{x:g}")
    axes.tick_params(axis="y", length=0)
    clean(axes, "left", "top", "right")
    key = {"fastest kernel": _BEST, "kernels": _KERNEL, "peers on the host": _PEER}
    patches = [Patch(color=colour, label=name) for name, colour in key.items() if colour in colours]
    axes.legend(handles=patches, loc="lower right", frameon=False)
    _head(axes, [ladder], f"{ladder.size} × {ladder.size} × {ladder.size}")
    return figure


def _label(ladder: Ladder, rung: Rung) -> str:
    def short(value: float) -> str:
        return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"

    speedup = ladder.speedup(rung, SERIAL)
    over = "" if speedup is None or rung.name == SERIAL else f"   {short(speedup)}× serial"
    return short(rung.gflops) + over + ("" if ladder.right(rung) else "   WRONG RESULT")


def _scaled_note(ladder: Ladder) -> str:
    sizes = {rung.size for rung in ladder.rungs if ladder.scaled(rung)}
    return "".join(f"   (* measured at {size}, scaled by arithmetic)" for size in sizes)


def _lines(ladders: Sequence[Ladder]) -> Any:
    """GFLOP/s over size, a line for each kernel and peer, the legend in the order of their ends."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullLocator

    figure = Figure(figsize=(9, 5.4), layout="constrained")
    axes = figure.add_subplot()
    for name, style in _styles(ladders).items():
        found = [(ladder.size, ladder.rung(name)) for ladder in ladders]
        points = [(size, rung.gflops) for size, rung in found if rung is not None]
        axes.plot(*zip(*points, strict=True), label=name, **style)
    sizes = [ladder.size for ladder in ladders]
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:,.10g}")
    axes.xaxis.set_minor_locator(NullLocator())
    frame(axes, "size: m = n = k", "GFLOP/s", "y")
    axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False, labelspacing=0.7)
    _head(axes, ladders, f"{sizes[0]} to {sizes[-1]}")
    return figure


def _styles(ladders: Sequence[Ladder]) -> dict[str, dict[str, Any]]:
    """A line style for each name, the fastest at its last size first; peers dashed and grey.

    Colours go by alphabet, so that a kernel keeps its own from picture to picture.
    """
    last = {rung.name: rung for ladder in ladders for rung in ladder.rungs}
    known = {kind: sorted(n for n, r in last.items() if r.kind == kind) for kind in (KERNEL, PEER)}
    best = ladders[-1].winner
    styles: dict[str, dict[str, Any]] = {}
    for rung in sorted(last.values(), key=lambda rung: -rung.gflops):
        index, peer = known[rung.kind].index(rung.name), rung.kind == PEER
        styles[rung.name] = {
            "color": _FAINT if peer else LINES[index % len(LINES)],
            "linestyle": "--" if peer else "-",
            "marker": MARKERS[index % len(MARKERS)],
            "markerfacecolor": "white" if peer else None,
            "markersize": 6,
            "linewidth": 2.6 if rung is best else 1.6,
        }
    return styles


def frame(axes: Any, x: str, y: str, grid: Literal["both", "x", "y"] = "both") -> None:
    """What stands along the axes, a faint grid, and no frame above and at the right."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(axis=grid, color="#E3E3E3", linewidth=0.8)
    axes.set_axisbelow(True)
    clean(axes, "top", "right")


def clean(axes: Any, *unwanted: str) -> None:
    """Take these sides of the frame away."""
    for side in unwanted:
        axes.spines[side].set_visible(False)


def _head(axes: Any, ladders: Sequence[Ladder], sizes: str) -> None:
    ladder = ladders[-1]
    beside = ", beside other work" if any(one.busy for one in ladders) else ""
    head(axes, ladder.device, f"Matrix multiplication, {sizes}, {ladder.dtype}{beside}")


def head(axes: Any, device: Device, title: str) -> None:
    """Title and subtitle at the left: what, and on which device with which driver."""
    axes.set_title(title, loc="left", weight="bold", fontsize=13, pad=28)
    driver = device.driver if device.backend == "host" else f"{device.platform}, {device.driver}"
    axes.annotate(
        f"{device.name} · {driver}",
        xy=(0, 1),
        xycoords="axes fraction",
        xytext=(0, 11),
        textcoords="offset points",
        fontsize=9.5,
        color=_FAINT,
    )
