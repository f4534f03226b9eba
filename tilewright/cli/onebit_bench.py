"""`tilewright onebit bench`: one-bit products beside the best library's."""

from __future__ import annotations

from typing import Annotated

import typer

from tilewright.cli.bars import progress
from tilewright.cli.common import DeviceOption, JsonOption, console
from tilewright.errors import ArgumentError
from tilewright.files.whole import check_writable, write_json
from tilewright.inputs.devices import host, resolve
from tilewright.report import document, onebit_bench

WIDTH = 150  # a table of eleven columns where a pipe has no width of its own


def bench(
    shapes: Annotated[
        str | None,
        typer.Option(
            "--shapes", metavar="MxNxK,...", help="Products, as `1024x1024x4096,64x512x512`."
        ),
    ] = None,
    device: DeviceOption = None,
    output: JsonOption = None,
) -> None:
    """Time one-bit products beside fp32, fp16, bf16 and int8 of the best library here.

    GOP/s with a multiply-add as two; the last columns are times faster than the best of the others,
    without and with the packing of activations. Peers are given operands in their own type.

    Example: `tilewright onebit bench --shapes 1024x1024x4096`
    """
    wanted = onebit_bench.SHAPES if shapes is None else _shapes(shapes)
    check_writable(output, "--json")
    chosen = host() if device is None else resolve(device)
    with progress(len(wanted)) as advance:
        measured = onebit_bench.measure(chosen, wanted, report=advance)
    screen = console()
    screen.width = max(screen.width, WIDTH)
    screen.print(onebit_bench.table(measured))
    for line in onebit_bench.verdict(measured):
        print(line)
    if output is not None:
        rows = [one.as_dict() for one in measured]
        write_json(output, {**document.provenance(chosen), "shapes": rows})
        print(f"wrote {output}")


def _shapes(text: str) -> tuple[tuple[int, int, int], ...]:
    found = []
    for part in text.split(","):
        sizes = part.strip().split("x")
        if len(sizes) != 3 or not all(size.isdecimal() and int(size) for size in sizes):
            raise ArgumentError(f"--shapes={part!r}: accepted are sizes MxNxK, as 64x512x4608")
        m, n, k = map(int, sizes)
        if 4 * (m * k + n * k + m * n) * 4 > host().memory:
            raise ArgumentError(f"--shapes={part!r}: the host has no memory for it in fp32")
        found.append((m, n, k))
    return tuple(found)
