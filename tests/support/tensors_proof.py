"""The calls for arrays on a GPU, on a processor's tensors: all but the device itself is real.

`pretend()` makes the back end take torch's CPU tensors for those of an H200 and run its kernels in
Triton's interpreter. So the way of a call, from arguments through checks, tables and launches to
results, is proven on machines without a GPU. Run by test_triton_interpreter.py, in its process.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from tests.support.triton_proof import CUDA_H200
from tilewright import RaggedBatch, explain, forget, grouped_matmul, matmul, plan_grouped
from tilewright.backends.cuda.machine import arrays, driver
from tilewright.backends.cuda.machine.triton_launch import INTERPRETED
from tilewright.calls import dense as dense_calls
from tilewright.calls import dense_plans_gpu, grouped_plan, grouped_plans_gpu
from tilewright.calls.grouped_quick_host import WAYS
from tilewright.errors import (
    ArgumentError,
    DtypeError,
    KernelError,
    OperandError,
    OverlapError,
    ShapeError,
)
from tilewright.inputs import batch_place, ragged_batch, ragged_batch_gpu
from tilewright.products import dense, grouped


class _Torch:
    """torch, but that memory is the processor's and there is one stream."""

    _C = SimpleNamespace(
        _cuda_getCurrentRawStream=lambda ordinal: 0, _cuda_getDevice=lambda: INTERPRETED
    )
    cuda = SimpleNamespace(
        is_current_stream_capturing=lambda: False,
        device=lambda ordinal: nullcontext(),
        Event=lambda: SimpleNamespace(record=lambda: None),
    )

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    def empty(self, *sizes: Any, device: Any = None, **options: Any) -> Any:
        return torch.empty(*sizes, **options)

    def device(self, *names: Any) -> None:
        return None


def pretend() -> None:
    """From here on torch's CPU tensors lie on an H200 that Triton's interpreter plays."""
    is_tensor = lambda value: isinstance(value, torch.Tensor)  # noqa: E731
    calls = (dense_calls, batch_place, grouped_plans_gpu)
    for module in (arrays, *calls, ragged_batch, ragged_batch_gpu):
        module.on_gpu = is_tensor  # type: ignore[attr-defined]
    for called in (dense, grouped, grouped_plan):
        called.is_watched = called.are_watched = lambda *values: False  # type: ignore[attr-defined]
    for kind in (torch.Tensor, torch.nn.Parameter):
        WAYS[kind] = lambda a, b: grouped_plans_gpu.products(a, b)
    dense_plans_gpu.are_unseen = lambda *values: True  # type: ignore[attr-defined]
    stand_in, real = _Torch(), arrays._view
    driver.need = lambda: stand_in
    driver.missing = lambda: None  # type: ignore[assignment]
    driver.device_of = lambda ordinal: CUDA_H200
    driver.ordinal_of = lambda device: INTERPRETED
    arrays._view = lambda at, shape, steps, kind, _: real(at, shape, steps, kind, INTERPRETED)


def close(result: Any, truth: Any) -> None:
    torch.testing.assert_close(result, truth, rtol=1e-4, atol=1e-4)


def dense_products() -> None:
    a, b, v = torch.randn(20, 13), torch.randn(13, 17), torch.randn(13)
    for _ in range(2):
        close(matmul(a, b), a @ b)
    close(matmul(a.T, b.T, transpose_a=True, transpose_b=True), a @ b)
    close(matmul(a, v), a @ v)
    close(matmul(v, b), v @ b)
    old, bias = torch.randn(20, 17), torch.randn(17)
    out = old.clone()
    assert matmul(a, b, out=out, alpha=2, beta=0.5, bias=bias, activation="relu") is out
    close(out, torch.relu(2 * a @ b + 0.5 * old + bias))
    many, one = torch.randn(2, 3, 5, 4), torch.randn(4, 6)
    close(matmul(many, one), many @ one)
    several = torch.randn(3, 4, 6)
    close(matmul(many, several), many @ several)
    close(matmul(many[:, :, ::2], one), many[:, :, ::2] @ one)
    half = matmul(a.half(), b.half())  # the interpreter multiplies the bits of bfloat16
    torch.testing.assert_close(half.float(), a @ b, rtol=0.01, atol=0.02)
    assert "engine     triton_grouped" in explain(a, b)


def grouped_products() -> None:
    a = [torch.randn(m, k) for m, k in ((3, 4), (0, 5), (17, 9), (5, 0))]
    b = [torch.randn(k, n) for k, n in ((4, 7), (5, 2), (9, 33), (0, 3))]
    truth = [x @ y for x, y in zip(a, b, strict=True)]
    for result in (
        grouped_matmul(a, b),
        grouped_matmul(RaggedBatch.from_list(a), RaggedBatch.from_list(b)),
        grouped_matmul([x.T for x in a], b, transpose_a=True),
    ):
        for z, right in zip(result, truth, strict=True):
            close(z, right)
    sizes = ([3, 17], [7, 33], [4, 9])
    plan = plan_grouped(*sizes, dtype=torch.float32, device=CUDA_H200)
    bound = plan.bind(a[::2], b[::2])
    close(bound()[1], truth[2])
    a[2].mul_(2)
    close(bound()[1], 2 * truth[2])
    assert "engine     triton_grouped" in plan.explain()


def sums_of_products() -> None:
    """Added one after another into one matrix: by its index, or by naming it again."""
    sizes = ((5, 4, 6), (3, 7, 2), (5, 4, 1), (5, 4, 9), (3, 7, 5))
    a = [torch.randn(m, k) for m, _, k in sizes]
    b = [torch.randn(k, n) for _, n, k in sizes]
    into = [0, 1, 0, 0, 1]
    old = [torch.randn(5, 4), torch.randn(3, 7)]
    bias = [torch.randn(4), None]
    products = [x @ y for x, y in zip(a, b, strict=True)]
    truth = [products[0] + products[2] + products[3], products[1] + products[4]]
    for right, found in zip(truth, grouped_matmul(a, b, into=into), strict=True):
        close(found, right)
    more = {"beta": [0.5, 2.0], "bias": bias, "activation": "relu"}
    ended = [torch.relu(truth[0] + 0.5 * old[0] + bias[0]), torch.relu(truth[1] + 2 * old[1])]
    out = [one.clone() for one in old]
    assert grouped_matmul(a, b, out=out, into=into, **more) is out
    again = [one.clone() for one in old]
    grouped_matmul(a, b, out=[again[i] for i in into], beta=2.0)
    plan = plan_grouped(*zip(*sizes, strict=True), dtype=torch.float32, device=CUDA_H200)
    bound = plan.bind(a, b, into=into, bias=bias)
    for _ in range(2):
        for i, made in enumerate(bound()):
            close(made, truth[i] if bias[i] is None else truth[i] + bias[i])
    for i in range(2):
        close(out[i], ended[i])
        close(again[i], truth[i] + 2 * old[i])


def lazy_lists_and_writes() -> None:
    """A sequence that makes its elements anew each time; a result that autograd had saved."""

    class Lazy(Sequence[torch.Tensor]):
        def __init__(self, values: list[torch.Tensor]) -> None:
            self.values = values

        def __len__(self) -> int:
            return len(self.values)

        def __getitem__(self, index: Any) -> Any:
            return self.values[index].clone()

    a, b = [torch.randn(6, 5) for _ in range(9)], [torch.randn(5, 7) for _ in range(9)]
    plan = plan_grouped([6] * 9, [7] * 9, [5] * 9, dtype=torch.float32, device=CUDA_H200)
    bound = plan.bind(Lazy(a), Lazy(b))
    gc.collect()
    junk = [torch.full((6, 5), float("nan")) for _ in range(50)]
    for found in (grouped_matmul(Lazy(a), Lazy(b)), bound()):
        for x, y, z in zip(a, b, found, strict=True):
            close(z, x @ y)
    assert len(junk) == 50
    leaf = torch.randn(6, 7, requires_grad=True)
    for write in (
        lambda out: matmul(a[0], b[0], out=out),
        lambda out: grouped_matmul(a[:1], b[:1], out=[out]),
        lambda out: plan_grouped([6], [7], [5], dtype=torch.float32, device=CUDA_H200).bind(
            a[:1], b[:1], [out]
        )(),
    ):
        saved = leaf.exp()
        loss = saved.sum()
        write(saved.detach())
        try:
            loss.backward()
        except RuntimeError:
            continue
        raise AssertionError("autograd did not see that what it saved was written")


def results_of_many_shapes() -> None:
    """Of few widths, which are cut from one block each, and of many; empty ones among them."""
    draw = np.random.default_rng(0)
    for widths in (3, 40):
        sizes = [
            (int(m), int(n), 2) for m, n in zip(draw.integers(0, 5, 40), range(40), strict=False)
        ]
        sizes = [(m, n % widths, k) for m, n, k in sizes]
        a = [torch.randn(m, k) for m, _, k in sizes]
        b = [torch.randn(k, n) for _, n, k in sizes]
        found = grouped_matmul(a, b)
        for x, y, z in zip(a, b, found, strict=True):
            assert z.shape == (x.shape[0], y.shape[1])
            assert z.is_contiguous()
            close(z, x @ y)
        for z in found:
            z.add_(1)
        for x, y, z in zip(a, b, found, strict=True):
            close(z, x @ y + 1)  # none overlaps another


def lists_found_again() -> None:
    """Plain lists take the short way, by what was planned where nothing but addresses differs."""
    forget()
    took: list[bool] = []
    real = grouped_plans_gpu.products

    def noted(a: Any, b: Any) -> Any:
        found = real(a, b)
        took.append(found is not None)
        return found

    def right(a: list[Any], b: list[Any]) -> None:
        for x, y, z in zip(a, b, grouped_matmul(a, b), strict=True):
            close(z, x @ y)

    grouped_plans_gpu.products = noted  # type: ignore[assignment]
    sizes = ((3, 4, 7), (17, 9, 33), (33, 20, 5))
    a, b = [torch.randn(m, k) for m, k, _ in sizes], [torch.randn(k, n) for _, k, n in sizes]
    right(a, b)
    kept = len(grouped_plans_gpu._plans)
    for _ in range(4):
        a = [one.clone() for one in a]
        right(a, b)
    assert kept == 1
    assert all(took)
    right([a[0], torch.randn(9, 17).T, a[2]], b)  # lies otherwise
    right([one.half().float() for one in a], b)
    # Of one size, at one distance and at others.
    several, many = [torch.randn(5, 6) for _ in range(4)], list(torch.randn(4, 6, 3).unbind())
    for _ in range(2):
        right(several, many)
        right(several, many[::-1])
    assert all(took)
    took.clear()
    grouped_matmul(a, [one.requires_grad_() for one in b])
    grouped_matmul([torch.nn.Parameter(a[0]), *a[1:]], b)
    grouped_matmul([*a, torch.randn(0, 4)], [*b, torch.randn(4, 2)])
    assert not any(took)
    grouped_plans_gpu.products = real


def refusals() -> None:
    a, b, c = torch.ones(3, 4), torch.ones(4, 5), torch.ones(3, 5)
    strided = torch.ones(99).as_strided((3, 5), (1, 1))
    negative = torch.ones(4, 5, dtype=torch.complex64).conj().imag
    freed = torch.ones(4, 5)
    freed.untyped_storage().resize_(0)
    wrong: list[tuple[type[Exception], Callable[[], Any]]] = [
        (ShapeError, lambda: matmul(a, a)),
        (ShapeError, lambda: matmul(a, b, out=torch.ones(3, 3))),
        (ShapeError, lambda: grouped_matmul([a], [a])),
        (ShapeError, lambda: grouped_matmul([a, a], [b])),
        (DtypeError, lambda: matmul(a, b.half())),
        (DtypeError, lambda: matmul(a.int(), b.int())),
        (DtypeError, lambda: grouped_matmul([a, a.half()], [b, b])),
        (ArgumentError, lambda: matmul(a, b, precision="tf33")),
        (ArgumentError, lambda: matmul(a.half(), b.half(), precision="tf32")),
        (ArgumentError, lambda: matmul(a, b, accumulate="fp16")),
        (ArgumentError, lambda: matmul(a, b, beta=1.0)),
        (KernelError, lambda: matmul(a, b, kernel="nosuch")),
        (OperandError, lambda: matmul(a, b.numpy())),
        (OperandError, lambda: grouped_matmul([a, a.numpy()], [b, b])),
        (OverlapError, lambda: matmul(a, torch.ones(4, 4), out=a)),
        (OverlapError, lambda: matmul(a, b, out=torch.ones(99).as_strided((3, 5), (1, 1)))),
        (OverlapError, lambda: grouped_matmul([a], [b], out=[c], bias=[c[0]])),
        (OverlapError, lambda: grouped_matmul([a], [b], out=[strided])),
        (OperandError, lambda: matmul(a, negative)),
        (OperandError, lambda: grouped_matmul([a], [negative])),
        (OperandError, lambda: matmul(a, freed)),
        (OperandError, lambda: grouped_matmul([a, a], [b, freed])),
        (ShapeError, lambda: grouped_matmul([a, a], [b, b[:, :2]], into=[0, 0])),
        (OverlapError, lambda: grouped_matmul([a], [torch.ones(4, 4)], out=[a])),
    ]
    for error, call in wrong:
        try:
            call()
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


def same_words() -> None:
    """What is wrong with a product is said of a GPU's arrays as it is of the host's."""
    a, b, c = np.ones((3, 4), np.float32), np.ones((4, 5), np.float32), np.ones((3, 5), np.float32)
    lists: list[tuple[tuple[Any, Any], dict[str, Any]]] = [
        ((a, a), {}),
        ((a, b), {"out": a.copy()}),
        ((a, b), {"out": c.astype(np.float16)}),
        ((a, b.astype(np.float16)), {}),
        ((a, b), {"bias": np.ones(4, np.float32)}),
        ((a, b), {"bias": np.ones(5, np.float16)}),
        ((np.ones((2, 3, 4), np.float32), np.ones((5, 4, 6), np.float32)), {}),
        ((a, b), {"beta": 1.0}),
        ((a, b), {"alpha": "1"}),
        ((a, b), {"transpose_a": 1}),
        ((a, b), {"activation": "tanh"}),
        ((a, b), {"accumulate": "fp16"}),
        ((a, np.ones((4, 4), np.float32)), {"out": a}),
    ]

    def said(convert: Callable[[Any], Any], device: str | None = None) -> list[str]:
        found = []
        for (left, right), options in lists:
            kept = {id(one): convert(one) for one in (left, right, *options.values())}
            given = {name: kept[id(one)] for name, one in options.items()}
            try:
                matmul(kept[id(left)], kept[id(right)], device=device, **given)
            except (ArgumentError, DtypeError, OverlapError, ShapeError) as error:
                found.append(str(error))
        return found

    tensors = said(lambda one: torch.from_numpy(one) if isinstance(one, np.ndarray) else one)
    assert len(tensors) == len(lists)
    assert tensors == said(lambda one: one, "host")


PROOFS = (
    dense_products,
    grouped_products,
    sums_of_products,
    lazy_lists_and_writes,
    results_of_many_shapes,
    lists_found_again,
    refusals,
    same_words,
)


def main() -> None:
    torch.manual_seed(0)
    pretend()
    forget()
    for proof in PROOFS:
        proof()
        print(f"{proof.__name__}: right", flush=True)
