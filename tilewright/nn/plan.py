"""What a bound network will do, decided before anything is allocated: steps, memory, the peak.

    graph, tensors --passes--> Convs and other nodes --segments.py--> steps --memory.py--> Plan

Values that engines read or write lie in planned memory, at fixed addresses; all others are made by
definitions, which give arrays of their own that go after their last reader.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tilewright.engines.choose import choose
from tilewright.engines.contract import Planner
from tilewright.engines.conv import Conv, ConvWork, Format
from tilewright.engines.product import ProductWork
from tilewright.engines.values import ValueWork
from tilewright.errors import DeviceMemoryError
from tilewright.facts.device import Device
from tilewright.facts.verdict import Verdict
from tilewright.nn.engine_of_bits import ENGINES, PassWork
from tilewright.nn.graph import Graph, Node, Tensor
from tilewright.nn.infer import operator_of
from tilewright.nn.lowered import Part, copied, lowered
from tilewright.nn.memory import Life, offsets, peak
from tilewright.nn.multiplied import work_of
from tilewright.nn.operators.base import Elementwise
from tilewright.nn.operators.bits import PASS, UNPACKED
from tilewright.nn.operators.convs import LAY_OUT, NAME, convs_node
from tilewright.nn.operators.product import NAME as PRODUCT
from tilewright.nn.segments import Segment, cut

FEW = 4  # channels of an input that processors' engines read channels first
# Channels of a result that OpenCL's processors keep last, GPUs never: residual nets of 20 to 128
# channels took 1.05 to 1.20 times as long channels first, by two drivers, of 6 channels 0.82.
WIDE = 16


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """A node at work.

    verdict  what the engines said, where one of them takes it
    segment  of a chain of convolutions, how it was cut
    refused  what they said, where none takes it
    part     what engines of values were asked, where one takes it
    product  what engines of products were asked, where one takes it
    covers   names of the nodes of the file that it does
    """

    node: Node
    covers: tuple[str, ...]
    flops: float
    verdict: Verdict | None = None
    segment: Segment | None = None
    refused: str = ""
    part: Part | None = None
    product: ProductWork | None = None

    @property
    def kind(self) -> str:
        """`Conv 3x3 16->16 relu`, joined by commas for a chain; else the operator."""
        if self.node.operator == PASS:
            return str(self.node.attributes["pass"].kind)
        if self.product is not None:
            return _multiplied(self.node.attributes["ends"].operator, self.product)
        if self.node.operator == PRODUCT:
            return str(self.node.attributes["ends"].operator)
        if self.node.operator != NAME:
            return self.node.operator
        return ", ".join(_text(layer) for layer in self.node.attributes["layers"])

    def scratch(self, tensors: Mapping[str, Tensor]) -> int:
        """Bytes that it takes besides values and weights, as its engine or its operator says."""
        if self.verdict is not None:
            return self.verdict.best.scratch
        given = [tensors[name] if name else None for name in self.node.inputs]
        return operator_of(self.node).scratch(self.node, given)

    @property
    def engine(self) -> str:
        """Who computes it."""
        return "definition" if self.verdict is None else self.verdict.best.engine

    @property
    def reason(self) -> str:
        """Why that engine, in its words; why none, where none takes it."""
        return self.refused if self.verdict is None else self.verdict.best.reason

    @property
    def seconds(self) -> float | None:
        """Predicted, None where nobody does."""
        return None if self.verdict is None else self.verdict.best.seconds


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """Steps in order, and where the values that engines touch lie.

    device    what it is for
    tensors   sizes and types of every value
    formats   how each planned value lies
    places    its first byte in one piece of memory of `arena` bytes
    lasts     the last step that reads each value
    outside   element types of inputs and outputs that callers see in another than they have here
    widened   element types of the file that are float32 here, as no engine has them
    peak_bytes   of values at once, weights and what a definition takes for itself not among them
    """

    device: Device
    graph: Graph
    steps: tuple[Step, ...]
    tensors: Mapping[str, Tensor]
    formats: Mapping[str, Format]
    places: Mapping[str, int]
    lasts: Mapping[str, int]
    arena: int
    peak_bytes: int
    outside: Mapping[str, str] = field(default_factory=dict)
    widened: tuple[str, ...] = ()

    def dtype_of(self, name: str) -> str:
        """The element type of an input or output as callers see it."""
        return self.outside.get(name, self.tensors[name].dtype)

    @property
    def scratch_bytes(self) -> int:
        """What engines take besides values, as they say."""
        return sum(step.verdict.best.scratch for step in self.steps if step.verdict is not None)

    @property
    def seconds(self) -> float | None:
        """The sum of what was predicted; None where a chain has no prediction."""
        found = [step.seconds for step in self.steps if step.verdict is not None]
        known = [one for one in found if one is not None]
        return sum(known) if known and len(known) == len(found) else None


def planned(
    graph: Graph,
    tensors: Mapping[str, Tensor],
    device: Device,
    engines: Sequence[Planner[ConvWork]],
    others: Sequence[Planner[ValueWork]] = (),
    outside: Mapping[str, str] | None = None,
    products: Sequence[Planner[ProductWork]] = (),
    *,
    exact: bool,
) -> Plan:
    """The plan of a graph that passes have been over; `others` are engines of values, `products` of
    products.

    outside: element types that callers see, by the names of inputs and outputs, where others.

    Raises DeviceMemoryError where its values need more memory than the device has.
    """
    at = _Drafts(graph, dict(tensors), device, engines, others, products, exact)
    for node in graph.nodes:
        if node.operator == NAME and _is_there(node, tensors):
            at.chain(node)
        elif node.operator == PASS and tensors[node.outputs[0]].size:
            at.layers_of_bits(node)
        elif node.operator == PRODUCT:
            at.product(node)
        elif not at.values(node):
            at.definition(node)
    formats = at.formats
    for source in graph.inputs:
        # A recorded run reads its inputs where it read them before; others are widened there.
        if device.backend == "cuda" or (outside and source.name in outside):
            formats.setdefault(source.name, "channels_first")
    steps = tuple(at.steps)
    lasts = _lasts(graph, steps, formats)
    lives = _lives(graph, steps, at.tensors, lasts, set(formats), at.kept)
    places, arena = offsets(lives[0])
    most = arena + peak(lives[1])
    _check_memory(graph, at, arena, lives[1])
    return Plan(
        device, graph, steps, at.tensors, formats, places, lasts, arena, most, outside or {}
    )


def _check_memory(graph: Graph, at: _Drafts, arena: int, lives: Sequence[Life]) -> None:
    """Raise DeviceMemoryError where what is surely held at once is more than the device has.

    lives: of values that lie outside the arena; what a definition takes lives as long as its step.
    """
    taken = [(step.scratch(at.tensors), step) for step in at.steps]
    engines = max((held for held, step in taken if step.verdict is not None), default=0)
    more = [
        Life("", held, number, number)
        for number, (held, step) in enumerate(taken)
        if step.verdict is None and held
    ]
    values = arena + peak([*lives, *more])
    weights = sum(tensor.bytes for tensor in graph.constants.values())
    if at.device.memory and values + engines + weights > at.device.memory:
        largest, step = max(taken, key=lambda one: one[0])
        raise DeviceMemoryError(
            f"shape: values take {arena + peak(lives)} bytes at once beside {weights} of weights"
            f" and {largest} that {step.node.title} takes besides; {at.device.name} has"
            f" {at.device.memory}"
        )


class _Drafts:
    """Steps so far, and what is known of values: those between pieces of a chain among them."""

    def __init__(
        self,
        graph: Graph,
        tensors: dict[str, Tensor],
        device: Device,
        engines: Sequence[Planner[ConvWork]],
        others: Sequence[Planner[ValueWork]],
        products: Sequence[Planner[ProductWork]],
        exact: bool,
    ) -> None:
        self.tensors, self.steps = tensors, list[Step]()
        self.formats: dict[str, Format] = {}
        self.kept: set[str] = set()  # values whose borders stay as they were made
        self.device, self._engines, self._exact = device, engines, exact
        self._others, self._products = others, products
        self._given = frozenset(source.name for source in graph.inputs)
        self._ends, self._constants = frozenset(graph.outputs), frozenset(graph.constants)

    def definition(self, node: Node, refused: str = "") -> None:
        """A node that is computed by its definition."""
        given = [self.tensors[name] if name else None for name in node.inputs]
        made = [self.tensors[name] for name in node.outputs if name]
        flops = operator_of(node).flops(node, given, made)
        self.steps.append(Step(node, _covers(node), flops, refused=refused))

    def values(self, node: Node) -> bool:
        """A node as the parts that engines of values take; False where they do not."""
        parts = lowered(node, self.tensors, self._lies) if self._others else None
        if parts is None:
            return False
        found = [choose(part.work, self.device, tuple(self._others)) for part in parts]
        if not all(verdict.proposals for verdict in found):
            return False
        given = [self.tensors[name] if name else None for name in node.inputs]
        made = [self.tensors[name] for name in node.outputs if name]
        flops = operator_of(node).flops(node, given, made)
        for number, (part, verdict) in enumerate(zip(parts, found, strict=True)):
            self.tensors[part.output] = part.tensor
            self._part(node, part, verdict, flops if number == 0 else 0.0)
        return True

    def _part(self, node: Node, part: Part, verdict: Verdict, flops: float) -> None:
        """One part; what it reads lies as it asks, or as it comes."""
        names = []
        for name in part.inputs:
            if part.wants is not None and name not in self._constants:
                names.append(self._laid(name, part.wants))
            else:
                if name not in self._constants:
                    self.formats.setdefault(name, self._lies(name))
                names.append(name)
        last = "channels_last" in (self.formats.get(name) for name in names)
        free: Format = "channels_last" if last else "channels_first"
        if part.wants is None and (len(part.tensor.shape) != 4 or part.output in self._ends):
            free = "channels_first"
        self.formats[part.output] = part.wants or free
        step = replace(node, inputs=tuple(names), outputs=(part.output,))
        covers = _covers(node) if part.output == node.outputs[0] else ()
        self.steps.append(Step(step, covers, flops, part=part, verdict=verdict))

    def _lies(self, name: str) -> Format:
        """How a value lies, or will."""
        if name in self.formats:
            return self.formats[name]
        if len(self.tensors[name].shape) != 4 or name in self._constants:
            return "channels_first"
        return self._rather(name) or "channels_last"

    def product(self, node: Node) -> None:
        """A product by the engine that is predicted to be first."""
        known = node.inputs[1] in self._constants

        def lies(name: str) -> Format:
            return self.formats.get(name, "channels_first")

        work = work_of(node, self.tensors, lies, fixed=known)
        verdict = None if work is None else choose(work, self.device, self._products)
        if verdict is None or not verdict.proposals:
            self.definition(node, "" if verdict is None else verdict.reasons)
            return
        for name in (*node.inputs, *node.outputs):
            if name not in self._constants:
                self.formats.setdefault(name, "channels_first")
        given = [self.tensors[name] for name in node.inputs]
        flops = operator_of(node).flops(node, given, [self.tensors[node.outputs[0]]])
        self.steps.append(Step(node, _covers(node), flops, verdict, product=work))

    def chain(self, node: Node) -> None:
        """A chain as the pieces that engines take."""
        x = self.tensors[node.inputs[0]]
        images, _, height, width = x.shape
        layers = node.attributes["layers"]
        dtype = x.dtype if layers[0].whole is None else layers[0].whole.source
        work = ConvWork(layers, images, height, width, dtype, self._exact)
        preferred = between(self.device, work.sizes[-1][0])
        found = cut(work, self.device, self._engines, preferred, self._rather(node.inputs[0]))
        residuals = iter(node.inputs[1:])
        name = node.inputs[0]
        for piece in found:
            part = layers[piece.begin : piece.end]
            whole = piece.end == len(layers)
            output = node.outputs[0] if whole else f"{node.outputs[0]}, layer {piece.end}"
            self.tensors[output] = Tensor((images, *piece.work.sizes[-1]), piece.work.result_dtype)
            added = tuple(next(residuals) for layer in part if layer.adds)
            nodes = node.attributes["parts"][piece.begin : piece.end]
            self._piece(convs_node(node.name, part, (name, *added), output, nodes), piece)
            name = output

    def _rather(self, name: str) -> Format | None:
        """How a processor would have a picture that a caller passes: as it comes, if of few
        channels; by OpenCL any value as it lies.

        Engines turn three channels as they read them; by NumPy a picture of 224 x 224 took 0.2 ms.
        """
        few = name in self._given and self.tensors[name].shape[1] <= FEW
        if few and self.device.kind == "cpu":
            return "channels_first"
        return self.formats.get(name) if self.device.backend == "opencl" else None

    def _piece(self, node: Node, piece: Segment) -> None:
        """A piece by its engine, what it reads laid out as it asks."""
        if not piece.verdict.proposals:
            self.definition(node, piece.verdict.reasons)
            return
        work = piece.work
        names = [self._laid(node.inputs[0], work.source)]
        names += [self._laid(name, work.result) for name in node.inputs[1:]]
        self.formats[node.outputs[0]] = work.result
        laid = replace(node, inputs=tuple(names))
        self.steps.append(Step(laid, _covers(node), work.flops, piece.verdict, piece))

    def layers_of_bits(self, node: Node) -> None:
        """A pass over layers of bits."""
        given = [self.tensors[name] for name in node.inputs]
        reals = next((t.dtype for t in given if t.dtype != "uint64"), "float32")
        work = PassWork(node.attributes["pass"], given[0].shape[0], reals)
        verdict = choose(work, self.device, ENGINES)
        if not verdict.proposals:
            self.definition(node, verdict.reasons)
            return
        names = [
            self._laid(n, "channels_first") if len(t.shape) == 4 else n
            for n, t in zip(node.inputs, given, strict=True)
        ]
        for name in (*names, *node.outputs):
            self.formats.setdefault(name, "channels_first")
        self.kept.update(n for n in node.outputs if self.tensors[n].dtype == "uint64")
        made = [self.tensors[name] for name in node.outputs]
        flops = operator_of(node).flops(node, given, made)
        self.steps.append(Step(replace(node, inputs=tuple(names)), _covers(node), flops, verdict))

    def _laid(self, name: str, wanted: Format) -> str:
        """The name under which a value lies as it is wanted; laid out anew where it does not."""
        there = self.formats.setdefault(name, wanted)
        tensor = self.tensors[name]
        _, channels, height, width = tensor.shape
        if there == wanted or channels == 1 or height * width == 1:
            return name
        copy = f"{name}, {wanted.replace('_', ' ')}"
        if copy not in self.formats:
            self.formats[copy], self.tensors[copy] = wanted, tensor
            node = Node(LAY_OUT, 1, (name,), (copy,), {}, f"lay out {name}")
            self._lay_out(node, tensor)
        return copy

    def _lay_out(self, node: Node, tensor: Tensor) -> None:
        """By an engine where one takes it."""
        part = copied(node, tensor)
        verdict = choose(part.work, self.device, tuple(self._others)) if self._others else None
        if verdict is None or not verdict.proposals or tensor.dtype != "float32":
            self.steps.append(Step(node, (), 0.0))
        else:
            self.steps.append(Step(node, (), 0.0, part=part, verdict=verdict))


def _is_there(node: Node, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a chain has pixels and channels everywhere: engines divide by them."""
    weights = all(layer.weights.size for layer in node.attributes["layers"])
    return weights and tensors[node.inputs[0]].size > 0 and tensors[node.outputs[0]].size > 0


def between(device: Device, channels: int) -> Format:
    """How values of so many channels lie between the pieces of a network."""
    first = device.backend == "opencl" and (device.kind != "cpu" or channels < WIDE)
    return "channels_first" if first else "channels_last"


def _covers(node: Node) -> tuple[str, ...]:
    """The nodes of the file that a node does."""
    if node.operator == UNPACKED:
        return ()
    parts = node.attributes.get("parts") if node.operator in (NAME, PASS, PRODUCT) else None
    return (node.name,) if parts is None else tuple(name for part in parts for name in part)


def _lasts(graph: Graph, steps: Sequence[Step], fixed: Mapping[str, Format]) -> dict[str, int]:
    """The last step that reads each value, or may read its memory by another name.

    What a definition gives may be a view of what it was given: that lives as long then.
    """
    lasts = {}
    for at, step in enumerate(steps):
        lasts.update(dict.fromkeys((*step.node.outputs, *step.node.inputs), at))
    lasts.update(dict.fromkeys(graph.outputs, len(steps)))
    for step in reversed(steps):
        if step.verdict is None and not makes_new(step.node):
            views = [name for name in step.node.outputs if name and name not in fixed]
            end = max((lasts[name] for name in views), default=0)
            for name in filter(None, step.node.inputs):
                lasts[name] = max(lasts[name], end)
    return lasts


def _text(layer: Conv) -> str:
    """A layer in a few words."""
    parts = [f"{layer.kernel[0]}x{layer.kernel[1]} {layer.inputs}->{layer.outputs}"]
    parts += [f"groups {layer.groups}"] if layer.groups > 1 else []
    parts += [f"stride {layer.strides[0]}x{layer.strides[1]}"] if layer.strides != (1, 1) else []
    parts += ["+ residual"] if layer.adds else []
    parts += [layer.activation.kind] if layer.activation.kind != "none" else []
    parts += [f"shuffle {layer.shuffle}"] if layer.shuffle > 1 else []
    return f"Conv{'' if layer.whole is None else ' int8'} " + " ".join(parts)


def _multiplied(operator: str, work: ProductWork) -> str:
    """A product in a few words: how many, its sizes, what ends it."""
    m, n, k = work.sizes
    parts = [operator, f"{work.count} times" if work.count > 1 else "", f"{m}x{k} by {k}x{n}"]
    parts += ["+ C" if work.beta else "", "+ bias" if work.bias else ""]
    parts += [work.activation if work.activation != "none" else ""]
    return " ".join(part for part in parts if part)


def makes_new(node: Node) -> bool:
    """Whether a definition's result is made new, not a view; `bound.py` makes sure of it."""
    return node.operator == NAME or isinstance(operator_of(node), Elementwise)


def _lives(
    graph: Graph,
    steps: Sequence[Step],
    tensors: Mapping[str, Tensor],
    lasts: Mapping[str, int],
    fixed: set[str],
    kept: set[str],
) -> tuple[list[Life], list[Life]]:
    """The values that want planned memory, and the others."""
    begins = {source.name: -1 for source in graph.inputs}
    begins.update((n, at) for at, step in enumerate(steps) for n in step.node.outputs if n)
    begins.update(dict.fromkeys(kept, -1))
    lasts = {**lasts, **dict.fromkeys(kept, len(steps))}
    lives = [
        Life(name, tensors[name].bytes, first, lasts.get(name, first))
        for name, first in begins.items()
    ]
    given = {source.name for source in graph.inputs}
    inside = [life for life in lives if life.name in fixed]
    outside = [life for life in lives if life.name not in fixed and life.name not in given]
    return inside, outside
