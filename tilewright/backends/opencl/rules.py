"""What vendors taught of families of devices, before anything is measured there: rules.toml, read.

Each rule is a prior. What is measured on the device (tuning/crossover.py) may overrule the
preferred kernels, and `explain()` names every rule that spoke. Nothing but that file looks at
product names.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.facts.device import Device

MULTIPLY_ADD = {"a*b+c": 0, "mad": 1, "fma": 2}
# Platforms that keep programs on disk themselves. Asked for a program's binary, PoCL compiles its
# kernel once more, for work-groups of any size: `local` takes 3.4 s then, and 1.7 without.
KEEPS_PROGRAMS = frozenset({"Portable Computing Language"})


_OF_CONVOLUTIONS = frozenset({"convs", "conv_turn"})  # settings that products do not read


@dataclass(frozen=True, slots=True)
class Rule:
    """If vendor, name or version match, prefer `settings`, because of `reason`, says `source`."""

    name: str
    settings: Mapping[str, Any]
    reason: str
    source: str
    pattern: str = ""
    kinds: Sequence[str] = ("gpu",)

    def applies(self, device: Device) -> bool:
        """Whether the rule speaks of this device."""
        if device.kind not in self.kinds:
            return False
        # Adreno drivers before 2020 or so name the model in the version alone.
        names = f"{device.vendor} {device.name} {device.version}"
        return re.search(self.pattern, names, re.IGNORECASE) is not None

    @property
    def is_of_convolutions(self) -> bool:
        """Whether it says something of convolutions."""
        return not _OF_CONVOLUTIONS.isdisjoint(self.settings)

    @property
    def is_of_products(self) -> bool:
        """Whether it says something of products."""
        return not _OF_CONVOLUTIONS.issuperset(self.settings)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A compiler that takes the process down, or hangs: which, on what processor, what to take.

    Of some `programs` alone, or of all where none is named.
    """

    name: str
    platform: str
    pattern: str  # of the driver's version
    reason: str
    accepted: str
    source: str
    instructions: tuple[str, ...] = ()  # any of these, as NumPy names what a processor has
    programs: tuple[str, ...] = ()

    def applies(self, device: Device, program: str, instructions: frozenset[str]) -> bool:
        """Whether it may not be compiled for this device, on a processor of `instructions`."""
        return (
            device.platform == self.platform
            and program in (self.programs or (program,))
            and not (self.instructions and instructions.isdisjoint(self.instructions))
            and re.search(self.pattern, device.version) is not None
        )


@dataclass(frozen=True, slots=True)
class Preferences:
    """What the rules that apply add up to; later rules are more specific and win."""

    kernels: tuple[str, ...]
    multiply_add: int
    require_group: int
    aligned_loads: int  # 1: kernels are told where vectors of four are aligned
    group_width: int  # work-items along x of a group, where as many lanes stay idle
    sums_aside: int  # 1: sums of finished chains wait in memory
    convs: Mapping[str, float]
    conv_turn: int  # channels from which on Winograd wins over images
    rules: tuple[Rule, ...]


@lru_cache(maxsize=64)
def preferences(device: Device) -> Preferences:
    """The preferences for a device, with the rules they came from."""
    otherwise, every, _ = read()
    rules = tuple(rule for rule in every if rule.applies(device))
    settled = dict(otherwise)
    for rule in rules:
        settled.update(rule.settings)
    settled["kernels"] = tuple(settled["kernels"])
    settled["multiply_add"] = MULTIPLY_ADD[settled["multiply_add"]]
    return Preferences(**settled, rules=rules)


def why_not_compile(
    device: Device, program: str, instructions: frozenset[str] | None = None
) -> str | None:
    """Why a program may not be compiled for a device, in words; None where there is no reason."""
    if device.kind != "cpu":
        return None
    has = _instructions() if instructions is None else instructions
    for refusal in read()[2]:
        if refusal.applies(device, program, has):
            return f"{refusal.reason}; accepted {refusal.accepted}"
    return None


def has_short_loops(platform: str, name: str) -> bool:
    """Whether a platform's device ends long loops early: facts/limits.py."""
    return _is_listed("short_loops", platform, name)


def wants_one_queue(device: Device) -> bool:
    """Whether a driver must not run kernels of two queues at the same time."""
    return _is_listed("one_queue", device.platform, device.driver)


def _is_listed(table: str, platform: str, text: str) -> bool:
    """Whether an entry of the table is of this platform, and its pattern matches."""
    return any(
        one["platform"] == platform and re.search(one["pattern"], text)
        for one in _document()[table]
    )


@cache
def _instructions() -> frozenset[str]:
    """Sets that this processor has, as NumPy names them."""
    config = np.show_config(mode="dicts") or {}
    return frozenset(config.get("SIMD Extensions", {}).get("found", ()))


@cache
def read() -> tuple[Mapping[str, Any], tuple[Rule, ...], tuple[Refusal, ...]]:
    """What holds where no rule speaks, the rules in the file's order, and what is refused."""
    document = _document()
    rules = tuple(Rule(**rule) for rule in document["rule"])
    refusals = tuple(Refusal(**_frozen(one)) for one in document["refusal"])
    return document["otherwise"], rules, refusals


def _frozen(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in entry.items()}


@cache
def _document() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
