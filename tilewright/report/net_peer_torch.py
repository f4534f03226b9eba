"""What torch takes for the same network on a GPU: the vendor's convolutions as one CUDA graph.

    nodes of the file, in order     Conv by conv2d, channels last; others by torch's own functions,
                                    or the words of the array API
    recorded once, then replayed    what somebody writes who knows torch; launches cost nothing

float32 is computed as float32, without tf32, as ours is; cuDNN tries its algorithms first.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.backends.cuda.machine.timing import seconds
from tilewright.nn import by_torch
from tilewright.nn.evaluate import computed, moved, namespace
from tilewright.nn.graph import Node, Shape
from tilewright.nn.infer import operator_of, tensors
from tilewright.nn.net import Network
from tilewright.nn.operators.windows import windows_of
from tilewright.nn.passes.retyped import retyped
from tilewright.report.net_peers import Peer
from tilewright.report.net_profile import PeerTimes

TORCH = "torch"
_WARM = 3  # runs before the recording


def ready(
    network: Network, sizes: Mapping[str, Shape], given: Mapping[str, Any], dtype: str | None
) -> Peer:
    """The network by torch, for tensors on the GPU where they lie; `dtype` as of `Network.bind`."""
    import torch

    net = _Eager(network, sizes, given, dtype)
    name = f"{TORCH} {torch.__version__.partition('+')[0]}, CUDA graph"

    def profile(repeats: int) -> PeerTimes:
        return PeerTimes(name, net.operators(repeats))

    if not next(iter(given.values())).is_cuda:  # as tests run it
        return Peer(name, net.run, profile)
    return Peer(name, _recorded(net, given), profile)


def _recorded(net: _Eager, given: Mapping[str, Any]) -> Any:
    """A run as a graph: inputs copied in, results copied out, waited for."""
    import torch

    where = next(iter(given.values())).device
    side = torch.cuda.Stream(where)
    with torch.cuda.stream(side):
        for _ in range(_WARM):
            net.run()
    torch.cuda.synchronize(where)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        made = net.run()

    def run() -> list[Any]:
        net.fill(given)
        graph.replay()
        results = [one.clone() for one in made]
        torch.cuda.synchronize(where)
        return results

    return run


class _Eager:
    """The file's nodes by torch, on tensors of its own."""

    def __init__(
        self,
        network: Network,
        sizes: Mapping[str, Shape],
        given: Mapping[str, Any],
        dtype: str | None,
    ) -> None:
        graph = network.graph if dtype is None else retyped(network.graph, dtype)
        self._graph, self._tensors = graph, tensors(graph, sizes)
        first = next(iter(given.values()))
        self._xp, self._where = namespace(first), first.device
        self._held = {  # constants, and what is known before a run, as sizes are
            name: _last(moved(self._xp, first.device, tensor.value, tensor.dtype))
            for name, tensor in self._tensors.items()
            if tensor.value is not None
        }
        self._held |= {
            name: _last(one.to(_kind(self._tensors[name].dtype))) for name, one in given.items()
        }

    def fill(self, given: Mapping[str, Any]) -> None:
        """Other inputs, where the recorded run reads them."""
        for name, one in given.items():
            self._held[name].copy_(one)

    def run(self) -> list[Any]:
        """The outputs."""
        values = dict(self._held)
        with _exact():
            for node in self._graph.nodes:
                self._do(node, values)
        return [values[name] for name in self._graph.outputs]

    def operators(self, repeats: int) -> dict[str, float]:
        """Seconds of each kind of operator: of every node the median, summed."""
        values = dict(self._held)
        found: dict[str, float] = {}
        with _exact():
            for node in self._graph.nodes:
                self._do(node, values)
                took = [self._seconds(node, values) for _ in range(repeats)]
                found[node.operator] = found.get(node.operator, 0.0) + statistics.median(took)
        return found

    def _seconds(self, node: Node, values: dict[str, Any]) -> float:
        return seconds(lambda: self._do(node, values), self._where)

    def _do(self, node: Node, values: dict[str, Any]) -> None:
        if all(name in self._held for name in node.outputs if name):
            return
        given = [values[name] if name else None for name in node.inputs]
        made = self._made(node, given)
        values.update((n, one) for n, one in zip(node.outputs, made, strict=False) if n)

    def _made(self, node: Node, given: Sequence[Any]) -> Sequence[Any]:
        made = _conv(node, *given) if node.operator == "Conv" else by_torch.called(node, given)
        if made is not None:
            return (made,)
        kinds = [self._tensors[name].dtype if name else "" for name in node.outputs]
        return computed(self._xp, operator_of(node), node, given, kinds)


def _conv(node: Node, x: Any, weights: Any, bias: Any = None) -> Any:
    """By the vendor's library; None where its pads differ or it is not of pictures."""
    import torch.nn.functional as nnf

    if x.ndim != 4:
        return None
    at = windows_of(node.attributes, tuple(weights.shape[2:]), tuple(x.shape[2:]))
    top, left, bottom, right = at.pads
    pads = (top, left)
    if pads != (bottom, right):
        x, pads = nnf.pad(x, (left, right, top, bottom)), (0, 0)
    return nnf.conv2d(x, weights, bias, at.strides, pads, at.dilations, node.attributes["group"])


def _last(tensor: Any) -> Any:
    """Pictures and weights channels last, which halves are fastest in."""
    import torch

    if tensor.ndim != 4:
        return tensor.clone()
    return tensor.clone(memory_format=torch.channels_last)


def _kind(dtype: str) -> Any:
    import torch

    return getattr(torch, dtype)


def _exact() -> Any:
    """cuDNN without tf32, its algorithms tried."""
    import torch

    return torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False)
