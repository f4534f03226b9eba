"""`tilewright demo`: devices, a ladder, the winner's plan and a picture, in one go."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from tilewright.cli.common import DeviceOption, checked_size, climb, console
from tilewright.errors import FileError
from tilewright.inputs.devices import devices, resolve
from tilewright.products import dense
from tilewright.report import plots
from tilewright.report.ladder import Operands
from tilewright.report.records import Ladder
from tilewright.report.sampling import Effort
from tilewright.report.tables import device_cards, ladder_table, legend

# Ten kernels and peers at most, so about half a minute on a slow processor.
_BRISK = Effort(warmups=10, repeats=20, budget=2.5)


def demo(
    out: Annotated[
        Path,
        typer.Option("--out", metavar="FOLDER", help="Where the picture goes; made if absent."),
    ] = Path("demo"),
    size: Annotated[
        int, typer.Option("--size", metavar="N", help="m = n = k of the ladder.")
    ] = 1024,
    device: DeviceOption = None,
) -> None:
    """Show what this machine can do: devices, a ladder, the winner's plan and a picture.

    Examples:

    - `tilewright demo`
    - `tilewright demo --device host --out pictures`
    """
    checked_size("--size", size)
    chosen = resolve(device)
    picture = _picture(out)
    screen = console()
    screen.print(device_cards(devices()))
    (ladder,) = climb(chosen, (size,), "float32", _BRISK)
    screen.print(ladder_table(ladder, screen.width), legend())
    _explain(ladder, screen)
    if picture is None:
        print("\nno picture: " + plots.MISSING)
    else:
        plots.draw((ladder,), picture, "--out")
        print(f"\nwrote {picture}")
    if ladder.wrong:
        raise typer.Exit(1)


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


def _picture(out: Path) -> Path | None:
    """Where to draw; None where matplotlib is absent, since the rest of the demo needs none."""
    if not plots.available():
        return None
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(
            f"--out={str(out)!r}: cannot be made ({error.strerror}); accepted is a folder that"
            " exists or can be made"
        ) from None
    return out / "ladder.png"
