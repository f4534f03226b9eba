"""Measures a network: every step before and after fusion, whole runs in turns with peers.

Each part is told as soon as it is known, so that who stops a long one keeps what was measured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tilewright.arrays.array import NDArray
from tilewright.facts.device import Device
from tilewright.nn.bound import Bound
from tilewright.nn.net import Network
from tilewright.nn.profile import matched
from tilewright.report.net_peers import Call, Peer, in_turns
from tilewright.report.net_profile import OURS, NetProfile


def measured(
    network: Network,
    profile: NetProfile,
    given: Mapping[str, Any],
    peers: Sequence[Peer],
    repeats: int,
    report: Callable[[str], None] = lambda name: None,
    dtype: str | None = None,
) -> Iterator[NetProfile]:
    """The profile of what was only counted, with more times at each turn: of nodes before fusion,
    of steps after it, of whole runs, of each peer's operators. `report` hears what comes next.

    given: inputs where the network runs, as `on_device` lays them.
    dtype: as of `Network.bind`.
    """
    options = (profile.sizes, profile.device, dtype)
    report("before fusion")
    before = network.bind(*options, fuse=False).profile(**given, repeats=repeats)
    found = replace(profile, before=matched(profile.before, before))
    yield found
    report("after fusion")
    bound = network.bind(*options)
    found = replace(found, after=bound.profile(**given, repeats=repeats))
    yield found
    report("whole runs")
    calls = {OURS: call_of(bound, given), **{peer.name: peer.run for peer in peers}}
    found = replace(found, seconds=in_turns(calls, repeats))
    yield found
    report("peers")
    for peer in peers:
        found = replace(found, peers=(*found.peers, peer.profile(repeats)))
        yield found


def on_device(feeds: Mapping[str, NDArray], device: Device) -> dict[str, Any]:
    """Inputs where the network runs: on a GPU transfers are nobody's time."""
    if device.backend != "cuda":
        return dict(feeds)
    import torch

    where = f"cuda:{device.id.partition(':')[2]}"
    return {name: torch.from_numpy(array).to(where) for name, array in feeds.items()}


def call_of(bound: Bound, given: Mapping[str, Any]) -> Call:
    """A whole run, and the wait for it."""

    def call() -> None:
        bound.run(**given)
        bound.wait()

    return call
