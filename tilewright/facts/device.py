"""Device: the frozen facts of one device, read once from its driver and never changed.

Planning sees nothing but this record, so tests plan for an Adreno or a Mali that nobody has at
hand. Ask for features (`device.has("fp16")`), never for product names; only the vendor rules in
`backends/opencl/rules.toml` look at those.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from tilewright.facts.ceilings import Ceilings

FEATURES = (
    "fp16",
    "fp64",
    "bf16",
    "tf32",
    "wgmma",
    "images",
    "image_from_buffer",
    "unified_memory",
    "svm_coarse",
    "svm_fine",
    "svm_system",
    "short_loops",  # not a gift: facts/limits.py
)

_MEASURED = ("ceilings", "brief")


@dataclass(frozen=True, slots=True)
class Device:
    """One place where a product can run.

    `version` is what the driver says of the device beside its name: some tell the model only there.
    Sizes of memory are bytes; `image_width` is in texels of four elements, `image_pitch` the
    alignment in texels that an image laid on a buffer demands of its row pitch. `vector_floats` are
    the float32 that a register of it holds, 0 where nobody says. `ceilings` are what
    `tilewright peak` measured, if it did, and `brief` what was measured in a few milliseconds, for
    predictions alone; they are no part of which device it is.
    """

    id: str
    backend: str
    name: str
    vendor: str = "unknown"
    driver: str = "unknown"
    version: str = ""
    platform: str = "unknown"
    kind: str = "cpu"
    compute_units: int = 1
    memory: int = 0
    max_allocation: int = 0
    local_memory: int = 0
    local_memory_is_dedicated: bool = False
    max_work_group: int = 1
    max_work_item_sizes: tuple[int, ...] = (1, 1, 1)
    image_width: int = 0
    image_height: int = 0
    image_pitch: int = 1
    vector_floats: int = 0
    features: frozenset[str] = frozenset()
    ceilings: Ceilings | None = field(default=None, compare=False, repr=False)
    brief: Ceilings | None = field(default=None, compare=False, repr=False)

    def __hash__(self) -> int:
        # Looked up for every product: hashing all the facts would cost more than a small one.
        return hash((self.id, self.driver))

    def has(self, feature: str) -> bool:
        """Whether the device offers one of `FEATURES`."""
        if feature not in FEATURES:
            raise ValueError(f"feature={feature!r}: known are {', '.join(FEATURES)}")
        return feature in self.features

    @property
    def key(self) -> str:
        """What measurements and compiled programs are filed under: they change with the driver."""
        return "|".join((self.backend, self.platform, self.name, self.driver))

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Element types that kernels on this device can store, as NumPy names."""
        if self.backend == "host":
            return ("float16", "float32", "float64")
        halves: tuple[str, ...] = ("float16",) if self.has("fp16") else ()
        halves += ("bfloat16",) if self.has("bf16") else ()
        doubles = ("float64",) if self.has("fp64") else ()
        return (*halves, "float32", *doubles)

    def as_dict(self) -> dict[str, Any]:
        """The facts as plain JSON types; what was measured has a document of its own."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in _MEASURED}
        sizes = list(self.max_work_item_sizes)
        return {**facts, "features": sorted(self.features), "max_work_item_sizes": sizes}
