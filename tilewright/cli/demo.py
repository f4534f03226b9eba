"""`tilewright demo`: a film, a batch, one-bit products and the ladder, in about two minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tilewright.backends.host import compiled
from tilewright.cli import demo_film
from tilewright.cli.bars import progress
from tilewright.cli.climbing import checked_size, climb
from tilewright.cli.common import DeviceOption, console
from tilewright.errors import FileError
from tilewright.facts.device import Device
from tilewright.inputs.checks import checked_name
from tilewright.inputs.devices import devices, host, resolve
from tilewright.products import dense
from tilewright.report import grouped, onebit_bench, plots
from tilewright.report.grouped_tables import grouped_table
from tilewright.report.ladder import Operands
from tilewright.report.records import Ladder
from tilewright.report.sampling import Effort
from tilewright.report.tables import device_cards, ladder_table, legend
from tilewright.suites import uniform
from tilewright.video.stages.upscale import SIZES

# Ten kernels and peers at most, so about half a minute on a slow processor.
_BRISK = Effort(warmups=10, repeats=20, budget=2.5)
PARTS = ("film", "batch", "bits", "ladder")
_PROBLEMS, _LARGEST = 1000, 128
_BITS = ((1024, 1024, 4096),)
_ROUNDS = 3


def demo(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where film and pictures go; made if absent."),
    ] = Path("demo"),
    size: Annotated[
        int, typer.Option("--size", metavar="N", help="m = n = k of the ladder.")
    ] = 1024,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="PART", help=f"Of {', '.join(PARTS)}; repeatable."),
    ] = None,
    network: Annotated[
        str, typer.Option("--network", help="Which network enlarges the film: s, m or l.")
    ] = "l",
    device: DeviceOption = None,
) -> None:
    """Show what this library is for, in about two minutes of two cores.

    A film is made twice as large; 1,000 products of unlike sizes and one product of bits run beside
    what NumPy does; every kernel climbs the ladder, with the winner's plan and a picture.

    Examples:

    - `tilewright demo`
    - `tilewright demo --only film --out pictures`
    - `tilewright demo --device host --only ladder`
    """
    wanted = tuple(checked_name("--only", part, PARTS) for part in only or PARTS)
    checked_size("--size", size)
    checked_name("--network", network, SIZES)
    chosen = resolve(device)
    if ("film" in wanted and not demo_film.missing()) or ("ladder" in wanted and plots.available()):
        _folder(out)
    screen = console()
    screen.print(device_cards(devices()))
    right = [_SHOWN[part](screen, chosen, out, (size, network)) for part in PARTS if part in wanted]
    if not all(right):
        raise typer.Exit(1)


def _film(screen: Console, _: Device, out: Path, sizes: tuple[int, str]) -> bool:
    _head(screen, "A film that the package brings along (tilewright enhance)")
    if why := demo_film.missing():
        print(why)
        return True
    for line in demo_film.film(out, sizes[1]):
        print(line)
    return True


def _batch(screen: Console, device: Device, _: Path, __: tuple[int, str]) -> bool:
    _head(screen, f"{_PROBLEMS:,} products of unlike sizes (tilewright grouped)")
    columns = uniform.between(1, _LARGEST, _PROBLEMS, 0)
    with progress(6) as advance:
        report = grouped.measure(
            columns, device, title=f"1..{_LARGEST}, seed 0", orders=("auto",), report=advance
        )
    screen.print(grouped_table(report))
    return not report.wrong


def _bits(screen: Console, _: Device, __: Path, ___: tuple[int, str]) -> bool:
    _head(screen, "A product of bits on the processor (tilewright onebit bench)")
    if not compiled.available():
        print("no product of bits without Numba: pip install 'tilewright[onebit]'")
        return True
    with progress(len(_BITS)) as advance:
        found = onebit_bench.measure(host(), _BITS, rounds=_ROUNDS, report=advance)
    for shape in found:
        times = [f"{name} {1e3 * seconds:.2f} ms" for name, seconds in shape.seconds.items()]
        print(f"{shape.m} x {shape.n} x {shape.k}: " + ", ".join(times))
        gain = shape.seconds[onebit_bench.FP32] / shape.seconds[onebit_bench.INT32]
        print(f"{gain:.1f} times NumPy's fp32, and 1/32 of its memory; results are equal")
    return True


def _ladder(screen: Console, device: Device, out: Path, sizes: tuple[int, str]) -> bool:
    _head(screen, "Every kernel at one size (tilewright ladder)")
    (ladder,) = climb(device, (sizes[0],), "float32", _BRISK)
    screen.print(ladder_table(ladder, screen.width), legend())
    _explain(ladder, screen)
    if plots.available():
        plots.draw((ladder,), out / "ladder.png", "--out")
        print(f"\nwrote {out / 'ladder.png'}")
    else:
        print("\nno picture: " + plots.MISSING)
    return not ladder.wrong


_SHOWN = {"film": _film, "batch": _batch, "bits": _bits, "ladder": _ladder}


def _head(screen: Console, title: str) -> None:
    screen.print(Text(f"\n{title}", style="bold"))


def _explain(ladder: Ladder, screen: Console) -> None:
    """The plan of the fastest kernel, and what `matmul` would do of its own accord."""
    operands = Operands.random(ladder.size, ladder.dtype)
    asked: dict[str, str | None] = {
        "what matmul does with NumPy arrays of this size, and why": None
    }
    if ladder.winner is not None:
        asked = {"the fastest kernel": ladder.winner.name, **asked}
    for title, kernel in asked.items():
        told = dense.explain(operands.a, operands.b, device=ladder.device, kernel=kernel)
        screen.print(Text(f"\n{title} (tilewright.explain)", style="bold"))
        screen.print(Text(told))


def _folder(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"--out={str(out)!r}: cannot be made ({error.strerror}); accepted is a folder that"
            " exists or can be made"
        ) from None
