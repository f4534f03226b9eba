"""Prepared launches of Triton kernels, with no GPU: what the launcher is given at each run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.backends.cuda.machine import triton_launch
from tilewright.backends.cuda.machine.triton_launch import (
    INTERPRETED,
    Pointer,
    Task,
    placed,
    reusable,
)

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("triton", reason="Triton is not installed")


class Recorded:
    """A kernel that compiles at once; whatever it is called with is kept."""

    def __init__(self) -> None:
        self.compiled: list[tuple[Any, ...]] = []
        self.runs: list[tuple[Any, ...]] = []
        self.interpreted: list[tuple[Any, ...]] = []

    def warmup(self, *arguments: Any, grid: Any, **options: Any) -> Any:
        self.compiled.append((arguments, grid, options))

        def run(*given: Any) -> None:
            self.runs.append(given)

        return SimpleNamespace(run=run, function="function", packed_metadata="metadata")

    def __getitem__(self, grid: Any) -> Any:
        return lambda *arguments, **constants: self.interpreted.append((grid, arguments, constants))


def task_of(kernel: Recorded, *arguments: Any, programs: int = 7) -> Task:
    return Task(kernel, programs, arguments, {"TILE": 64}, {"num_warps": 4})


@pytest.fixture(params=[None, "6.4"], ids=["CUDA", "ROCm"])
def hip(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(torch.version, "hip", request.param)
    return request.param


HEAD = (1, 1, 11, "function", "metadata", None, None, None)


def test_a_placed_kernel_is_compiled_once_and_finds_its_lists_in_the_table() -> None:
    kernel = Recorded()
    pointers = (Pointer("int32", 128), Pointer("float32"), Pointer("int64", 0))
    launch = placed(task_of(kernel, *pointers, 5, 6), 0)
    assert kernel.compiled == [
        (
            (torch.int32, torch.float32, torch.int64, 5, 6),
            (1,),
            {"enable_fp_fusion": True, "TILE": 64, "num_warps": 4},
        )
    ]
    table, scratch = torch.zeros(32, dtype=torch.int64), torch.zeros(64, dtype=torch.uint8)
    base = table.data_ptr()
    for _ in range(2):
        launch(11, table, scratch)
        found = (base + 128, scratch.data_ptr(), base, 5, 6, 64)
        assert kernel.runs.pop() == (7, *HEAD, *found)
    assert len(kernel.compiled) == 1


def test_a_kernel_compiled_for_a_plan_serves_every_plan_that_triton_would_compile_alike() -> None:
    """Triton compiles anew for a number that is 1, a multiple of 16 or longer than 31 bits."""
    kernel = Recorded()
    for number, compilations in ((5, 1), (7, 1), (32, 2), (48, 2), (1, 3), (2**31, 4), (9, 4)):
        launch = placed(task_of(kernel, Pointer("int32", 0), number), 0)
        assert len(kernel.compiled) == compilations
        launch(11, torch.zeros(1, dtype=torch.int64), None)
        assert kernel.runs[-1][-2:] == (number, 64)
    placed(task_of(kernel, Pointer("int64", 0), 9), 0)
    placed(task_of(kernel, Pointer("int32", 0), 9), 1)
    placed(replace(task_of(kernel, Pointer("int32", 0), 9), constants={"TILE": 32}), 0)
    assert len(kernel.compiled) == 7


def test_in_the_interpreter_lists_are_tensors_of_their_dtype() -> None:
    kernel = Recorded()
    launch = placed(task_of(kernel, Pointer("int32", 16), Pointer("float32"), 5), INTERPRETED)
    table = torch.arange(6, dtype=torch.int64)
    scratch = torch.tensor([1.5, -2.0]).view(torch.uint8)
    launch(0, table, scratch)
    ((grid, (words, numbers, five), constants),) = kernel.interpreted
    assert grid == (7,)
    assert words.tolist() == [2, 0, 3, 0, 4, 0, 5, 0]  # from byte 16 on, by halves
    assert numbers.tolist() == [1.5, -2.0]
    assert (five, constants) == (5, {"TILE": 64})
    assert kernel.compiled == []


@pytest.mark.parametrize("ordinal", [0, INTERPRETED])
def test_no_programs_are_no_launch(ordinal: int) -> None:
    kernel = Recorded()
    launch = placed(task_of(kernel, Pointer("int32", 0), programs=0), ordinal)
    launch(11, torch.zeros(8, dtype=torch.int64), None)
    repeated = reusable(task_of(kernel, torch.zeros(3)), ordinal)
    repeated(11, 0, torch.zeros(3))
    assert kernel.runs == kernel.interpreted == []


@pytest.mark.parametrize(
    ("size", "is_named"), [(2**31 - 4, False), (2**31, True), (2**31 + 4, True)]
)
def test_only_amds_compiler_is_told_of_two_gibibytes(
    size: int, is_named: bool, hip: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def empty(count: int, *, dtype: Any, device: str) -> Any:
        made.append((count, dtype, device))
        return torch.zeros(8, dtype=dtype)

    monkeypatch.setattr(torch, "empty", empty)
    found = Pointer("float32", None, size).sample()
    if hip is not None and is_named:
        assert made == [(size, torch.uint8, "cuda")]
        assert found.dtype == torch.float32
    else:
        assert (found, made) == (torch.float32, [])


def test_a_reusable_kernel_takes_other_tensors_and_numbers_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.version, "hip", None)
    kernel = Recorded()
    first, second = torch.zeros(3), torch.zeros(4)
    launch = reusable(task_of(kernel, first, second, 5, 6), 0)
    assert kernel.compiled[0][0] == (first, second, 5, 6)
    others = torch.ones(3), torch.ones(4)
    launch(11, 3, *others, 8)
    assert kernel.runs == [(3, *HEAD, others[0].data_ptr(), others[1].data_ptr(), 8, 6, 64)]
    launch(11, 2, *others)
    assert kernel.runs[-1] == (2, *HEAD, *(x.data_ptr() for x in others), 5, 6, 64)


@pytest.mark.parametrize(
    ("ordinal", "on_amd", "named"),
    [
        (INTERPRETED, None, {"TILE": 64}),
        (INTERPRETED, "6.4", {"TILE": 64}),
        (0, "6.4", {"TILE": 64, "num_warps": 4}),
    ],
)
def test_the_interpreter_and_amds_launcher_look_arguments_up_each_time(
    ordinal: int, on_amd: str | None, named: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "hip", on_amd)
    kernel = Recorded()
    first, other = torch.zeros(3), torch.ones(3)
    launch = reusable(task_of(kernel, first, 5, 6), ordinal)
    launch(11, 4, other, 9)
    assert kernel.interpreted == [((4,), (other, 9, 6), named)]
    assert kernel.compiled == kernel.runs == []


def test_the_interpreters_place_is_no_gpus() -> None:
    assert triton_launch.INTERPRETED < 0
