"""Newton-Schulz steps on a GPU: where matrices lie, and the kernels between the products."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.backends.cuda.test_triton_code import code  # noqa: E402
from tests.support.interpreter import interpreted  # noqa: E402
from tilewright.planning.newton_schulz import laid_out  # noqa: E402


def test_norms_and_multiples_of_the_identity_are_right_in_the_interpreter() -> None:
    printed = interpreted("newton_schulz_proof")
    assert "norms: right" in printed
    assert "halves: right" in printed
    assert "multiples of the identity: right" in printed


@pytest.mark.parametrize("target", ["sm_90", "gfx942"])
def test_the_kernels_compile(target: str) -> None:
    from tilewright.backends.cuda.kernels.triton import newton_schulz as kernels

    types = {
        "tiles": "*i64",
        "x": "*bf16",
        "g": "*bf16",
        "h": "*bf16",
        "pieces": "*i64",
        "sums": "*fp32",
    }
    constants: dict[str, dict[str, Any]] = {
        "square": {"CHUNK": 4096},
        "mirror": {"TILE": 64},
        "divide": {"EPS": 1e-7, "CHUNK": 4096, "PARTS": 256},
        "shift": {"KEEP": 1.0, "ADD": -0.72, "CHUNK": 4096},
    }
    for name, values in constants.items():
        kernel = getattr(kernels, name)
        given = {one: kind for one, kind in types.items() if one in kernel.arg_names}
        assert name in code(kernel, target, given, values)


def test_matrices_lie_apart_aligned_and_are_cut_into_runs_of_one_matrix() -> None:
    shapes = [(5, 9), (0, 3), (100, 96), (3, 0), (1, 1)]
    layout = laid_out(shapes)
    assert layout.tall.tolist() == [False, False, True, True, False]
    assert layout.gram.rows.tolist() == [5, 0, 96, 0, 1]
    for flat in (layout.x, layout.gram):
        owners = np.full(flat.elements, -1)
        for i, (begin, rows, step) in enumerate(zip(flat.begin, flat.rows, flat.step, strict=True)):
            assert begin % 64 == step % 8 == 0
            assert step >= flat.cols[i]
            span = slice(begin, begin + rows * step)
            assert (owners[span] == -1).all()
            owners[span] = i
        owner, begin = flat.pieces(1000)
        seen = np.full(flat.elements, -1)
        for one, start, end in zip(owner, begin, flat.ends(owner), strict=True):
            run = slice(start, min(start + 1000, end))
            assert (owners[run] == one).all()
            seen[run] = one
        assert (seen == owners).all()
    assert laid_out([]).x.elements == 0


def _matrix(part: Any, i: int) -> Any:
    """The bf16 matrix of a row of columns, read and written where it lies."""
    sizes = (int(part.rows[i]), int(part.cols[i]))
    steps = (int(part.row[i]) // 2, int(part.col[i]) // 2)
    span = 1 + sum((size - 1) * step for size, step in zip(sizes, steps, strict=True))
    if not min(sizes):
        return torch.empty(sizes, dtype=torch.bfloat16)
    memory = (ctypes.c_int16 * span).from_address(int(part.address[i]))
    flat = torch.frombuffer(memory, dtype=torch.int16).view(torch.bfloat16)
    return flat.as_strided(sizes, steps)


def _by_torch(work: Any, device: Any, *, often: bool) -> Any:
    """A batch that a GPU was to be given, multiplied on the processor."""

    def launch() -> None:
        for i in range(len(work.m)):
            a, b, c = (_matrix(part, i) for part in (work.a, work.b, work.c))
            assert a.shape[1] == b.shape[0]
            old = work.beta[i] * c.float() if work.beta[i] else 0.0
            c.copy_(work.alpha[i] * (a.float() @ b.float()) + old)

    return SimpleNamespace(launch=launch)


@pytest.mark.parametrize("coefficients", [(3.4445, -4.775, 2.0315), (1.5, 0.0, -0.5)])
def test_the_products_of_steps_are_those_of_one_matrix_after_another(
    monkeypatch: pytest.MonkeyPatch, coefficients: tuple[float, float, float]
) -> None:
    from tilewright.backends.cuda.newton_schulz import steps

    a, b, c = coefficients

    def shifting(g: Any, h: Any, layout: Any, keep: float, add: float, ordinal: int) -> Any:
        def launch() -> None:
            for x, y in zip(steps._views(g, layout), steps._views(h, layout), strict=True):
                y.copy_(keep * x.float() + add * torch.eye(len(x)))

        return launch

    def mirroring(g: Any, layout: Any, ordinal: int) -> Any:
        def launch() -> None:
            for one in steps._views(g, layout):
                for row in range(512, len(one), 512):
                    one[row - 512 : row, row:] = one[row:, row - 512 : row].T

        return launch

    monkeypatch.setattr(steps.between, "mirroring", mirroring)
    monkeypatch.setattr(steps.choose, "bind", _by_torch)
    monkeypatch.setattr(steps.driver, "device_of", lambda ordinal: None)
    monkeypatch.setattr(steps.between, "shifting", shifting)
    monkeypatch.setattr(steps, "guarded", lambda launch, ordinal: launch)
    torch.manual_seed(0)
    shapes = [(5, 9), (30, 17), (64, 64), (1, 3), (3, 1), (0, 4), (600, 520), (513, 530)]
    layout = laid_out(shapes)
    x, y = (torch.zeros(layout.x.elements, dtype=torch.bfloat16) for _ in range(2))
    grams = tuple(torch.zeros(layout.gram.elements, dtype=torch.bfloat16) for _ in range(2))
    once = steps._a_step([x, y], grams, layout.tall, (layout.x, layout.gram), coefficients, 0)
    wanted = []
    for one in steps._views(x, layout.x):
        one.copy_(torch.randn(one.shape))
        one.div_(one.norm())
        exact = one.double()
        for _ in range(3):
            g = exact @ exact.T
            exact = a * exact + (b * g + c * g @ g) @ exact
        wanted.append(exact)
    for turn in (0, 1, 0):
        for launch in once(turn):
            launch()
    for found, exact in zip(steps._views(y, layout.x), wanted, strict=True):
        assert float((found - exact).norm()) <= 0.05 * float(exact.norm())
