"""Who uses the GPU: many tests at once, or one that measures it, in whatever processes they run."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def held(*, alone: bool, folder: Path | None = None) -> Iterator[None]:
    """The GPU beside other tests, or without them.

    Whoever wants it alone closes a gate first, so that it does not wait for ever for a moment at
    which nobody holds it.
    """
    if fcntl is None:
        yield
        return
    folder = folder or Path(tempfile.gettempdir())
    kind = fcntl.LOCK_EX if alone else fcntl.LOCK_SH
    with ExitStack() as stack:
        gate, gpu = (
            stack.enter_context((folder / f"tilewright-{os.getuid()}-{name}.lock").open("a"))
            for name in ("gate", "gpu")
        )
        fcntl.flock(gate, kind)
        fcntl.flock(gpu, kind)
        if not alone:
            fcntl.flock(gate, fcntl.LOCK_UN)
        yield
