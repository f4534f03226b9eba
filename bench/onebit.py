"""The honest table of one-bit products: beside fp32, fp16, bf16 and int8 of the best library here.

    python -m bench.onebit [--device host] [--output FILE.json]

Writes bench/results/onebit-DEVICE.json (docs use onebit-cpu.json); `make tables` fills them in.
"""

from __future__ import annotations

from typing import Any

from rich.console import Console

from bench.command import measure
from tilewright import Device
from tilewright.report import onebit_bench


def figures(device: Device) -> dict[str, Any]:
    shapes = onebit_bench.measure(device, report=lambda name: print(name, flush=True))
    Console(width=160).print(onebit_bench.table(shapes))
    for line in onebit_bench.verdict(shapes):
        print(line)
    return {"schema": "tilewright-onebit/1", "shapes": [shape.as_dict() for shape in shapes]}


if __name__ == "__main__":
    measure("onebit", __doc__, figures)
