"""The calls for arrays on a GPU, on a processor's tensors: all but the device itself is real.

`pretend()` makes the back end take torch's CPU tensors for those of an H200 and run its kernels in
Triton's interpreter. So the way of a call, from arguments through checks, tables and launches to
results, is proven on machines without a GPU. Run by test_triton_interpreter.py, in its process.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from triton_proof import CUDA_H200

from tilewright import (
    RaggedBatch,
    api,
    explain,
    forget,
    grouped,
    grouped_matmul,
    matmul,
    plan_grouped,
    ragged,
    ragged_tensors,
)
from tilewright.backends.cuda import arrays, driver
from tilewright.backends.cuda.launcher import INTERPRETED
from tilewright.errors import (
    ArgumentError,
    DtypeError,
    KernelError,
    OperandError,
    OverlapError,
    ShapeError,
)


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
    for module in (arrays, api, grouped, ragged, ragged_tensors):
        module.on_gpu = is_tensor  # type: ignore[attr-defined]
    api.is_watched = grouped.are_watched = lambda *values: False  # type: ignore[attr-defined]
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


def refusals() -> None:
    a, b = torch.ones(3, 4), torch.ones(4, 5)
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
        (OverlapError, lambda: grouped_matmul([a], [torch.ones(4, 4)], out=[a])),
    ]
    for error, call in wrong:
        try:
            call()
        except error:
            continue
        raise AssertionError(f"no {error.__name__}")


PROOFS = (dense_products, grouped_products, refusals)


def main() -> None:
    torch.manual_seed(0)
    pretend()
    forget()
    for proof in PROOFS:
        proof()
        print(f"{proof.__name__}: right", flush=True)


if __name__ == "__main__":
    main()
