"""`tilewright matmul`: multiplies matrices in files that others wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from tilewright.cli.common import DeviceOption, note
from tilewright.cli.files import check_no_input, check_output, check_result, load, save
from tilewright.errors import ArgumentError, DtypeError, ShapeError
from tilewright.products import dense
from tilewright.wording import wrapped


def matmul(
    a: Annotated[str, typer.Argument(metavar="A", help="FILE.npy, .npz, .npz:NAME or .mtx")],
    b: Annotated[str, typer.Argument(metavar="B", help="the same")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="C", help="FILE.npy, .npz or .mtx"),
    ] = None,
    device: DeviceOption = None,
    kernel: Annotated[
        str | None,
        typer.Option("--kernel", metavar="NAME", help="Force one of the device's kernels."),
    ] = None,
    alpha: Annotated[float, typer.Option("--alpha", help="Scales the product.")] = 1.0,
    transpose_a: Annotated[bool, typer.Option("--transpose-a", help="Transpose A.")] = False,
    transpose_b: Annotated[bool, typer.Option("--transpose-b", help="Transpose B.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace A or B where C is the same file.")
    ] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print the plan; without -o nothing is computed.")
    ] = False,
) -> None:
    """Multiply two files: C = alpha · A @ B.

    Examples:

    - `tilewright matmul a.npy b.npy -o c.npy`
    - `tilewright matmul weights.npz:layer1 x.mtx -o y.npz --transpose-a --explain`

    .npy files are memory-mapped. Sparse Matrix Market files are made dense. C appears whole or not
    at all. Nothing is ever unpickled.
    """
    if output is None and not explain:
        raise ArgumentError("-o is missing: name a file for C, or give --explain")
    if output is not None:
        check_output(output)
        if not force:
            check_no_input(output, (a, b))
    operands = load(a, "A", note), load(b, "B", note)
    check_result(operands, (transpose_a, transpose_b))
    turned = {"transpose_a": transpose_a, "transpose_b": transpose_b}
    options: dict[str, Any] = {"device": device, "kernel": kernel, "alpha": alpha, **turned}
    try:
        if explain:
            for line in dense.explain(*operands, **options).splitlines():
                print(*wrapped(line), sep="\n")
        if output is not None:
            shape = save(output, lambda: dense.matmul(*operands, **options))
            print(f"wrote {output}: {shape}")
    except (ShapeError, DtypeError) as error:
        raise type(error)(f"{error}; a is A={a!r}, b is B={b!r}") from None
