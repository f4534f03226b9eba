"""`tilewright net bench`: a network's whole runs beside those of others, in turns."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import bars, common
from tilewright.cli.net_inputs import (
    ModelArgument,
    NetDtypeOption,
    ShapeOption,
    ThreadsOption,
    drawn,
    shapes_of,
    times,
    type_of,
)
from tilewright.errors import ArgumentError
from tilewright.files.whole import check_writable, write_json
from tilewright.nn.places import device_of
from tilewright.nn.stored import load
from tilewright.report import net_measure, net_peer_torch, net_peers
from tilewright.report.document import provenance
from tilewright.report.net_profile import OURS
from tilewright.wording import time_text


def bench(
    model: ModelArgument,
    shape: ShapeOption = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            "--against",
            metavar="PEER",
            help="onnxruntime, openvino, torch on a GPU; again for more.",
        ),
    ] = None,
    device: common.DeviceOption = None,
    dtype: NetDtypeOption = None,
    repeats: common.RepeatsOption = 20,
    threads: ThreadsOption = None,
    json: common.JsonOption = None,
) -> None:
    """Time whole runs of a network, in turns with other libraries, as medians and ratios.

    Example: `tilewright net bench model.onnx --shape 1x3x224x224 --against onnxruntime`
    """
    check_writable(json, "--json")
    network = load(model)
    sizes = shapes_of(network.graph, shape)
    chosen = device_of(device or "auto", network.graph)
    feeds = drawn(network.graph, sizes, 0)
    given = net_measure.on_device(feeds, chosen)
    peers = []
    for name in against or ():
        if name == net_peer_torch.TORCH and chosen.backend == "cuda":
            peers.append(net_peer_torch.ready(network, sizes, given, dtype))
        else:
            _check_file(model)
            peers.append(net_peers.ready(name, model, feeds, threads))
    with bars.working("making ready: kernels are compiled once, and kept"):
        bound = network.bind(sizes, chosen, dtype)
    calls = {OURS: net_measure.call_of(bound, given)}
    seconds = net_peers.in_turns(calls | {peer.name: peer.run for peer in peers}, repeats)
    label = type_of(network, dtype)
    said = ", ".join(f"{name} {times(size)}" for name, size in sizes.items())
    print(f"{network.title}, {said}, {label}, on {chosen.id}, {chosen.name}")
    for name, median in seconds.items():
        ratio = "" if name == OURS else f"  {median / seconds[OURS]:.2f} times ours"
        print(f"{name:<24}{time_text(median):>12}{ratio}")
    if json is not None:
        found = {"title": network.title, "dtype": label, "seconds": seconds, "sizes": sizes}
        write_json(json, {"schema": "tilewright-net-bench/1", **provenance(chosen), **found})
        print(f"wrote {json}")


def _check_file(model: Path) -> None:
    if model.suffix.lower() == ".npz":
        raise ArgumentError(
            f"MODEL={str(model)!r}: --against needs the ONNX file, which others read"
        )
