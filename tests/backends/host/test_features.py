"""What a processor has, as LLVM compiles for it: x86's by its list, ARM's by what is made of it."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("numba")

from llvmlite import binding

from tilewright.backends.host.backend import named
from tilewright.backends.host.kernels.features import by_core, features

CORES = {
    "cortex-a53": {"neon"},
    "cortex-a72": {"neon"},
    "cortex-a55": {"neon", "dotprod"},
    "cortex-a76": {"neon", "dotprod"},
    "neoverse-n1": {"neon", "dotprod"},
    "neoverse-v1": {"neon", "dotprod", "bf16"},
    "cortex-x2": {"neon", "dotprod", "bf16"},
    "apple-m1": {"neon", "dotprod"},
    "generic": {"neon"},
}


@pytest.fixture(scope="module", autouse=True)
def of_all_processors() -> None:
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()


@pytest.mark.parametrize("core", CORES)
def test_instructions_of_arms_cores_are_found_that_no_list_names(core: str) -> None:
    assert by_core("aarch64-linux-gnu", core) == CORES[core]


def test_what_is_told_of_a_core_that_nobody_knows_by_name_is_found_too() -> None:
    assert by_core("aarch64-linux-gnu", "generic", "+dotprod,+bf16") == CORES["neoverse-v1"]
    assert by_core("aarch64-linux-gnu", "neoverse-v1", "-bf16") == CORES["cortex-a76"]


def test_features_of_arm_are_those_of_the_core_that_numba_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from numba import config

    listed: Any = binding.FeatureMap({"neon": True, "lse": True, "sve": False})
    monkeypatch.setattr(binding, "get_process_triple", lambda: "aarch64-linux-gnu")
    monkeypatch.setattr(binding, "get_host_cpu_features", lambda: listed)
    monkeypatch.setattr(binding, "get_host_cpu_name", lambda: "cortex-a53")
    monkeypatch.setattr(config, "CPU_FEATURES", None)
    monkeypatch.setattr(config, "CPU_NAME", None)
    assert features() == {"neon", "lse"}
    monkeypatch.setattr(config, "CPU_NAME", "cortex-a76")
    assert features() == {"neon", "lse", "dotprod"}
    monkeypatch.setattr(config, "CPU_FEATURES", "+neon")
    assert features() == {"neon"}


def test_cores_of_arm_are_told_apart_by_their_parts_where_linux_has_no_name_for_them() -> None:
    little, big = "CPU implementer\t: 0x41\nCPU part\t: 0xd05\n", "CPU implementer\t: 0x41\n"
    known = platform.processor() or platform.machine()
    phone = named(2 * little + big + "CPU part\t: 0xd0b\n")
    assert phone == f"{known}, cores 0x41/0xd05 0x41/0xd0b"
    assert named("model name\t: AMD EPYC\nmodel name\t: AMD EPYC\n") == "AMD EPYC"
    assert named("") == known


@pytest.mark.skipif(platform.machine() != "aarch64", reason="no core of ARM's")
def test_bytes_are_multiplied_by_sdot_where_the_system_says_that_there_is_one() -> None:
    from numba import config

    said = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    if config.CPU_FEATURES is not None or "asimddp" not in said:
        pytest.skip("Numba was told the features, or the core has no sdot")
    from tilewright.backends.host.kernels.whole_dot import DOTS

    assert DOTS, (binding.get_host_cpu_name(), features())
