"""What is planned for devices that nobody has at hand, and by which rule."""

from __future__ import annotations

import itertools
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import hypothesis
import hypothesis.strategies as st
import numpy as np
import pytest

from tests.support import made_up
from tilewright import Device
from tilewright.backends import backends
from tilewright.backends.opencl.kernels.panel import KERNEL as PANEL
from tilewright.backends.opencl.lowering import round_up, work_group
from tilewright.backends.opencl.rules import (
    MULTIPLY_ADD,
    Rule,
    has_short_loops,
    preferences,
    read,
    wants_one_queue,
    why_not_compile,
)
from tilewright.engines.dense import plan, plan_kernel
from tilewright.errors import KernelError
from tilewright.facts.dtypes import sums_of
from tilewright.facts.kernel import Long, Operand, Plan
from tilewright.facts.problem import Problem
from tilewright.planning.explain import explain
from tilewright.planning.tiles import legal_configs, why_not

OPENCL = backends()["opencl"]
every_device = pytest.mark.parametrize("on", made_up.DEVICES, ids=lambda device: device.name)


@pytest.mark.parametrize(
    ("floats", "shape"), [(0, (12, 16)), (4, (8, 4)), (8, (6, 8)), (16, (12, 16))]
)
def test_sums_of_panel_fit_into_the_registers_that_there_are(
    floats: int, shape: tuple[int, int]
) -> None:
    device = replace(made_up.TWO_CORES, vector_floats=floats)
    first = legal_configs(PANEL, problem_of(1024, 1024, 1024), device)[0]
    assert (first.micro_m, first.vector) == shape


def problem_of(m: int, n: int, k: int, dtype: str = "float32", **more: object) -> Problem:
    sums = "float64" if dtype == "float64" else "float32"
    return Problem(m, n, k, k, 1, n, 1, n, 1, dtype, sums, **more)  # type: ignore[arg-type]


def planned(problem: Problem, device: Device) -> Plan:
    kernels = OPENCL.kernels(device)
    return plan(problem, device, kernels, priors=OPENCL.priors(device), host_operands=False)


@pytest.mark.parametrize(
    ("on", "kernel", "multiply_add", "rule"),
    [
        (made_up.ADRENO_650, "image_ab", "mad", "adreno-textures"),
        (made_up.ADRENO_430, "image_b", "mad", "adreno-old-textures"),
        (made_up.ADRENO_505, "image_b", "mad", "adreno-old-textures"),
        (made_up.MALI_G77, "image_a", "fma", "mali-fma"),
        (made_up.MALI_T604, "dot4", "fma", "mali-midgard-vectors"),
        (made_up.MI100, "local", "fma", "gpu-local"),
        (made_up.H200, "local", "fma", "gpu-local"),
        (made_up.TWO_CORES, "panel", "fma", "cpu-panel"),
    ],
    ids=lambda value: value.name if isinstance(value, Device) else value,
)
def test_rules_choose_the_kernel_and_explain_names_them(
    on: Device, kernel: str, multiply_add: str, rule: str
) -> None:
    chosen = planned(problem_of(1024, 1024, 1024), on)
    assert chosen.kernel == kernel
    assert chosen.step.config.multiply_add == MULTIPLY_ADD[multiply_add]
    report = explain(chosen)
    assert f"engine     {kernel}" in report
    assert f"rule       {rule}: " in report
    assert "-convs: " not in report  # which say nothing of products
    assert "first choice of the rules" in report


@every_device
@pytest.mark.parametrize("k", [0, 512])
def test_explain_gives_each_rejected_kernel_a_reason(on: Device, k: int) -> None:
    chosen = planned(problem_of(512, 512, k), on)
    names = {kernel.name for kernel in OPENCL.kernels(on)}
    assert {rejected.kernel for rejected in chosen.rejected} == names - {chosen.kernel}
    report = explain(chosen)
    for rejected in chosen.rejected:
        assert rejected.reason
        assert f"rejected   {rejected.kernel}: {rejected.reason}" in report


@pytest.mark.parametrize("rule", read()[1], ids=lambda rule: rule.name)
def test_every_rule_speaks_of_a_made_up_device_and_gives_reason_and_source(rule: Rule) -> None:
    assert any(rule.applies(device) for device in (*made_up.DEVICES, made_up.XCLIPSE_960))
    assert rule.reason
    assert rule.source


POCL = replace(
    made_up.TWO_CORES,
    platform="Portable Computing Language",
    version="OpenCL 3.0 PoCL HSTR: pthread-x86_64-unknown-linux-gnu-znver3",
)
ZEN_4 = frozenset({"X86_V3", "X86_V4", "AVX512_ICL"})


RUSTICL = replace(made_up.TWO_CORES, platform="rusticl", version="OpenCL 3.0")


@pytest.mark.parametrize(
    ("driver", "instructions", "refused"),
    [
        (POCL, ZEN_4, True),
        (POCL, frozenset({"AVX2", "AVX512F"}), True),
        (POCL, frozenset({"X86_V3"}), False),  # a Zen 3 indeed
        (replace(POCL, version=POCL.version.replace("znver3", "znver4")), ZEN_4, False),
        (replace(POCL, version=POCL.version.replace("znver3", "skylake-avx512")), ZEN_4, False),
        (replace(POCL, platform="Intel(R) OpenCL"), ZEN_4, False),
        (replace(POCL, kind="gpu"), ZEN_4, False),
    ],
)
def test_a_compiler_that_would_end_the_process_is_not_asked(
    driver: Device, instructions: frozenset[str], refused: bool
) -> None:
    why = why_not_compile(driver, "naive", instructions)
    assert (why is not None) is refused
    if why is not None:
        assert "; accepted is a PoCL of LLVM 16 or newer" in why


@pytest.mark.parametrize(("program", "refused"), [("panel", True), ("naive", False)])
@pytest.mark.parametrize("instructions", [ZEN_4, frozenset()])
def test_a_program_that_a_compiler_comes_to_no_end_of_is_refused_and_no_other(
    program: str, refused: bool, instructions: frozenset[str]
) -> None:
    why = why_not_compile(RUSTICL, program, instructions)
    assert (why is not None) is refused
    assert why is None or "; accepted are other kernels" in why


def test_where_loops_end_early_a_long_k_is_refused_and_a_short_one_taken() -> None:
    assert has_short_loops("rusticl", "llvmpipe (LLVM 15.0.6, 256 bits)")
    assert not has_short_loops("rusticl", "AMD Radeon 780M (radeonsi)")
    device = replace(RUSTICL, features=RUSTICL.features | {"short_loops"})
    naive = next(one for one in OPENCL.kernels(RUSTICL) if one.name == "naive")
    short, long = (problem_of(3, 5, k) for k in (4096, 4097))
    config = naive.configs(short, device)[0]
    assert why_not(naive, config, short, device) is None
    assert "accepted is k to 4096" in str(why_not(naive, config, long, device))
    assert why_not(naive, config, long, RUSTICL) is None


def test_rules_are_read_once_for_a_device_and_anew_for_another() -> None:
    known = preferences(made_up.H200)
    assert preferences(replace(made_up.H200)) is known
    other = replace(made_up.H200, name="Adreno 650", vendor="QUALCOMM")
    assert preferences(other).rules != known.rules


def test_a_driver_that_mixes_up_launches_of_two_queues_gets_one() -> None:
    for version in ("3.0-rc2", "3.1+debian", "5.0+debian"):
        assert wants_one_queue(replace(POCL, driver=version))
        assert not wants_one_queue(replace(POCL, driver=version, platform="Intel(R) OpenCL"))
    for version in ("6.0", "7.1+debian", "10.2"):
        assert not wants_one_queue(replace(POCL, driver=version))


def test_the_driver_here_is_told_by_its_own_version(pocl: Device) -> None:
    assert wants_one_queue(pocl) == (int(pocl.driver.partition(".")[0]) < 6)


# Plans are pure: what they are depends on their arguments, and what they launch, a device can take.

SHAPES = (
    (1, 1, 1),
    (1, 4096, 4096),
    (4096, 1, 4096),
    (97, 61, 43),
    (1024, 1024, 1024),
    (50_000, 8, 50_000),
    (8, 50_000, 50_000),
    (50_000, 50_000, 8),
    (70_000, 70_001, 3),
    (3, 5, 70_000),
)


@every_device
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_every_kernel_is_planned_within_the_limits_of_the_device(
    on: Device, shape: tuple[int, int, int], dtype: str
) -> None:
    problem = problem_of(*shape, dtype, bias=True, activation="relu")
    lowered = 0
    for kernel in OPENCL.kernels(on):
        if kernel.why_not(problem, on) is not None:
            continue
        for config in legal_configs(kernel, problem, on):
            assert why_not(kernel, config, problem, on) is None
            assert_launches_fit(plan_kernel(problem, on, kernel, config))
            lowered += 1
    assert (lowered > 0) == (dtype in on.dtypes)


@every_device
@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: "x".join(map(str, shape)))
def test_the_same_arguments_give_the_same_plan(on: Device, shape: tuple[int, int, int]) -> None:
    first, second = (planned(problem_of(*shape), on) for _ in range(2))
    assert first == second
    assert first.step is not second.step


def assert_launches_fit(chosen: Plan) -> None:
    device, step = chosen.device, chosen.step
    assert step.launches
    for launch in step.launches:
        assert np.prod(launch.local_size) <= device.max_work_group
        for size, local, most in zip(
            launch.global_size, launch.local_size, device.max_work_item_sizes, strict=False
        ):
            assert 1 <= local <= most
            assert size >= local
            assert size % local == 0
    scratch = {item.name: item.bytes for item in step.scratch}
    for image in step.images:
        texel = 4 * np.dtype(image.dtype).itemsize
        assert 1 <= image.width <= device.image_width
        assert 1 <= image.height <= device.image_height
        assert image.row_pitch >= image.width * texel
        assert image.row_pitch % (texel * device.image_pitch) == 0
        assert image.row_pitch * image.height <= scratch[image.scratch]
    if device.has("image_from_buffer"):
        return
    for image in step.images:  # rows are copied in one piece, so they must be tight
        assert image.row_pitch == image.width * 4 * np.dtype(image.dtype).itemsize


@pytest.mark.parametrize(
    ("on", "dtype", "reason"),
    [
        (made_up.H200, "float16", "no float16"),
        (made_up.ADRENO_650, "float64", "no float64"),
    ],
    ids=lambda value: value.name if isinstance(value, Device) else value,
)
def test_a_dtype_that_the_device_lacks_is_refused_by_name(
    on: Device, dtype: str, reason: str
) -> None:
    with pytest.raises(KernelError, match=reason):
        planned(problem_of(64, 64, 64, dtype), on)


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"max_work_group": 32}, "work-items a group, the device allows 32"),
        ({"local_memory": 1024}, "bytes of local memory, the device has 1024"),
    ],
    ids=["group", "local memory"],
)
def test_a_kernel_that_the_device_cannot_hold_is_rejected_by_name(
    limit: dict[str, int], reason: str
) -> None:
    small = replace(made_up.MALI_G77, **limit)
    problem = problem_of(64, 64, 64)
    local = next(kernel for kernel in OPENCL.kernels(small) if kernel.name == "local")
    with pytest.raises(KernelError, match=reason):
        plan_kernel(problem, small, local)
    reasons = {rejected.kernel: rejected.reason for rejected in planned(problem, small).rejected}
    assert reason in reasons["local"]


# The work-group rule.

EXTENTS = st.integers(1, 5000)
WAVEFRONT = 64


def lanes(extent: tuple[int, int], group: tuple[int, int]) -> int:
    """Lanes of whole wavefronts that the groups take."""
    groups = [-(-size // side) for size, side in zip(extent, group, strict=True)]
    return groups[0] * groups[1] * round_up(group[0] * group[1], WAVEFRONT)


@hypothesis.given(x=EXTENTS, y=EXTENTS, device=st.sampled_from(made_up.DEVICES))
def test_work_groups_are_legal_leave_the_fewest_lanes_idle_and_are_then_the_largest(
    x: int, y: int, device: Device
) -> None:
    group = work_group((x, y), device)
    limits = device.max_work_item_sizes
    assert all(1 <= side <= limit for side, limit in zip(group, limits, strict=False))
    assert group[0] * group[1] <= device.max_work_group
    sides = [1 << power for power in range(9)]
    others = [
        (wide, high)
        for wide in sides
        for high in sides
        if wide * high <= min(256, device.max_work_group)
        if wide > min(x, 16) / 2
    ]
    assert group in others
    least = min(lanes((x, y), other) for other in others)
    assert lanes((x, y), group) == least
    equals = [other for other in others if lanes((x, y), other) == least]
    assert group[0] * group[1] == max(wide * high for wide, high in equals)


@pytest.mark.parametrize(("on", "wide"), [(made_up.H200, 32), (made_up.ADRENO_650, 256)])
def test_work_groups_are_as_wide_as_rules_ask_where_no_more_lanes_stay_idle(
    on: Device, wide: int
) -> None:
    assert work_group((4096, 4096), on) == (wide, 256 // wide)
    assert work_group((1000, 1), on) == (256, 1)


# Aligned vectors.

VECTORS = ("coalesced", "dot4", "image_a", "image_b")


def told(problem: Problem, on: Device, kernel: str) -> bool:
    """Whether any launch of a kernel is told that its vectors are aligned; then they must be."""
    lowers = next(one for one in OPENCL.kernels(on) if one.name == kernel)
    step = lowers.lower(problem, on, lowers.configs(problem, on)[0])
    tells = [launch for launch in step.launches if ("ALIGNED", 1) in launch.defines]
    for launch in tells:
        assert launch.program == kernel
        for operand, leading in itertools.pairwise(launch.arguments):
            if isinstance(operand, Operand) and operand.name[0] in "ab" and operand.name != "bias":
                assert operand.name.endswith("_padded") or problem.aligned
                assert isinstance(leading, Long)
                assert operand.offset % 4 == leading.value % 4 == 0
    return bool(tells)


@hypothesis.given(
    sides=st.tuples(*[st.integers(1, 200)] * 3),
    more=st.tuples(*[st.integers(0, 8)] * 2),
    dtype=st.sampled_from(("float32", "float16", "float64")),
    aligned=st.booleans(),
    kernel=st.sampled_from(VECTORS),
    edge=st.sampled_from((16, 20, 32768)),
)
def test_no_kernel_is_told_that_vectors_are_aligned_which_are_not(
    sides: tuple[int, int, int],
    more: tuple[int, int],
    dtype: str,
    aligned: bool,
    kernel: str,
    edge: int,
) -> None:
    m, n, k = sides
    strides = (k + more[0], 1, n + more[1], 1, n, 1)
    problem = Problem(m, n, k, *strides, dtype=dtype, accumulate=sums_of(dtype), aligned=aligned)
    on = replace(made_up.H200, image_width=edge, image_height=edge)
    hypothesis.assume(dtype != "float64" or kernel in ("coalesced", "dot4"))
    assert not (told(problem, on, kernel) and dtype == "float64")


@pytest.mark.parametrize("kernel", VECTORS)
def test_kernels_are_told_of_aligned_vectors_where_a_device_needs_to_know(kernel: str) -> None:
    dense = Problem(64, 64, 64, *(64, 1) * 3, aligned=True)
    odd = Problem(64, 64, 64, *(65, 1) * 3, aligned=True)
    assert told(dense, made_up.H200, kernel)
    assert told(replace(odd, m=63, n=63, k=63), made_up.H200, kernel)  # padded, so laid out anew
    assert not told(dense, made_up.MALI_G77, kernel)
    assert not told(replace(dense, aligned=False), made_up.H200, kernel)


@every_device
@pytest.mark.parametrize("side", [127, 509, 513, 1021])
def test_an_odd_size_keeps_most_lanes_busy(side: int, on: Device) -> None:
    for extent in ((side, side), (side, 1), (1, side)):
        taken = lanes(extent, work_group(extent, on))
        assert extent[0] * extent[1] / taken > 0.7


def test_planning_loads_no_driver() -> None:
    script = (
        "import sys\nfrom tests.planning import test_rules\nfrom tests.support import made_up\n"
        "test_rules.planned(test_rules.problem_of(64, 64, 64), made_up.MALI_G77)\n"
        "assert 'pyopencl' not in sys.modules"
    )
    folder = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True)


@pytest.mark.parametrize(
    ("kernel", "strides", "squares"),
    [
        ("coalesced", (1, 256, 256, 1), 0),  # A by columns, B by rows, as it reads them
        ("coalesced", (256, 1, 256, 1), 1),
        ("coalesced", (256, 1, 1, 256), 2),
        ("image_b", (256, 1, 256, 1), 1),
        ("image_b", (256, 1, 1, 256), 1),
        ("image_ab", (1, 256, 256, 1), 2),
    ],
)
def test_what_is_laid_out_anew_is_counted_read_and_written_and_nothing_else(
    kernel: str, strides: tuple[int, int, int, int], squares: int
) -> None:
    problem = Problem(256, 256, 256, *strides, 256, 1, aligned=True)
    for on in (made_up.ADRENO_650, made_up.TWO_CORES):
        declared = next(one for one in OPENCL.kernels(on) if one.name == kernel)
        step = plan_kernel(problem, on, declared).step
        assert step.moved_bytes == squares * 2 * 4 * 256 * 256
        assert len(step.launches) == squares + 1


def test_padding_is_counted_as_written_and_not_as_read() -> None:
    problem = Problem(255, 253, 257, 257, 1, 253, 1, 253, 1, aligned=True)
    declared = next(k for k in OPENCL.kernels(made_up.ADRENO_650) if k.name == "coalesced")
    moved = plan_kernel(problem, made_up.ADRENO_650, declared).step.moved_bytes
    assert moved == 4 * 257 * ((255 + 256) + (253 + 256))
