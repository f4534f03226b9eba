"""The one-bit CUDA kernels, compiled without a GPU: right instructions, nothing spilled.

By NVRTC where `cuda-bindings` finds it, else by nvcc; the machine code is read with the
disassembler that Triton's package carries.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from tests.support.machine_code import compiled
from tilewright.backends.cuda.bits import launch
from tilewright.backends.cuda.bits.engines import ENGINES, capability
from tilewright.backends.cuda.machine import nvrtc
from tilewright.engines.bits import BitProblem
from tilewright.facts.device import Device

OUTPUTS = {"int32": 0, "float32": 1, "float16": 2, "bits": 3}
TRITON = importlib.util.find_spec("triton")
TOOLS = Path(TRITON.origin).parent / "backends/nvidia/bin" if TRITON and TRITON.origin else None

# source, macros, architecture, the instruction that must be there
CASES = (
    *(("bits_wgmma", {"OUT": out}, "sm_90a", r"BGMMA\.64x256x256\.AND\.POPC") for out in range(4)),
    ("bits_wgmma", {"BN": 128, "COPY_OUT": 0}, "sm_90a", r"BGMMA\.64x128x256\.AND\.POPC"),
    ("bits_mma", {"OUT": 0}, "sm_80", r"BMMA\.168256\.AND\.POPC"),
    ("bits_mma", {"OUT": 3}, "sm_89", r"BMMA\.168256\.AND\.POPC"),
    ("bits_popc", {"OUT": 0}, "sm_75", r"\bPOPC\b"),
    ("bits_popc", {"OUT": 3}, "sm_100", r"\bPOPC\b"),
    ("bits_pack", {"IN": 1}, "sm_90a", r"LDG\.E\.128"),
)


@cache
def without_a_compiler() -> str | None:
    missing = nvrtc.missing()
    if missing is None or shutil.which("nvcc"):
        return None
    return f"{missing}; nor is nvcc on the PATH"


def machine_code(folder: Path, source: str, defines: dict[str, int], arch: str) -> Path:
    why = without_a_compiler()
    if why is not None:
        pytest.skip(why)
    path = folder / "kernel.cubin"
    if nvrtc.missing() is None:
        path.write_bytes(compiled(source, defines, arch))
        return path
    macros = [f"-D{name}={value}" for name, value in defines.items()]
    target = f"-gencode=arch={arch.replace('sm_', 'compute_')},code={arch}"
    text = str(nvrtc.path_of(f"{source}.cu"))
    macros += nvrtc.include_paths()
    command = ["nvcc", "-std=c++17", target, *macros, "-cubin", "-o", str(path), text]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


def tool(name: str) -> str:
    found = shutil.which(name) or (TOOLS and shutil.which(name, path=str(TOOLS)))
    return found or pytest.skip(f"no {name}: it comes with Triton and with the CUDA toolkit")


def test_what_all_hopper_kernels_say_to_the_machine_stands_in_one_header() -> None:
    def said(header: str) -> set[str]:
        text = nvrtc.path_of(header).read_text(encoding="utf-8")
        return set(re.findall(r'asm volatile\(\s*"([^"]+)"', text))

    shared = said("ptx.cuh")
    assert len(shared) > 20
    for header in ("bits_hopper.cuh", "hopper_wgmma.cuh"):
        assert said(header) & shared == set()
    assert said("bits_hopper.cuh") & said("hopper_wgmma.cuh") == set()


def text_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("source", "defines", "arch", "instruction"),
    CASES,
    ids=lambda value: value if isinstance(value, str) else str(value),
)
def test_the_kernel_has_its_instruction_and_spills_nothing(
    tmp_path: Path, source: str, defines: dict[str, int], arch: str, instruction: str
) -> None:
    code = machine_code(tmp_path, source, defines, arch)
    assert re.search(instruction, text_of(tool("nvdisasm"), str(code)))
    usage = text_of(tool("cuobjdump"), "--dump-resource-usage", str(code))
    found = re.findall(r"STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    assert found
    assert set(found) == {("0", "0")}


@pytest.mark.parametrize("out", OUTPUTS)
def test_tiles_fit_hoppers_shared_memory(out: str) -> None:
    for n in (1, 128, 129, 8192):
        for m in (1, 64, 65, 8192):
            assert launch.shape_of(BitProblem(m, n, 100, out=out)).shared(out) <= 227 * 1024


def made_up(version: str) -> Device:
    return Device("cuda:0", "cuda", "made up", version=version, compute_units=132)


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("sm_75", {"popcount"}),
        ("sm_80", {"mma", "popcount"}),
        ("sm_89", {"mma", "popcount"}),
        ("sm_90", {"wgmma", "mma", "popcount"}),
        ("sm_100", {"popcount"}),
        ("gfx942", set()),
    ],
)
def test_each_gpu_is_offered_what_its_tensor_cores_have(
    version: str, names: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    device = made_up(version)
    problem = BitProblem(8192, 8192, 8192)
    assert {engine.name for engine in ENGINES if engine.why_not([problem], device) is None} == names
    reasons = [engine.why_not([problem], device) for engine in ENGINES if engine.name not in names]
    assert all(isinstance(reason, str) and version in reason for reason in reasons)


def test_the_fastest_instruction_is_predicted_to_be_fastest() -> None:
    problem, device = BitProblem(8192, 8192, 8192), made_up("sm_90")
    times = [engine.propose([problem], device).seconds or 0.0 for engine in ENGINES]
    assert times == sorted(times)
    assert capability(device) == 90


def test_rows_too_long_to_count_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "missing", lambda: None)
    reason = ENGINES[0].why_not([BitProblem(1, 1, 1 << 28)], made_up("sm_90"))
    assert isinstance(reason, str)
    assert "k=268435456" in reason


def test_a_damaged_cache_file_is_set_aside_and_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if nvrtc.missing() is not None:
        pytest.skip(str(nvrtc.missing()))
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    defines = (("IN", 4),)
    code = nvrtc.cubin("bits_pack", defines, "sm_90a")
    (path,) = (tmp_path / "nvrtc").iterdir()
    assert path.read_bytes() == code
    path.write_bytes(b"not machine code")
    with pytest.warns(UserWarning, match="no machine code"):
        assert nvrtc.cubin("bits_pack", defines, "sm_90a") == code
    assert path.read_bytes() == code


def test_an_error_of_the_compiler_is_told_with_its_log() -> None:
    if nvrtc.missing() is not None:
        pytest.skip(str(nvrtc.missing()))
    from tilewright.errors import BuildError

    with pytest.raises(BuildError, match="BN"):
        nvrtc.compiled("bits_wgmma", {"BN": 7}, "sm_90a")
