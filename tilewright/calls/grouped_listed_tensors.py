"""Lists of torch's tensors in machine code (backends/host/kernels/tensors.py), once that is there.

missed(count)           the function by torch's own product, None until it is compiled: in a thread,
                        once so many products were made without it that it is worth it (_WORTH), or
                        with what a bound plan of float32 or float64 on the host needs
products_by(multiply)   the function; waits for the compiler
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import Parameter

from tilewright.backends.cuda.machine import addresses
from tilewright.backends.host import compiled, grouped
from tilewright.backends.host.builtin import builtin
from tilewright.inputs.devices import host
from tilewright.inputs.tensors import WITH_COMPLEX as DTYPES

Products = Callable[[Any, Any], list[Tensor] | None]
NAME = "tensors"
_WITH_IT = (NAME, "float32", "float64")  # any of these is compiled with it
_WORTH = 500_000  # products made without it; it saves 0.2 us of each
_made = 0
_MULTIPLY = torch.mm  # whatever stands there later

grouped.others[NAME] = lambda device: [compiled.code_of_tensors]


def missed(count: int) -> Products | None:
    """So many products were made without it; the function, once it is there."""
    global _made
    if not compiled.available():
        return None
    if any(map(grouped.is_compiled, _WITH_IT)):
        return products_by(_MULTIPLY)
    _made += count
    if _made > _WORTH:
        grouped.why_not_yet(host(), NAME)  # compiles beside
    return None


def products_by(multiply: Callable[..., Any]) -> Products | None:
    """Every multiply(a[i], b[i]) of lists or tuples, where all are plain matrices of one dtype in
    the host's memory, each within its storage; else None. Raises what that raises.

    None where torch's records lie otherwise than is known.
    """
    words = addresses.words_of_matrices("cpu", DTYPES)
    if words is None:
        return None
    types = (Tensor, Parameter, list, tuple, None, multiply)
    told = np.array([*map(id, types), *words], np.int64).tobytes()
    return builtin("products", compiled.code_of_tensors(), told, types)
