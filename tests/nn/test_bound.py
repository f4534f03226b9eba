"""Bound networks give what the definitions give, in planned memory, to any kind of array."""

from __future__ import annotations

import copy
import multiprocessing
import os
import pickle
import threading
import warnings
from typing import Any

import numpy as np
import pytest

from tests.support.nets import NodeText, model, picture, upscaler, weights_of
from tilewright import nn
from tilewright.errors import (
    ArgumentError,
    DeviceMemoryError,
    DtypeError,
    OperandError,
    OverlapError,
    ShapeError,
)

pytest.importorskip("onnx")


def test_a_bound_network_gives_what_the_definitions_give() -> None:
    net = nn.import_onnx(model(*upscaler()))
    x = picture(1, 1, 20, 33)
    bound = net.bind(x.shape, device="host")
    wanted = net.run(x)
    for _ in range(2):  # memory is used again
        made = bound(x)
        np.testing.assert_allclose(made, wanted, atol=1e-5 * np.abs(wanted).max())
    other = picture(1, 1, 20, 33) * -2
    again = bound(other)
    np.testing.assert_allclose(made, wanted, atol=1e-5 * np.abs(wanted).max())  # not written over
    assert not np.array_equal(again, made)


def test_results_go_into_out_and_come_as_the_kind_that_was_passed() -> None:
    torch = pytest.importorskip("torch")
    net = nn.import_onnx(model(*upscaler()))
    x = picture(1, 1, 8, 9)
    bound = net.bind({"x": x.shape}, device="host")
    out = np.full((1, 4, 8, 9), np.nan, np.float32)
    assert bound.run(x, out=out) is out
    np.testing.assert_array_equal(out, bound(x))
    made = bound(torch.from_numpy(x))
    assert isinstance(made, torch.Tensor)
    np.testing.assert_array_equal(made.numpy(), out)


def test_memory_of_its_own_saves_copies() -> None:
    nodes, inputs, weights = upscaler()
    bound = nn.import_onnx(model(nodes[:-1], inputs, weights, outputs=("c2",))).bind(
        (1, 1, 8, 9), device="host"
    )
    x = picture(1, 1, 8, 9)
    wanted = bound(x)
    mine, result = bound.inputs.get("x"), bound.results.get("c2")
    if mine is None or result is None:
        pytest.skip("no engine here")
    mine[...] = x
    assert bound(mine, out=result) is result
    np.testing.assert_array_equal(result, wanted)


def test_wrong_arrays_are_named_and_nothing_is_written() -> None:
    bound = nn.import_onnx(model(*upscaler())).bind((1, 1, 8, 9), device="host")
    x = picture(1, 1, 8, 9)
    with pytest.raises(ShapeError, match=r"input 'x': shape \[1, 1, 9, 8\]; bound for"):
        bound(picture(1, 1, 9, 8))
    with pytest.raises(DtypeError, match=r"input 'x': float64; accepted is float32"):
        bound(x.astype(np.float64))
    with pytest.raises(OperandError, match=r"input 'x'=\[1\]: accepted are arrays"):
        bound([1])
    with pytest.raises(ShapeError, match=r"out.shape=\[1, 4, 9, 8\]"):
        bound(x, out=np.zeros((1, 4, 9, 8), np.float32))
    with pytest.raises(ArgumentError, match=r"input 'y': accepted is each of \['x'\] once"):
        bound(x, y=x)


def test_sizes_that_do_not_fit_are_named() -> None:
    net = nn.import_onnx(model(*upscaler()))
    with pytest.raises(ShapeError, match=r"input 'x': sizes .* are free"):
        net.bind(device="host")
    with pytest.raises(ShapeError, match=r"input 'x': shape \[1, 3, 8, 8\]; accepted is"):
        net.bind((1, 3, 8, 8), device="host")
    with pytest.raises(ArgumentError, match=r"no input 'z'"):
        net.bind({"z": (1, 1, 8, 8)}, device="host")
    with pytest.raises(ShapeError, match=r"whole numbers from 0"):
        net.bind((1, 1, 8, 8.5), device="host")
    with pytest.raises(DtypeError, match=r"dtype='int8'"):
        net.bind((1, 1, 8, 8), device="host", dtype="int8")


def test_a_type_may_be_spelled_as_numpy_and_torch_do() -> None:
    torch = pytest.importorskip("torch")
    net = nn.import_onnx(model(*upscaler()))
    for dtype in ("float16", np.float16, np.dtype("float16"), torch.float16):
        assert net.bind((1, 1, 8, 9), device="host", dtype=dtype)(picture(1, 1, 8, 9)).dtype == "f2"


def test_memory_is_known_without_binding() -> None:
    net = nn.import_onnx(model(*upscaler()))
    shape = (1, 1, 40, 50)
    assert net.peak_bytes(shape, "host") == net.bind(shape, device="host").peak_bytes


def test_values_that_no_memory_holds_are_refused_before_any_is_taken() -> None:
    with pytest.raises(DeviceMemoryError, match=r"values take \d+ bytes at once"):
        nn.import_onnx(model(*upscaler())).bind((1, 1, 1 << 20, 1 << 20), device="host")


def test_threads_take_turns() -> None:
    net = nn.import_onnx(model(*upscaler()))
    bound = net.bind((1, 1, 16, 17), device="host")
    pictures = [picture(1, 1, 16, 17) * scale for scale in (1, -1, 2, 3)]
    wanted = [bound(x) for x in pictures]
    wrong: list[int] = []

    def work(which: int) -> None:
        for _ in range(10):
            if not np.array_equal(bound(pictures[which]), wanted[which]):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(which,)) for which in range(len(pictures))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def _forked(bound: Any, x: Any, queue: Any) -> None:
    queue.put(bound(x))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_forked_child_runs_what_its_parent_holds() -> None:
    """The lock is free there, whoever held it; engines' threads are made anew."""
    bound = nn.import_onnx(model(*upscaler())).bind((1, 1, 16, 17), device="host")
    x = picture(1, 1, 16, 17)
    wanted = bound(x)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    with bound._lock:
        child = context.Process(target=_forked, args=(bound, x, queue))
        child.start()
    made = queue.get(timeout=600)
    child.join(120)
    np.testing.assert_array_equal(made, wanted)


def test_several_outputs_and_inputs_by_name() -> None:
    nodes: list[NodeText] = [
        ("Add", ["x", "state"], ["next"], {}),
        ("Relu", ["next"], ["y"], {}),
        ("Relu", ["next"], ["same"], {}),
    ]
    content = model(nodes, {"x": (2, 3), "state": (2, 3)}, outputs=("y", "next"))
    net = nn.import_onnx(content)
    bound = net.bind(device="host")
    x, state = picture(2, 3), picture(2, 3) - 1
    y, after = bound(state=state, x=x)
    np.testing.assert_array_equal(after, x + state)
    np.testing.assert_array_equal(y, np.maximum(x + state, 0))
    y, after = bound(x, after)
    np.testing.assert_array_equal(after, x + (x + state))
    assert "Add" in bound.explain()


def test_outputs_that_are_inputs_or_constants_are_copies() -> None:
    content = model(
        [("Identity", ["x"], ["y"], {}), ("Identity", ["w"], ["z"], {})],
        {"x": (3,)},
        weights_of(w=(3,)),
        outputs=("y", "z"),
    )
    from tilewright.nn.operators import found

    if "Identity" not in found():
        pytest.skip("not implemented")
    bound = nn.import_onnx(content).bind(device="host")
    x = picture(3)
    y, z = bound(x)
    z[...] = 0
    y[...] = 7
    assert not (x == 7).any()
    assert bound(x)[1].any()


def in_torchs_memory(monkeypatch: pytest.MonkeyPatch) -> Any:
    """torch, after networks for the host are to be bound as those for GPUs are."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("array_api_compat")
    from tilewright.nn.homes import TorchHome

    monkeypatch.setattr("tilewright.nn.net.home_of", lambda plan: TorchHome(plan.arena, "cpu"))
    monkeypatch.setattr("tilewright.nn.net.conv_engines", lambda name: ())
    monkeypatch.setattr("tilewright.nn.net.value_engines", lambda name: ())
    return torch


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_torchs_memory_holds_what_numpys_does(monkeypatch: pytest.MonkeyPatch, dtype: str) -> None:
    torch = in_torchs_memory(monkeypatch)
    net = nn.import_onnx(model(*upscaler()))
    x = picture(1, 1, 12, 13)
    bound = net.bind(x.shape, device="host", dtype=dtype)
    wanted = net.run(x)
    allowed = {"float32": 1e-5, "bfloat16": 3e-2}[dtype] * np.abs(wanted).max()
    np.testing.assert_allclose(bound(x), wanted, atol=allowed)
    out = torch.empty((1, 4, 12, 13), dtype=getattr(torch, dtype))
    assert bound(torch.from_numpy(x), out=out) is out
    np.testing.assert_allclose(out.float().numpy(), wanted, atol=allowed)


@pytest.mark.parametrize("inside", ["bound", "given", "run"])
def test_inference_mode_may_begin_or_end_anywhere(
    inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = in_torchs_memory(monkeypatch)
    net = nn.import_onnx(model(*upscaler()))
    x = picture(1, 1, 12, 13)
    with torch.inference_mode(inside == "bound"):
        bound = net.bind(x.shape, device="host")
    with torch.inference_mode(inside == "given"):
        given, out = torch.from_numpy(x.copy()), torch.full((1, 4, 12, 13), torch.nan)
    with torch.inference_mode(inside == "run"):
        for _ in range(2):
            assert bound(given, out=out) is out
            made = bound(given)
    wanted = net.run(x)
    for found in (out, made):
        np.testing.assert_allclose(found.numpy(), wanted, atol=1e-5 * np.abs(wanted).max())


def test_steps_run_alone_on_the_values_of_a_run() -> None:
    net = nn.import_onnx(model(*upscaler()))
    x = picture(1, 1, 12, 13)
    bound = net.bind(x.shape, device="host", fuse=False)
    assert [step.node.operator for step in bound.steps] == [
        *["Convs", "Relu"] * 2,
        "Convs",
        "Add",
    ]
    with bound.kept(x) as values:
        before = values["y"].copy()
        bound.steps[-1].run()
        np.testing.assert_array_equal(values["y"], before)
        for step in bound.steps:
            step.run()
    np.testing.assert_array_equal(bound(x), before)
    times = bound.profile(x, repeats=2)
    assert [time.covers for time in times] == [step.covers for step in bound.steps]
    assert all(time.seconds > 0 for time in times)


def test_networks_are_copied_and_pickled_and_bound_ones_are_not() -> None:
    net = nn.import_onnx(model(*upscaler()))
    x = picture(1, 1, 6, 7)
    assert net.types
    wanted = net.run(x)
    for twin in (pickle.loads(pickle.dumps(net)), copy.deepcopy(net)):
        np.testing.assert_array_equal(twin.run(x), wanted)
    assert len(repr(net)) < 200
    bound = net.bind(x.shape, device="host")
    assert len(repr(bound)) < 200
    for spoil in (pickle.dumps, copy.deepcopy):
        with pytest.raises(OperandError, match="neither copied nor pickled; accepted is its Net"):
            spoil(bound)


def test_out_that_cannot_take_a_result_is_refused_before_anything_is_computed() -> None:
    bound = nn.import_onnx(model(*upscaler())).bind((1, 1, 8, 9), device="host")
    out = np.zeros((1, 4, 8, 9), np.float32)
    out.flags.writeable = False
    with pytest.raises(OperandError, match="out: it is read-only"):
        bound(picture(1, 1, 8, 9), out=out)


def test_outs_may_be_a_list() -> None:
    nodes: list[NodeText] = [("Relu", ["x"], ["y"], {}), ("Add", ["x", "x"], ["z"], {})]
    bound = nn.import_onnx(model(nodes, {"x": (4,)}, outputs=("y", "z"))).bind(device="host")
    x, outs = picture(4), [np.zeros(4, np.float32), np.zeros(4, np.float32)]
    bound(x, out=outs)
    np.testing.assert_array_equal(outs, [np.maximum(x, 0), x + x])
    with pytest.raises(ArgumentError, match="out: 1 given; accepted are 2 arrays"):
        bound(x, out=outs[0])


def test_outputs_may_not_lie_in_each_other_or_in_an_input() -> None:
    nodes: list[NodeText] = [("Relu", ["x"], ["y"], {}), ("Add", ["x", "x"], ["z"], {})]
    bound = nn.import_onnx(model(nodes, {"x": (4,)}, outputs=("y", "z"))).bind(device="host")
    x, out = picture(4), np.zeros(4, np.float32)
    with pytest.raises(OverlapError, match=r"out\[0\] shares memory with out\[1\]"):
        bound(x, out=(out, out))
    with pytest.raises(OverlapError, match=r"out\[1\] shares memory with input 'x'"):
        bound(x, out=(out, x))
    alone = nn.import_onnx(model(nodes[:1], {"x": (4,)})).bind(device="host")
    wanted = np.maximum(x, 0)
    np.testing.assert_array_equal(alone(x, out=x), wanted)


def _with_state() -> tuple[Any, Any, Any]:
    """u = three convolutions of x, y = u + a convolution of s; a picture x, a state s."""
    five: dict[str, Any] = {"pads": [2, 2, 2, 2]}
    nodes: list[NodeText] = [
        ("Conv", ["x", "w0"], ["a"], five),
        ("Conv", ["a", "w1"], ["b"], five),
        ("Conv", ["b", "w2"], ["u"], five),
        ("Conv", ["s", "w3"], ["v"], five),
        ("Add", ["u", "v"], ["y"], {}),
    ]
    weights = weights_of(**{f"w{at}": (8, 8, 5, 5) for at in range(4)})
    sizes = {"x": (1, 8, 9, 9), "s": (1, 8, 9, 9)}
    net = nn.import_onnx(model(nodes, sizes, weights, outputs=("u", "y")))
    return net, picture(1, 8, 9, 9), picture(1, 8, 9, 9)[..., ::-1] - 1


def _near(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(one), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("state", ["u", "y"])
def test_a_state_may_be_passed_back_as_it_lies_in_the_results(state: str) -> None:
    net, x, s = _with_state()
    bound = net.bind(device="host")
    bound(x, s)
    wanted = net.run(x, bound.results[state].copy())
    _near(bound(x, bound.results[state]), wanted)
    out = (bound.results["u"], np.empty_like(x))
    bound(x, s, out=out)
    wanted = net.run(x, out[0].copy())
    _near(bound(x, out[0], out=out), wanted)


def test_inputs_may_lie_where_another_input_is_planned() -> None:
    net, x, s = _with_state()
    bound = net.bind(device="host")
    at_x, at_s = bound.inputs["x"], bound.inputs["s"]
    at_x[...], at_s[...] = x, s
    _near(bound(at_s, at_x), net.run(s, x))
    at_x[...] = x
    _near(bound(at_x[..., ::-1], at_x), net.run(x[..., ::-1], x))
    torch = pytest.importorskip("torch")
    at_x[...], at_s[...] = x, s
    _near(bound(torch.from_numpy(at_s), torch.from_numpy(at_x)), net.run(s, x))


def test_results_may_go_where_another_result_is_planned() -> None:
    net, x, s = _with_state()
    bound = net.bind(device="host")
    wanted = net.run(x, s)
    _near(bound(x, s, out=(bound.results["y"], bound.results["u"])), wanted)
    _near(bound(x, s, out=(bound.inputs["x"], np.empty_like(x))), wanted)
    _near(bound(x, s, out=(bound.results["u"][..., ::-1], np.empty_like(x))), wanted)


def test_no_pictures_give_no_results() -> None:
    nodes, _, weights = upscaler()
    net = nn.import_onnx(model(nodes, {"x": ("n", 1, "h", "w")}, weights))
    made = net.bind((0, 1, 8, 9), device="host")(np.zeros((0, 1, 8, 9), np.float32))
    assert made.shape == (0, 4, 8, 9)


def test_what_would_lose_a_gradient_is_refused() -> None:
    torch = pytest.importorskip("torch")
    bound = nn.import_onnx(model(*upscaler())).bind((1, 1, 8, 9), device="host")
    x = torch.from_numpy(picture(1, 1, 8, 9))
    wanted = bound(x)
    followed = torch.nn.Parameter(x.clone())
    with pytest.raises(OperandError, match=r"input 'x': a tensor that requires a gradient; bound"):
        bound(followed)
    with pytest.raises(OperandError, match="inside a transform"):
        torch.func.vmap(lambda one: bound(one))(x[None])
    with torch.autograd.forward_ad.dual_level(), pytest.raises(OperandError, match="forward-mode"):
        bound(torch.autograd.forward_ad.make_dual(x, x))
    with torch.no_grad():
        assert torch.equal(bound(followed), wanted)
    with pytest.raises(OperandError, match=r"out: a tensor that requires a gradient"):
        bound(x, out=torch.zeros((1, 4, 8, 9), requires_grad=True))


def test_a_compiler_leaves_the_call_alone() -> None:
    torch = pytest.importorskip("torch")
    bound = nn.import_onnx(model(*upscaler())).bind((1, 1, 8, 9), device="host")
    x = torch.from_numpy(picture(1, 1, 8, 9))
    compiled = torch.compile(lambda one: bound(one * 2) + 1, backend="eager")
    assert torch.equal(compiled(x), bound(x * 2) + 1)


def test_a_compiler_leaves_runs_by_the_definitions_alone() -> None:
    torch = pytest.importorskip(
        "torch", "2.12", reason="earlier ones look at each array of a network and fail at views"
    )
    net = nn.import_onnx(model(*upscaler()))
    x = torch.from_numpy(picture(1, 1, 8, 9))
    compiled = torch.compile(lambda one: net.run(one * 2) + 1, backend="eager")
    assert torch.equal(compiled(x), net.run(x * 2) + 1)


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, 3e38])
def test_weights_of_any_numbers_are_laid_out_without_a_warning(bad: float) -> None:
    weights = weights_of(w=(64, 64, 3, 3), b=(64,))
    weights["w"][1, :2, 0] = bad
    weights["b"][2] = bad
    nodes: list[NodeText] = [("Conv", ["x", "w", "b"], ["y"], {"pads": [1, 1, 1, 1]})]
    net = nn.import_onnx(model(nodes, {"x": (1, 64, 8, 8)}, weights))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = net.bind(device="host")(picture(1, 64, 8, 8))
    assert np.isfinite(made[:, 3:]).all()
    assert not np.isfinite(made[:, 1]).all()
