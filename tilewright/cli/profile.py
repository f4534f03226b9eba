"""`tilewright profile`, which is `tilewright net profile`: where a network's time goes, and why."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tilewright.cli import bars, common, results
from tilewright.cli.ceilings import measured
from tilewright.cli.ending import INTERRUPTED
from tilewright.cli.net_inputs import (
    ModelArgument,
    NetDtypeOption,
    ShapeOption,
    ThreadsOption,
    check_drawn,
    drawn,
    shapes_of,
    type_of,
)
from tilewright.nn.net import Network
from tilewright.nn.places import device_of
from tilewright.nn.stored import load
from tilewright.report import (
    net_measure,
    net_peer_torch,
    net_peers,
    net_pictures,
    net_profile,
    plots,
)
from tilewright.report.net_profile import NetProfile


def profile(
    model: ModelArgument,
    shape: ShapeOption = None,
    device: common.DeviceOption = None,
    dtype: NetDtypeOption = None,
    repeats: common.RepeatsOption = 20,
    top: Annotated[
        int,
        typer.Option(
            "--top", callback=common.positive, metavar="N", help="Steps to show, the slowest."
        ),
    ] = 20,
    every: Annotated[bool, typer.Option("--all", help="Show every step, and every node.")] = False,
    measure: Annotated[
        bool, typer.Option("--run/--no-run", help="Whether to run it, or only count.")
    ] = True,
    peers: Annotated[
        bool, typer.Option("--peers/--no-peers", help="onnxruntime, OpenVINO; torch on a GPU.")
    ] = True,
    threads: ThreadsOption = None,
    json: common.JsonOption = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the roofline: FILE.png or FILE.svg."),
    ] = None,
    bars: Annotated[
        Path | None,
        typer.Option("--bars", metavar="FILE", help="Draw where time goes: FILE.png or FILE.svg."),
    ] = None,
) -> None:
    """Place every operator of a network under the device's measured roof, and time it.

    Operations, bytes and the least time of every node of the file; the same of the steps after
    fusion, with the time and the engine of each; whole runs beside onnxruntime and OpenVINO, on a
    GPU beside torch's convolutions as a CUDA graph. Stopped by Ctrl-C it shows what it had measured
    by then, and writes no file.

    Examples:

    - `tilewright profile model.onnx --no-run`
    - `tilewright profile model.onnx --shape 1x3x224x224 --plot roofline.png --bars where.png`
    """
    results.check_outputs(json, plot)
    if bars is not None:
        plots.check(bars, "--bars")
    network = load(model)
    found = _counted(network, shape, device, dtype)
    stopped = ""
    if measure:
        found, stopped = _timed(network, found, model, dtype, repeats, threads, peers)
    common.console().print(net_profile.table(found, None if every else top))
    if stopped:
        common.note(f"stopped at {stopped}: what was measured before is shown, no file is written")
        raise typer.Exit(INTERRUPTED)
    draw = partial(net_pictures.draw_roofline, found)
    results.deliver(json, lambda: net_profile.document(found), plot, draw)
    if bars is not None:
        net_pictures.draw_bars(found, bars, "--bars")
        print(f"wrote {bars}")


def _counted(
    network: Network, texts: list[str] | None, device: str | None, dtype: str | None
) -> NetProfile:
    """Operations, bytes and roofs of a network's nodes; nothing of it is run."""
    sizes = shapes_of(network.graph, texts)
    before = network.profile(sizes, dtype)
    chosen = device_of(device or "auto", network.graph)
    check_drawn(network.graph, sizes)
    ceilings = chosen.ceilings or measured(chosen)
    return NetProfile(network.title, chosen, ceilings, type_of(network, dtype), sizes, before)


def _timed(
    network: Network,
    found: NetProfile,
    model: Path,
    dtype: str | None,
    repeats: int,
    threads: int | None,
    peers: bool,
) -> tuple[NetProfile, str]:
    """The profile with times; stopped by Ctrl-C that of what was known by then, and at what."""
    part = "making ready"

    def report(name: str) -> None:
        nonlocal part
        part = name
        advance(name)

    feeds = drawn(network.graph, found.sizes, 0)
    with bars.progress(4) as advance:
        try:
            given = net_measure.on_device(feeds, found.device)
            beside: list[net_peers.Peer] = []
            if peers and found.device.backend == "cuda":
                beside = [net_peer_torch.ready(network, found.sizes, given, dtype)]
            elif peers and model.suffix.lower() == ".onnx":
                beside = net_peers.runnable(model, feeds, threads)
            parts = net_measure.measured(network, found, given, beside, repeats, report, dtype)
            for known in parts:
                found = known
        except KeyboardInterrupt:
            return found, part
    return found, ""
