"""Lists of GPU scientists: CuPy's, complex ones, symmray's blocks, adapters of unlike ranks.

    python -m bench.lists --name h200           bench/results/lists-h200.json

Seconds of whole calls on a GPU, waited for; medians of interleaved blocks. Sizes are drawn evenly
from a range, those of a list once. Each is beside what a user would write instead:

    loop        [x @ y for x, y in zip(a, b)]
    padded      torch.bmm of all matrices padded to the largest, padded before the clock starts
    gathered    of adapters: two torch.bmm of every row's own matrices, padded to the largest rank
    closed      symmray's own blocks, one by one

`apart` is the largest distance from the first other way, as a part of the largest element.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tilewright as tw
from bench.environment import RESULTS, environment
from bench.timing import interleaved
from tilewright.inputs.devices import resolve

Row = dict[str, Any]
Ways = dict[str, Callable[[], Any]]
_DTYPES = ("float32", "float64", "complex64", "complex128")
_LISTS = ((1000, 1, 32), (1000, 1, 64), (200, 64, 256), (20, 256, 1024))
_RANKS = [8, 16, 32, 64] * 16
_ROWS = (1, 8, 32, 128, 1024, 8192)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[Row] = []
    for row in chain(_cupy_rows(), _torch_rows(), _adapter_rows(), _symmray_rows()):
        rows.append(row)
        print(json.dumps(row), flush=True)
    document = {"environment": environment(resolve("cuda:0")), "rows": rows}
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"lists-{options.name}.json"
    path.write_text(json.dumps(document, indent=1) + "\n")


def _drawn(count: int, low: int, high: int, dtype: str) -> tuple[list[Any], list[Any]]:
    draw = np.random.default_rng(0)

    def matrix(rows: int, cols: int) -> Any:
        values = draw.standard_normal((rows, cols))
        if dtype.startswith("complex"):
            values = values + 1j * draw.standard_normal((rows, cols))
        return values.astype(dtype)

    sizes = draw.integers(low, high + 1, (count, 3)).tolist()
    return [matrix(m, k) for m, _, k in sizes], [matrix(k, n) for _, n, k in sizes]


def _cupy_rows() -> Iterator[Row]:
    """CuPy's arrays, each an array of its own."""
    if find_spec("cupy") is None:
        return
    import cupy

    for dtype in _DTYPES:
        for size in (_LISTS[0], _LISTS[2]):
            a, b = ([cupy.asarray(x) for x in part] for part in _drawn(*size, dtype))
            ways: Ways = {
                "tilewright": partial(tw.grouped_matmul, a, b),
                "loop": partial(_loop, a, b),
            }
            yield _compared(f"CuPy, {dtype}", _words(*size), ways)


def _loop(a: list[Any], b: list[Any]) -> list[Any]:
    return [x @ y for x, y in zip(a, b, strict=True)]


def _torch_rows() -> Iterator[Row]:
    """Complex tensors."""
    for dtype in _DTYPES[2:]:
        for size in _LISTS:
            parts = _drawn(*size, dtype)
            a, b = ([torch.from_numpy(x).cuda() for x in part] for part in parts)
            whole = _padded(a), _padded(b)
            plan = tw.plan_grouped(*_sizes(a, b), dtype=dtype, device="cuda:0")
            bound = plan.bind(a, b)
            ways: Ways = {
                "tilewright": partial(tw.grouped_matmul, a, b),
                "bound plan": bound,
                "loop": partial(_loop, a, b),
                "padded": partial(torch.bmm, *whole),
            }
            yield _compared(f"torch, {dtype}", _words(*size), ways)


def _sizes(a: list[Any], b: list[Any]) -> tuple[list[int], list[int], list[int]]:
    return [len(x) for x in a], [y.shape[1] for y in b], [len(y) for y in b]


def _padded(values: list[Any]) -> Any:
    rows, cols = (max(x.shape[i] for x in values) for i in (0, 1))
    out = values[0].new_zeros((len(values), rows, cols))
    for at, x in zip(out, values, strict=True):
        at[: x.shape[0], : x.shape[1]] = x
    return out


def _adapter_rows() -> Iterator[Row]:
    """Adapters of four ranks over one layer, every row by its own, in bf16."""
    from tilewright.pytorch import GroupedLoRA

    base = torch.nn.Linear(4096, 4096, device="cuda", dtype=torch.bfloat16)
    layer: Any = GroupedLoRA(base, _RANKS)
    for b in layer.b:
        torch.nn.init.normal_(b, 0, 0.02)
    pairs = [[one.detach() for one in layer.adapter(i)] for i in range(len(_RANKS))]
    down, up = _padded([a for a, _ in pairs]), _padded([b for _, b in pairs])
    words = f"{len(_RANKS)} adapters of rank 8 to 64, 4096 to 4096, rows: "
    for rows in _ROWS:
        x = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)
        adapter = torch.randint(0, len(_RANKS), (rows,), device="cuda")
        ways: Ways = {"tilewright": partial(layer, x, adapter)}

        def loop(x: Any = x, adapter: Any = adapter) -> Any:
            out, known = base(x), adapter.tolist()
            for i in set(known):
                at = (adapter == i).nonzero()[:, 0]
                out = out.index_add(0, at, x[at] @ pairs[i][0] @ pairs[i][1])
            return out

        def gathered(x: Any = x, adapter: Any = adapter) -> Any:
            inner = torch.bmm(x[:, None], down[adapter])
            return base(x) + torch.bmm(inner, up[adapter])[:, 0]

        ways["loop"] = loop
        if rows <= 1024:  # beyond it gigabytes are gathered
            ways["gathered"] = gathered
        with torch.no_grad():
            yield _compared("GroupedLoRA, bfloat16", f"{words}{rows}", ways)


def _symmray_rows() -> Iterator[Row]:
    """Contractions of U(1) tensors whose blocks are torch's on the GPU."""
    if find_spec("symmray") is None:
        return
    import symmray

    from tilewright.doors import symmray as door

    for width in (4, 8, 32):
        for dtype in ("float64", "complex128"):
            bond = symmray.BlockIndex(dict.fromkeys((-2, -1, 0, 1, 2), width))
            a, b = (
                symmray.U1Array.random((bond, first, bond.conj()), charge=0, seed=seed, dtype=dtype)
                for seed, first in enumerate((bond, bond.conj()))
            )
            for one in (a, b):
                one.apply_to_arrays(lambda x: torch.as_tensor(x).cuda())

            def closed(a: Any = a, b: Any = b) -> Any:
                door.uninstall()
                return symmray.tensordot(a, b, [(2,), (0,)], mode="blockwise")

            def opened(a: Any = a, b: Any = b) -> Any:
                door.install()
                return symmray.tensordot(a, b, [(2,), (0,)], mode="blockwise")

            ways: Ways = {"tilewright": opened, "closed": closed}
            found = _apart_of_blocks(opened().blocks, closed().blocks)
            seconds = _seconds(ways)
            door.uninstall()
            title = f"symmray, {dtype}, blocks of torch"
            yield {
                "case": title,
                "of": f"five charges, {width} a charge",
                "seconds": seconds,
                "apart": found,
            }


def _apart_of_blocks(ours: dict[Any, Any], theirs: dict[Any, Any]) -> float:
    assert ours.keys() == theirs.keys()
    return max(float(abs(ours[at] - one).max() / abs(one).max()) for at, one in theirs.items())


def _words(count: int, low: int, high: int) -> str:
    return f"{count} of {low}..{high}"


def _compared(title: str, of: str, ways: Ways) -> Row:
    results = [way() for name, way in ways.items() if name in ("tilewright", "loop")]
    torch.cuda.synchronize()
    pairs = zip(*results, strict=True)
    far = max(float(abs(x - y).max()) / max(float(abs(y).max()), 1e-30) for x, y in pairs)
    return {"case": title, "of": of, "seconds": _seconds(ways), "apart": far}


def _seconds(ways: Ways) -> dict[str, float]:
    def waited(way: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            way()
            torch.cuda.synchronize()

        return call

    calls = {name: waited(way) for name, way in ways.items()}
    return interleaved(calls, block_seconds=0.03, rounds=5, rest=0.02)


if __name__ == "__main__":
    main()
