"""One-bit networks in files."""

from __future__ import annotations

import io
import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fuzz.harness import Target, main
from fuzz.inputs import json_text, npz
from tilewright import onebit
from tilewright.nn.window import Window
from tilewright.onebit.layers import Add, Affine, BitConv, Clamp, Flatten, MaxPool, RealConv, Sign

_THREE = Window((3, 3), pads=(1, 1, 1, 1))


@cache
def honest() -> dict[str, Any]:
    """The arrays of a small network's file, by name."""
    rng = np.random.default_rng(0)
    bits = onebit.pack(rng.choice(np.array([-1, 1], np.int8), (8, 3, 3, 8)))
    network = onebit.Network(
        (4, 4, 3),
        (
            RealConv(
                name="stem",
                inputs=("input",),
                weights=rng.standard_normal((8, 3, 3, 3)).astype(np.float16),
                window=_THREE,
            ),
            Sign(name="sign", inputs=("stem",)),
            BitConv(name="conv", inputs=("sign",), weights=bits, window=_THREE),
            Affine(
                name="norm",
                inputs=("conv",),
                scale=np.ones(8, np.float32),
                shift=np.zeros(8, np.float32),
            ),
            Add(name="add", inputs=("norm", "stem")),
            Clamp(name="clamp", inputs=("add",), low=-1.0),
            MaxPool(name="pool", inputs=("clamp",), window=Window((2, 2), (2, 2))),
            Flatten(name="flat", inputs=("pool",)),
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        onebit.save(network, Path(folder, "network.npz"))
        content = Path(folder, "network.npz").read_bytes()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return {name: arrays[name] for name in arrays.files}


@st.composite
def inputs(draw: st.DrawFn) -> bytes:
    """The file with a header that says something else, or with other arrays."""
    members = dict(honest())
    if draw(st.booleans()):
        text = draw(json_text(json.loads(members["header"].tobytes())))
        members["header"] = np.frombuffer(text, np.uint8)
    return draw(npz(members, compressed=False))


def ready() -> object:
    """The honest file, read."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.npz")
        np.savez(path, **honest())
        return onebit.load(path)


TARGET = Target("network", ".npz", inputs(), onebit.load, ready=ready)

if __name__ == "__main__":
    main(TARGET)
