"""Rules about families of devices, as data: what is known before anything is measured there.

Each rule is a prior. What is measured on the device (tuning/crossover.py) may overrule the
preferred kernels, and `explain()` names every rule that spoke. Nothing but this file looks at
product names.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from tilewright.facts.device import Device

MULTIPLY_ADD = {"a*b+c": 0, "mad": 1, "fma": 2}
# Platforms that keep programs on disk themselves. Asked for a program's binary, PoCL compiles its
# kernel once more, for work-groups of any size: `local` takes 3.4 s then, and 1.7 without.
KEEPS_PROGRAMS = frozenset({"Portable Computing Language"})


# Convolution engines: the share of a device's peak that each is taken to reach. Their order is what
# counts; the numbers of phones are made so that the ratios are those of the sources below.
GPU_CONVS = (
    ("conv_direct", 0.1),
    ("conv_direct_image", 0.08),
    ("conv_gemm", 0.3),
    ("conv_winograd", 0.2),
    ("conv_chain", 0.01),
)
ADRENO_CONVS = (
    ("conv_direct", 0.15),
    ("conv_direct_image", 0.3),
    ("conv_gemm", 0.1),
    ("conv_winograd", 0.2),
    ("conv_chain", 0.01),
)
DIRECT_CONVS = (
    ("conv_direct", 0.3),
    ("conv_direct_image", 0.25),
    ("conv_gemm", 0.1),
    ("conv_winograd", 0.05),  # its products are conv_gemm's
    ("conv_chain", 0.01),
)
CPU_CONVS = (
    ("conv_direct", 0.45),
    ("conv_direct_image", 0.025),
    ("conv_gemm", 0.18),
    ("conv_winograd", 0.07),
    ("conv_chain", 0.5),
)


@dataclass(frozen=True, slots=True)
class Rule:
    """If vendor, name or version match, prefer `settings`, because of `reason`, says `source`."""

    name: str
    pattern: str
    settings: tuple[tuple[str, object], ...]
    reason: str
    source: str
    kinds: tuple[str, ...] = ("gpu",)

    def applies(self, device: Device) -> bool:
        """Whether the rule speaks of this device."""
        if device.kind not in self.kinds:
            return False
        # Adreno drivers before 2020 or so name the model in the version alone.
        names = f"{device.vendor} {device.name} {device.version}"
        return re.search(self.pattern, names, re.IGNORECASE) is not None


RULES = (
    Rule(
        "cpu-panel",
        "",
        (("kernels", ("panel", "coalesced", "dot4")),),
        "packed panels and named vector registers reach the BLAS's rate; local memory is DRAM here",
        "measured, two AVX-512 cores: panel 340-364 GFLOP/s, OpenBLAS 250-290",
        kinds=("cpu",),
    ),
    Rule(
        "gpu-local",
        "",
        (("kernels", ("local", "coalesced", "image_ab")),),
        "local memory is on the chip and blocks of it cut global traffic by the tile's side",
        "NVIDIA OpenCL Best Practices Guide, section on shared memory; CLBlast's tuned database",
    ),
    Rule(
        "nvidia-group-size",
        r"nvidia",
        (("require_group", 1),),
        "a work-group size known to the compiler lets it give each work-item more registers",
        "measured, H200: `grouped` gains 3 %, and 512 work-items a group do not start without it",
    ),
    Rule(
        "adreno-no-fma",
        r"adreno|qualcomm",
        (("multiply_add", MULTIPLY_ADD["mad"]), ("require_group", 0)),
        "the built-in fma() is emulated (26x slower on an X1-45); mad is native, and"
        " reqd_work_group_size costs speed",
        "clpeak users' measurements; Qualcomm Snapdragon OpenCL programming guide 80-NB295-11",
    ),
    Rule(
        "adreno-textures",
        r"adreno.*\b[67]\d\d\b",
        (("kernels", ("image_ab", "image_b", "coalesced")),),
        "only textures pass through L1: about 3x over coalesced on an Adreno 650",
        "published fp16 1024^3 measurements on Adreno 650",
    ),
    Rule(
        "adreno-old-textures",
        r"adreno.*\b[45]\d\d\b",
        (("kernels", ("image_b", "image_ab", "coalesced")),),
        "B by texture and A by buffer use two load paths at once",
        "Qualcomm, Matrix Multiply on Adreno GPUs, parts 1 and 2",
    ),
    Rule(
        "mali-no-local",
        r"\bmali\b|immortalis",
        (("kernels", ("image_a", "coalesced", "dot4")),),
        "local memory lies in the same DRAM, so it is a prior against `local`, not a ban",
        "Arm Mali GPU OpenCL developer guide 101574; 17x for coalesced over naive on Mali-G77",
    ),
    Rule(
        "mali-midgard-vectors",
        r"mali-t\d+",
        (("kernels", ("dot4", "coalesced", "naive")),),
        "128-bit vector registers and 16-byte loads; wants 4096 work-items, 128 a core",
        "Arm Mali Midgard guide; 40x over a serial CPU loop reported on Mali-T604",
    ),
    Rule(
        "cpu-convs",
        "",
        (("convs", CPU_CONVS),),
        "a whole chain in a core's cache; local memory is DRAM here",
        "measured, two AVX-512 cores, 64 channels: direct 168-195 GFLOP/s, gemm 55, image 8",
        kinds=("cpu",),
    ),
    Rule(
        "gpu-convs",
        "",
        (("convs", GPU_CONVS),),
        "tiles in local memory cut global traffic by their side",
        "the same prior as gpu-local's",
    ),
    Rule(
        "adreno-convs",
        r"adreno|qualcomm",
        (("convs", ADRENO_CONVS), ("conv_turn", 48)),
        "images win up to 48 channels, Winograd from 48 up",
        "a published study of MNN's convolutions on Adreno",
    ),
    Rule(
        "mali-convs",
        r"\bmali\b|immortalis",
        (("convs", DIRECT_CONVS),),
        "local memory lies in the same DRAM",
        "Arm Mali GPU OpenCL developer guide 101574",
    ),
    Rule(
        "xclipse-convs",
        r"xclipse|samsung",
        (("convs", DIRECT_CONVS),),
        "direct beat implicit GEMM by 2 to 4 times",
        "published measurements on an Exynos' Xclipse 960",
    ),
    Rule(
        "mali-fma",
        r"mali-g\d+|immortalis",
        (("multiply_add", MULTIPLY_ADD["fma"]),),
        "fma() is native: about +36 % over a*b+c on Mali-G77",
        "published fp16 1024^3 measurements on Mali-G77",
    ),
)


@dataclass(frozen=True, slots=True)
class Preferences:
    """What the rules that apply add up to; later rules are more specific and win."""

    kernels: tuple[str, ...] = ("coalesced", "local", "naive")
    multiply_add: int = MULTIPLY_ADD["fma"]
    require_group: int = 0
    convs: tuple[tuple[str, float], ...] = GPU_CONVS
    conv_turn: int = 48  # channels from which on Winograd wins over images
    rules: tuple[Rule, ...] = field(default=())


def preferences(device: Device) -> Preferences:
    """The preferences for a device, with the rules they came from."""
    rules = tuple(rule for rule in RULES if rule.applies(device))
    merged: dict[str, object] = {}
    for rule in rules:
        merged.update(rule.settings)
    return Preferences(**merged, rules=rules)  # type: ignore[arg-type]
