"""Calls that torch's compilers run as they are and do not follow: of arrays that are not torch's,
and of tensors under torch.func and forward-mode AD.

    untraced.call(function, *arguments, **options)    what the function gives

A graph has nothing of theirs. Following a batch into checks, plans and caches took 8 s and 165
compiled frames, and failed where a table that was followed changed meanwhile. Imported where a
compiler looks on (`views.unfollowed`, `torch_ops/eager.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    """What `function` gives; raises what it raises."""
    return function(*arguments, **options)


_REASON = "tilewright runs arrays that are not torch's, and torch.func's tensors, eagerly"
call: Callable[..., Any] = torch.compiler.disable(_call, reason=_REASON)
