"""What `a @ b` of arrays and batches calls: the product that the package offers by its name.

Arrays lie below all products and import none of them. Whoever writes `a @ b` has the package, and
means what its users call, which is loaded by then or by this.
"""

from __future__ import annotations

import sys
from typing import Any


def product(name: str, a: Any, b: Any) -> Any:
    """`tilewright.NAME(a, b)`."""
    package = sys.modules[__name__.partition(".")[0]]
    return getattr(package, name)(a, b)
