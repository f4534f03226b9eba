"""Networks as tables: what a file holds, how an import compared, where the time of a run goes."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from tilewright.nn.layers.base import Layer
from tilewright.nn.layers.bit_conv import BitConv
from tilewright.nn.layers.conv import RealConv
from tilewright.nn.network_of_bits import Network
from tilewright.nn.onnx.check import Report
from tilewright.nn.onnx.compare import LayerCheck
from tilewright.nn.profile import Row
from tilewright.report.sheet import sheet


def layers_table(network: Network) -> Table:
    """A row for each layer: what it does, what comes out, the bytes it takes in a file."""
    heads = ("layer", "kind", "window", "gives", "size", "bytes")
    table = sheet("layers", heads, *heads[:-1])
    for layer in network.layers:
        value = network.values[layer.name]
        size = f"{value.height} × {value.width} × {value.channels}"
        window = getattr(layer, "window", None)
        shown = "" if window is None or window.is_point else _window(layer)
        table.add_row(layer.name, _kind(layer), shown, value.kind, size, f"{layer.bytes:,}")
    return table


def summary(network: Network) -> list[str]:
    """Weights, bytes and padding in a few lines."""
    convs = [layer for layer in network.layers if isinstance(layer, BitConv | RealConv)]
    bits = sum(_weights(layer) for layer in convs if isinstance(layer, BitConv))
    reals = sum(_weights(layer) for layer in convs if isinstance(layer, RealConv))
    total = sum(layer.bytes for layer in network.layers)
    paddings = " and ".join(network.paddings) or "none"
    return [
        f"input     {' × '.join(map(str, network.input_shape))}",
        f"weights   {bits:,} of one bit, {reals:,} in half precision",
        f"size      {total / 2**20:.2f} MiB; in float32 {4 * (bits + reals) / 2**20:.1f} MiB",
        f"padding   {paddings} round binary images",
    ]


def checks_table(report: Report, *, every: bool) -> Table:
    """Layers that differ from the float graph, or all of them."""
    heads = ("layer", "kind", "compared", "differ", "zeros", "largest")
    table = sheet("layers beside the float graph", heads, "kind")
    for check in report.layers:
        if every or check.differing or check.zeros:
            table.add_row(*_check_row(check))
    return table


def verdict(report: Report) -> list[str]:
    """How the whole network compared, in words."""
    wrong = [check for check in report.layers if check.differing]
    zeros = sum(check.zeros for check in report.layers)
    found = f"{len(wrong)} differ" if wrong else "no difference"
    lines = [
        f"{len(report.layers)} layers compared with the float graph, run by {report.engine}, each"
        f" on the graph's inputs: {found} beyond the rounding of float32"
    ]
    if zeros:
        lines.append(f"{zeros} signs were 0 in the float graph; here they are +1")
    scores = report.scores
    same = "the same class" if report.same_class else "another class"
    lines.append(
        f"scores of the whole network: largest difference {scores.largest:.3g} of"
        f" {scores.scale:.3g}, {same}"
    )
    return lines


def timings_table(rows: Sequence[Row], total: float) -> Table:
    """A row for each pass over memory."""
    table = sheet("passes", ("pass", "layers", "µs", "share"), "layers", wrap=True)
    for row in rows:
        seconds = row.seconds or 0.0
        share = f"{100 * seconds / total:.0f} %"
        table.add_row(row.operator, " + ".join(row.covers), f"{1e6 * seconds:.0f}", share)
    return table


def _weights(layer: BitConv | RealConv) -> int:
    return layer.outputs * layer.terms


def _kind(layer: Layer) -> str:
    if isinstance(layer, BitConv):
        return "bits" if layer.threshold is None else "bits, threshold"
    return type(layer).__name__.lower().replace("realconv", "real")


def _window(layer: Layer) -> str:
    window = getattr(layer, "window", None)
    assert window is not None
    text = f"{window.kernel[0]}×{window.kernel[1]}"
    if window.stride != (1, 1):
        text += f" by {window.stride[0]}"
    if isinstance(layer, BitConv) and any(window.pads):
        text += f", {layer.padding}"
    return text


def _check_row(check: LayerCheck) -> list[str]:
    return [
        check.name,
        check.kind,
        f"{check.elements:,}",
        f"{check.differing:,}",
        f"{check.zeros:,}",
        f"{check.largest:.3g} of {check.scale:.3g}",
    ]
