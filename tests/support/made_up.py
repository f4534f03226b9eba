"""Devices that nobody has at hand, as their drivers describe them: planning needs no more.

Numbers are from the vendors' data sheets and published `clinfo` listings; none of these devices has
run Tilewright but the H200.
"""

from __future__ import annotations

from dataclasses import replace

from tilewright import Device

GIB = 2**30


def _device(name: str, **facts: object) -> Device:
    return Device(id=f"made-up:{name}", backend="opencl", name=name, **facts)  # type: ignore[arg-type]


ADRENO_650 = _device(
    "QUALCOMM Adreno(TM) 650",
    vendor="QUALCOMM",
    driver="OpenCL 2.0 QUALCOMM build: commit #unknown",
    platform="QUALCOMM Snapdragon(TM)",
    kind="gpu",
    compute_units=3,
    memory=6 * GIB,
    max_allocation=GIB,
    local_memory=32 * 1024,
    local_memory_is_dedicated=True,
    max_work_group=1024,
    max_work_item_sizes=(1024, 1024, 1024),
    image_width=16384,
    image_height=16384,
    image_pitch=64,
    features=frozenset(
        {"fp16", "images", "image_from_buffer", "unified_memory", "svm_coarse", "svm_fine"}
    ),
)
ADRENO_430 = _device(
    "QUALCOMM Adreno(TM) 430",
    vendor="QUALCOMM",
    driver="OpenCL 2.0 QUALCOMM build: commit #unknown",
    platform="QUALCOMM Snapdragon(TM)",
    kind="gpu",
    compute_units=4,
    memory=2 * GIB,
    max_allocation=GIB // 2,
    local_memory=32 * 1024,
    local_memory_is_dedicated=True,
    max_work_group=1024,
    max_work_item_sizes=(1024, 1024, 1024),
    image_width=16384,
    image_height=16384,
    image_pitch=64,
    features=frozenset({"fp16", "images", "image_from_buffer", "unified_memory", "svm_coarse"}),
)
# As a Nokia 5 reports it (BOINC issue 1742): the model stands in the version alone.
ADRENO_505 = replace(
    ADRENO_430, name="QUALCOMM Adreno(TM)", version="OpenCL 2.0 Adreno(TM) 505", compute_units=1
)
MALI_G77 = _device(
    "Mali-G77",
    vendor="ARM",
    driver="2.0",
    platform="ARM Platform",
    kind="gpu",
    compute_units=11,
    memory=8 * GIB,
    max_allocation=8 * GIB,
    local_memory=32 * 1024,
    max_work_group=384,
    max_work_item_sizes=(384, 384, 384),
    image_width=65536,
    image_height=65536,
    image_pitch=16,
    features=frozenset({"fp16", "images", "image_from_buffer", "unified_memory", "svm_coarse"}),
)
MALI_T604 = _device(
    "Mali-T604",
    vendor="ARM",
    driver="1.1",
    platform="ARM Platform",
    kind="gpu",
    compute_units=4,
    memory=2 * GIB,
    max_allocation=GIB // 2,
    local_memory=32 * 1024,
    max_work_group=256,
    max_work_item_sizes=(256, 256, 256),
    image_width=65536,
    image_height=65536,
    features=frozenset({"fp16", "fp64", "images", "unified_memory"}),
)
MI100 = _device(
    "gfx908:sramecc+:xnack-",
    vendor="Advanced Micro Devices, Inc.",
    driver="3590.0 (HSA1.1,LC)",
    platform="AMD Accelerated Parallel Processing",
    kind="gpu",
    compute_units=120,
    memory=32 * GIB,
    max_allocation=27 * GIB,
    local_memory=64 * 1024,
    local_memory_is_dedicated=True,
    max_work_group=256,
    max_work_item_sizes=(1024, 1024, 1024),
    image_width=16384,
    image_height=16384,
    image_pitch=256,
    features=frozenset({"fp16", "fp64", "images", "image_from_buffer", "svm_coarse", "svm_fine"}),
)
H200 = _device(
    "NVIDIA H200",
    vendor="NVIDIA Corporation",
    driver="570.124.06",
    platform="NVIDIA CUDA",
    kind="gpu",
    compute_units=132,
    memory=139 * GIB,
    max_allocation=34 * GIB,
    local_memory=48 * 1024,
    local_memory_is_dedicated=True,
    max_work_group=1024,
    max_work_item_sizes=(1024, 1024, 64),
    image_width=32768,
    image_height=32768,
    features=frozenset({"fp64", "images", "svm_coarse"}),
)
TWO_CORES = _device(
    "Intel(R) Xeon(R) Processor",
    vendor="Intel(R) Corporation",
    driver="2026.22.10.0.01_160000",
    platform="Intel(R) OpenCL",
    kind="cpu",
    compute_units=2,
    memory=16 * GIB,
    max_allocation=8 * GIB,
    local_memory=256 * 1024,
    max_work_group=8192,
    max_work_item_sizes=(8192, 8192, 8192),
    image_width=16384,
    image_height=16384,
    image_pitch=64,
    features=frozenset(
        {
            "fp16",
            "fp64",
            "images",
            "image_from_buffer",
            "unified_memory",
            "svm_coarse",
            "svm_fine",
            "svm_system",
        }
    ),
)
# Known for its convolutions alone: no written decision speaks of it.
XCLIPSE_960 = replace(
    MALI_G77, id="made-up:Samsung Xclipse 960", name="Samsung Xclipse 960", vendor="Samsung"
)

DEVICES = (ADRENO_650, ADRENO_430, ADRENO_505, MALI_G77, MALI_T604, MI100, H200, TWO_CORES)
