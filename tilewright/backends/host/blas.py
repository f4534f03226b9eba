"""Which BLAS NumPy multiplies with, whose kernels it took, on how many threads, by threadpoolctl.

NumPy's own configuration tells what it was built with. A wheel holds kernels of many processors,
and which run is chosen when it loads, or held by OPENBLAS_CORETYPE: a variable that halved NumPy's
speed on a machine where nobody knew that it was set.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Blas:
    """A BLAS that is loaded; what nobody tells is empty or 0."""

    name: str
    version: str = ""
    kernels: str = ""  # the processor whose kernels it took, as it calls it
    threads: int = 0

    def __str__(self) -> str:
        told = (f"{self.name} {self.version}".strip(), self.kernels and f"{self.kernels} kernels")
        counted = self.threads and f"{self.threads} thread{'s' * (self.threads != 1)}"
        return ", ".join(part for part in (*told, counted) if part)


@cache
def blas() -> Blas:
    """NumPy's; of several that are loaded, the one that lies beside NumPy."""
    import threadpoolctl

    try:
        found = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
    except (OSError, RuntimeError):  # what lists loaded libraries is not there
        found = []
    home = str(Path(np.__file__).resolve().parent)
    found.sort(key=lambda pool: not str(pool.get("filepath", "")).startswith(home))
    if not found:  # Apple's Accelerate, or a library that threadpoolctl does not know
        built = (np.show_config(mode="dicts") or {}).get("Build Dependencies", {}).get("blas", {})
        return Blas(str(built.get("name", "BLAS")), str(built.get("version", "")))
    first = found[0]
    return Blas(
        str(first.get("internal_api") or "BLAS"),
        str(first.get("version") or ""),
        str(first.get("architecture") or ""),
        int(first.get("num_threads") or 0),
    )
