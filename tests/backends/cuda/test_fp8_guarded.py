"""8-bit products behind a guard: what is launched at once, and what is left to the checks."""

from __future__ import annotations

import ctypes
import gc
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from tilewright import remember  # noqa: E402
from tilewright.arrays import torch_private as private  # noqa: E402
from tilewright.backends.cuda.fp8 import launch  # noqa: E402
from tilewright.backends.cuda.fp8.work import Fp8Work, Operands, Scales  # noqa: E402
from tilewright.backends.cuda.machine import faults  # noqa: E402
from tilewright.torch_ops import fp8_constants, fp8_guarded  # noqa: E402

E4M3 = torch.float8_e4m3fn
NAMES = ("a", "b", "offsets", "scale_a", "scale_b")


class Way:
    """Stands for launches on Hopper; notes what they are given."""

    def __init__(self) -> None:
        self.launched: list[tuple[Any, ...]] = []

    def __call__(self, stream: int, now: Operands) -> None:
        """Not asked for here."""

    def settled(self, work: Fp8Work) -> Any:
        """A launch that notes its arguments."""
        return lambda *given: self.launched.append(given)


def empty(shape: Any, strides: Any, dtype: Any) -> Any:
    """What torch's generated code calls, on a processor; it takes tuples alone."""
    assert type(shape) is type(strides) is tuple
    return torch.empty_strided(shape, strides, dtype=dtype)


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A processor in the place of a GPU."""
    monkeypatch.setattr(private, "current_device", lambda torch: lambda: -1)
    monkeypatch.setattr(private, "raw_stream", lambda torch: lambda ordinal: 7)
    monkeypatch.setattr(private, "is_capturing", lambda torch: lambda: False)
    monkeypatch.setattr(private, "empty_strided", lambda torch: empty)
    monkeypatch.setattr(faults, "check_unless_captured", lambda value: None)
    remember.forget()
    yield Way()
    remember.forget()


def rows() -> dict[str, Any]:
    """Two groups, scales of rows."""
    return {
        "a": torch.zeros(300, 256).to(E4M3),
        "b": torch.zeros(2, 128, 256).to(E4M3).mT,
        "offsets": torch.tensor([100, 300]),
        "scale_a": torch.ones(300, 1),
        "scale_b": torch.ones(2, 1, 128),
    }


def alone() -> dict[str, Any]:
    """A single product of int8, without scales."""
    a, b = torch.zeros(300, 256).to(torch.int8), torch.zeros(128, 256).to(torch.int8).t()
    return {"a": a, "b": b, "offsets": None, "scale_a": None, "scale_b": None}


def depths() -> dict[str, Any]:
    """Groups of k."""
    return {
        "a": torch.zeros(128, 256).to(E4M3),
        "b": torch.zeros(64, 256).to(E4M3).t(),
        "offsets": torch.tensor([128, 256]),
        "scale_a": torch.ones(128, 2),
        "scale_b": torch.ones(2, 64),
    }


FORMS = {"rows": (rows, (300, 128)), "alone": (alone, (300, 128)), "depths": (depths, (2, 128, 64))}


def passed(given: dict[str, Any]) -> Any:
    return tuple(given[name] for name in NAMES)


def filled(given: dict[str, Any], out: Any) -> Fp8Work:
    """As the checks make it of what is given."""
    a, b, offsets, scale_a, scale_b = passed(given)
    single = offsets is None
    if single:
        b, offsets = b[None], fp8_constants.end(a)
    if scale_a is None:
        one = fp8_constants.one(a)
        scale_a, scale_b = one.expand(a.shape[0], 1), one.expand(1, 1, b.shape[2])
    elif b.dim() == 2:
        scale_b = scale_b[None]
    return Fp8Work(Operands(a, b, offsets, scale_a, scale_b, out), Scales.ROWS, b.dim() == 2)


@pytest.mark.parametrize("into", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_tensors_that_lie_exactly_so_are_launched_at_once(form: str, into: bool, way: Any) -> None:
    make, shape = FORMS[form]
    given = make()
    out = torch.empty(shape) if into else None
    work = filled(given, torch.empty(shape))
    assert fp8_guarded.at_once(passed(given), out, torch.float32) is None
    fp8_guarded.met(passed(given), out, torch.float32, work, way)
    given = make()
    out = torch.empty(shape) if into else None
    version = out._version if into else 0
    found = fp8_guarded.at_once(passed(given), out, torch.float32)
    assert found.shape == shape
    assert found.dtype == torch.float32
    assert found is out or not into
    assert not into or out._version == version + 1
    ((stream, offsets, result, places),) = way.launched
    now = filled(given, found).operands
    assert (stream, offsets.tolist(), result) == (7, now.offsets.tolist(), found)
    assert places == tuple(
        one.data_ptr() for one in (now.a, now.b, now.scale_a, now.scale_b, found)
    )


def moved(one: Any) -> Any:
    """The same four bytes further on."""
    step = 4 // one.element_size()
    memory = torch.empty(one.numel() + step, dtype=one.dtype)
    return memory[step:].as_strided(one.shape, one.stride())


CHANGES = {
    "fewer scales": lambda given: {"scale_a": given["scale_a"][:299]},
    "wide scales": lambda given: {"scale_a": given["scale_a"].double()},
    "rows": lambda given: {"a": given["a"][:299]},
    "another dtype": lambda given: {"b": given["b"].to(torch.float8_e5m2)},
    "n contiguous": lambda given: {"b": given["b"].contiguous()},
    "no address of 16": lambda given: {"a": moved(given["a"])},
    "scales elsewhere": lambda given: {"scale_b": moved(given["scale_b"])},
    "a gradient": lambda given: {"scale_a": given["scale_a"].clone().requires_grad_()},
    "the same twice": lambda given: {"scale_a": torch.ones(1).expand(300, 1)},
    "no scale": lambda given: {"scale_b": None},
    "a list": lambda given: {"a": [1, 2]},
    "an array": lambda given: {"scale_a": given["scale_a"].numpy()},
    "a subclass": lambda given: {"a": given["a"].as_subclass(torch.nn.Buffer)},
    "nothing there": lambda given: {"scale_a": gone(given["scale_a"])},
}


def gone(one: Any) -> Any:
    """A tensor whose memory was given back."""
    one.untyped_storage().resize_(0)
    return one


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_otherwise_is_left_to_the_checks(change: str, way: Any) -> None:
    given, out = rows(), torch.empty(300, 128)
    fp8_guarded.met(passed(given), out, None, filled(given, out), way)
    assert fp8_guarded.at_once(passed(given), out, None) is out
    changed = {**given, **CHANGES[change](given)}
    assert fp8_guarded.at_once(passed(changed), out, None) is None
    assert len(way.launched) == 1


def test_an_out_that_may_not_be_written_is_left_to_the_checks(way: Any) -> None:
    given, out = rows(), torch.empty(300, 128)
    fp8_guarded.met(passed(given), out, None, filled(given, out), way)
    memory = torch.zeros(300 * 128 + 300)
    memory[:300] = 1.0
    over = {**given, "scale_a": memory[:300, None]}
    refused = [
        (over, memory[4:-296].view(300, 128)),
        (given, memory[1:-299].view(300, 128)),
        (given, torch.empty(300, 256)[:, :128]),
        (given, torch.empty(300, 128).double()),
    ]
    for operands, into in refused:
        assert fp8_guarded.at_once(passed(operands), into, None) is None
    with torch.no_grad():
        learning = torch.empty(300, 128, requires_grad=True)
        assert fp8_guarded.at_once(passed(given), learning, None) is None
    assert fp8_guarded.at_once(passed(given), out, [torch.float32]) is None
    assert fp8_guarded.at_once(passed(given), out, torch.float32) is None
    assert not way.launched
    assert fp8_guarded.at_once(passed(over), memory[300:].view(300, 128), None) is not None


def test_who_looks_on_sees_the_checks(way: Any) -> None:
    given, out = rows(), torch.empty(300, 128)
    fp8_guarded.met(passed(given), out, None, filled(given, out), way)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = {name: mode.from_tensor(one) for name, one in given.items()}
        assert fp8_guarded.at_once(passed(fake), None, None) is None
        assert fp8_guarded.at_once(passed(given), out, None) is None
    with torch.autograd.forward_ad.dual_level():
        assert fp8_guarded.at_once(passed(given), out, None) is None

    def mapped(scale: Any) -> Any:
        assert fp8_guarded.at_once(passed({**given, "scale_a": scale}), out, None) is None
        return scale

    torch.func.vmap(mapped)(torch.ones(3, 300, 1))
    with torch.inference_mode():
        assert fp8_guarded.at_once(passed(rows()), torch.empty(300, 128), None) is None
    assert not way.launched


def test_what_no_launch_settles_gets_no_guard(way: Any) -> None:
    given, out = rows(), torch.empty(300, 128)
    fp8_guarded.met(passed(given), out, None, filled(given, out), lambda stream, now: None)
    assert len(fp8_guarded._guarded) == 0
    remember.forget()
    fp8_guarded.met(passed(given), out, None, filled(given, out), way)
    remember.forget()
    assert fp8_guarded.at_once(passed(given), out, None) is None


class Launcher:
    """The driver: what the argument of each launch holds is noted."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.launched: list[tuple[int, Any]] = []
        monkeypatch.setattr(launch, "begins_with_address", lambda: True)
        monkeypatch.setattr(launch, "encoded", lambda kind, at, *rest, **more: map_of(at))
        monkeypatch.setattr(launch.nvrtc, "function", lambda *given, **more: "kernel")
        monkeypatch.setattr(launch.nvrtc, "launcher", self.launcher)
        monkeypatch.setattr(faults, "flag", lambda ordinal: torch.zeros(1))
        properties = SimpleNamespace(multi_processor_count=132)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda ordinal: properties)

    def launcher(self, call: tuple[Any, ...]) -> Any:
        """Reads the argument where it lies, as the driver does."""
        arguments = call[-1]

        def enqueue(stream: int) -> None:
            at = ctypes.c_void_p.from_address(arguments.pointer).value
            self.launched.append((stream, launch._Call.from_buffer_copy(ctypes.string_at(
                at, ctypes.sizeof(launch._Call)))))  # fmt: skip

        return enqueue


def map_of(at: int) -> bytes:
    """A tensor map of which only the address is known."""
    return at.to_bytes(8, "little") + bytes(range(120))


def head(one: Any, name: str) -> int:
    """The address in the map of an operand."""
    at = ctypes.addressof(one) + getattr(launch._Call, name).offset
    assert ctypes.string_at(at + 8, 120) == bytes(range(120))
    return int(ctypes.c_uint64.from_address(at).value)


@pytest.mark.parametrize("form", ["rows", "depths"])
def test_a_settled_launch_keeps_all_that_the_driver_reads(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, shape = FORMS[form]
    found = Launcher(monkeypatch)
    given, out = make(), torch.empty(shape)
    work, buffer, made = filled(given, out), ctypes.create_string_buffer, []

    def noted(size: int) -> Any:
        made.append(weakref.ref(memory := buffer(size)))
        return memory

    monkeypatch.setattr(ctypes, "create_string_buffer", noted)
    again = launch.Launch(work).settle(work.operands)
    gc.collect()
    assert [one() is None for one in made] == [False]
    table = torch.zeros(16, dtype=torch.int32)
    places = (1 << 20, 2 << 20, 3 << 20, 4 << 20, 5 << 20)
    again(7, table, places)
    launch.Launch(work).launch(8, table, work.operands)
    (stream, settled), (other, usual) = found.launched
    assert (stream, other) == (7, 8)
    assert (head(settled, "a"), head(settled, "b")) == places[:2]
    assert (settled.a_scales, settled.b_scales, settled.out) == places[2:]
    assert settled.table == table.data_ptr()
    moved = {"a", "b", "a_scales", "b_scales", "out", "fault"}
    for name, *_ in launch._Call._fields_:
        assert name in moved or getattr(settled, name) == getattr(usual, name), name
