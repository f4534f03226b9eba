"""What each door changes: calls of another library with the door closed and open, one process.

    python -m bench.doors --name cpu                    bench/results/doors-cpu.json
    python -m bench.doors --name h200 --device cuda:0   the same on a GPU
    python -m bench.doors --name cpu-rows --parts rows  one part of it, in a file of its own

Seconds of whole calls, waited for; medians of interleaved blocks. A call that the library refuses
says how. Sizes of groups are drawn, one of them empty.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as functional

import tilewright
import tilewright.pytorch as ours
from bench.environment import RESULTS, environment
from bench.timing import interleaved
from tilewright.backends.host import ragged
from tilewright.inputs.devices import host, resolve

Call = Callable[[], object]
Row = dict[str, Any]
_LONG = 0.1  # seconds of a call of every way, from which fewer blocks are enough
# Where ours seems slower than this, more and shorter blocks in turns decide whether it is.
_SLOWER, _AGAIN = 0.97, 25
_DTYPES = ["float32", "bfloat16"]  # of rows on a processor
_CALLS = 10  # of a product in a row, as one alone is mostly waiting for a GPU
# Of processors: groups, rows of each, k and n; and operations of a block of calls in a row.
_GROUPS, _ROWS, _SIZES, _BLOCK = (1, 2, 4, 8, 16, 64, 256), (4, 64, 256), (64, 256, 1024), 1e8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--name", required=True)
    parser.add_argument("--output", type=Path, default=RESULTS)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    parser.add_argument("--dtypes", nargs="+", default=list(_DTYPES), help="of rows on a processor")
    parser.add_argument("--append", action="store_true", help="to the rows that the file has")
    options = parser.parse_args()
    _DTYPES[:] = options.dtypes
    torch.manual_seed(0)
    rows: list[Row] = []
    device = options.device
    place = host() if options.device == "cpu" else resolve(options.device)
    if options.device == "cpu":  # calls would go to torch until that is there
        for dtype in ragged.ITEMS:
            ragged.compile_for(place, dtype)
    document = {"environment": environment(place), "rows": rows}
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / f"doors-{options.name}.json"
    if options.append:
        rows += json.loads(path.read_text())["rows"]
    for row in chain.from_iterable(_PARTS[part](device) for part in options.parts):
        rows.append(row)
        print(json.dumps(row), flush=True)
        path.write_text(json.dumps(document, indent=1) + "\n")


def _grouped_rows(device: str) -> Iterator[Row]:
    """torch's own grouped_mm, alone and installed."""
    cases: list[tuple[str, int, int, int, int]]
    kinds: tuple[str, ...]
    if device == "cpu":
        kinds = tuple(_DTYPES)
        sizes = [(groups, rows, k, k) for k in _SIZES for rows in _ROWS for groups in _GROUPS]
        cases = [(kind, *size) for kind in kinds for size in sizes]
        cases += [(kind, 64, 16, 255, 255) for kind in kinds]
    else:
        kinds = ("bfloat16", "float16", "float32", "float64")
        cases = [(kind, 64, 64, 2048, 1024) for kind in kinds]
        cases += [(kind, 64, 64, 2047, 1023) for kind in ("float32", "bfloat16")]
    for kind, groups, rows, k, n in cases:
        x, w, ends = _operands(getattr(torch, kind), groups, rows, k, n, device)
        title = f"grouped_mm, {kind}, {groups} groups of {rows} rows, k {k}, n {n}"
        few = _BLOCK / (2 * groups * rows * k * n)
        calls = _CALLS if device != "cpu" else max(1, min(_CALLS, int(few)))
        row = _compared(title, _grouped(x, w, ends, device, calls), calls=calls)
        if device == "cpu" and k in _SIZES:
            row["at"] = {"dtype": kind, "groups": groups, "rows": rows, "k": k}
        yield row | {"error": _error_of_grouped(x, w, ends)}


def _followed_rows(device: str) -> Iterator[Row]:
    """The same with both gradients."""
    for groups, rows, size in ((1, 4, 64), (2, 4, 64), (4, 4, 64), (16, 4, 64), (16, 64, 256)):
        x, w, ends = _operands(torch.float32, groups, rows, size, size, device)
        x, w = x.requires_grad_(), w.requires_grad_()

        def step(x: Any = x, w: Any = w, ends: Any = ends) -> None:
            found = functional.grouped_mm(x, w, offs=ends)
            found.backward(found.detach())

        title = f"grouped_mm, float32, {groups} groups of {rows} rows, k {size}, n {size}"
        ways = _opened_and_closed(step, device, _CALLS)
        yield _compared(title + ", with gradients", ways, calls=_CALLS)


def _layer_rows(device: str) -> Iterator[Row]:
    """`tilewright.moe` beside a loop over experts of torch's products."""
    for tokens, d, n, experts, top in (
        *((1, 256, 512, 8, 2), (16, 256, 512, 8, 2), (256, 256, 512, 8, 2)),
        *((16, 512, 192, 32, 8), (256, 512, 192, 32, 8), (1024, 512, 192, 64, 8)),
    ):
        x = torch.randn(tokens, d, device=device)
        up = torch.randn(experts, d, 2 * n, device=device) * d**-0.5
        down = torch.randn(experts, n, d, device=device) * n**-0.5
        chosen = torch.rand(tokens, experts, device=device).topk(top).indices
        weights = torch.rand(tokens, top, device=device)
        given = (x, up, down, chosen, weights)
        ways = {"alone": _loop_of_experts(*given), "tilewright": _layer_of_experts(*given)}
        row = _compared(f"moe, float32, {tokens} tokens, d {d}, n {n}, {top} of {experts}", ways)
        right, found = (way().double() for way in ways.values())  # type: ignore[attr-defined]
        yield row | {"error": float((found - right).abs().max() / right.abs().max())}


def _layer_of_experts(*given: Any) -> Call:
    def layer() -> Any:
        return tilewright.moe(*given)

    return layer


def _loop_of_experts(x: Any, up: Any, down: Any, chosen: Any, weights: Any) -> Call:
    """As the eager experts of Transformers do: those that nobody chose are left out."""

    def layer() -> Any:
        out = torch.zeros_like(x)
        for expert in chosen.unique().tolist():
            token, slot = torch.where(chosen == expert)
            gate, value = torch.mm(x[token], up[expert]).chunk(2, dim=1)
            made = torch.mm(functional.silu(gate) * value, down[expert])
            out.index_add_(0, token, made * weights[token, slot, None])
        return out

    return layer


def _operands(dtype: Any, groups: int, rows: int, k: int, n: int, device: str) -> tuple[Any, ...]:
    total = groups * rows
    ends = torch.randint(0, total + 1, (groups,)).sort()[0].to(torch.int32)
    ends[-1] = total
    x = torch.randn(total, k).to(device, dtype)
    few = min(groups, 16)  # the others are copies: to draw 256 takes longer than to multiply
    w = torch.randn(few, n, k).to(device, dtype).repeat(-(-groups // few), 1, 1)[:groups]
    w = w.transpose(1, 2)
    return x, w, ends.to(device)


def _grouped(x: Any, w: Any, ends: Any, device: str, calls: int) -> dict[str, Call]:
    return _opened_and_closed(lambda: functional.grouped_mm(x, w, offs=ends), device, calls)


def _opened_and_closed(call: Call, device: str, calls: int) -> dict[str, Call]:
    def alone() -> None:  # opened and closed too, so that both pay for that
        ours.install()
        ours.uninstall()
        for _ in range(calls):
            call()
        _wait(device)

    def installed() -> None:
        ours.install()
        for _ in range(calls):
            call()
        _wait(device)
        ours.uninstall()

    return {"alone": alone, "tilewright": installed}


def _experts_rows(device: str) -> Iterator[Row]:
    """A layer of Qwen3-MoE: the library's own experts, and ours, forward and with gradients."""
    import transformers

    from tilewright.doors import transformers as door

    door.register()
    on_gpu = device != "cpu"
    hidden, inner, count, tokens = (2048, 768, 128, 4096) if on_gpu else (512, 192, 32, 256)
    kinds = ("bfloat16", "float32") if on_gpu else ("float32",)
    for kind in kinds:
        for width in (hidden, hidden - 1):
            config = transformers.Qwen3MoeConfig(
                hidden_size=width, moe_intermediate_size=inner, num_experts=count
            )
            module = transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeExperts(config)
            module = module.to(device, getattr(torch, kind))
            for value in module.parameters():
                torch.nn.init.normal_(value, 0, 0.02)
            x = torch.randn(tokens, width).to(device, getattr(torch, kind)).requires_grad_()
            index = torch.rand(tokens, count, device=device).topk(8).indices
            weights = torch.rand(tokens, 8, device=device, dtype=x.dtype)
            for backward in (False, True):
                title = f"Qwen3-MoE experts, {kind}, {tokens} tokens, d {width}, n {inner}, 8 of"
                title += f" {count}{', with gradients' if backward else ''}"
                given = (module, config, x, index, weights)
                row = _compared(title, _experts(given, backward, device))
                yield row | {"error": _error_of_experts(given)}


def _experts(given: tuple[Any, ...], backward: bool, device: str) -> dict[str, Call]:
    module, config, *operands = given

    def way(name: str) -> Call:
        def call() -> None:
            config._experts_implementation = name
            with torch.set_grad_enabled(backward):
                out = module(*operands)
            if backward:
                out.backward(out.detach())
            _wait(device)

        return call

    return {name: way(name) for name in ("eager", "grouped_mm", "tilewright")}


def _graph_rows(device: str) -> Iterator[Row]:
    """PyG's typed layers with the door closed and open, forward and with gradients."""
    from torch_geometric.nn import HeteroLinear, RGCNConv

    nodes, width = (200_000, 128) if device != "cpu" else (20_000, 32)
    for types in (8, 64):
        kind = torch.randint(0, types, (nodes,)).sort()[0].to(device)
        x = torch.randn(nodes, width).to(device).requires_grad_()
        ends = torch.randint(0, nodes, (2, nodes)).to(device)
        layers = {
            "HeteroLinear": (HeteroLinear(width, width, types, is_sorted=True), (x, kind)),
            "RGCNConv, sums": (RGCNConv(width, width, types, aggr="add"), (x, ends, kind)),
        }
        for title, (layer, given) in layers.items():
            layer = layer.to(device)
            for backward in (False, True):
                case = f"{title}, {types} types, {nodes} rows of {width}"
                yield _compared(
                    case + ", with gradients" * backward, _graph(layer, given, backward)
                )


def _graph(layer: Any, given: tuple[Any, ...], backward: bool) -> dict[str, Call]:
    from tilewright.doors import pyg

    device = str(given[0].device)

    def closed() -> None:
        pyg.install()
        pyg.uninstall()
        run()

    def run() -> None:
        with torch.set_grad_enabled(backward):
            out = layer(*given)
        if backward:
            out.backward(out.detach())
        _wait(device)

    def opened() -> None:
        pyg.install()
        run()
        pyg.uninstall()

    return {"alone": closed, "tilewright": opened}


def _error_of_experts(given: tuple[Any, ...]) -> float:
    """Of ours against the library's eager experts, as a part of the largest element."""
    module, config, *operands = given
    found = []
    for name in ("eager", "tilewright"):
        config._experts_implementation = name
        with torch.no_grad():
            found.append(module(*operands).double())
    return float((found[1] - found[0]).abs().max() / found[0].abs().max())


def _error_of_grouped(x: Any, w: Any, ends: Any) -> float:
    """Of the open door in the last rows, against float64, as a part of the largest element."""
    ours.install()
    found = functional.grouped_mm(x, w, offs=ends)
    ours.uninstall()
    bounds = [0, *ends.tolist()][-_CALLS:]
    first = len(ends) + 1 - len(bounds)
    parts = [x[i:j].double() @ w[first + g].double() for g, (i, j) in enumerate(pairwise(bounds))]
    right = torch.cat(parts)
    return float((found[bounds[0] :].double() - right).abs().max() / right.abs().max())


def _compared(title: str, ways: dict[str, Call], calls: int = 1) -> Row:
    """Seconds of a call of every way; of one that raises its words."""
    refused, taken = {}, {}
    begun = time.perf_counter()
    for name, call in ways.items():
        try:
            call()
        except (RuntimeError, NotImplementedError) as error:
            refused[name] = str(error).splitlines()[0][:100]
        else:
            taken[name] = call
    rounds = 5 if time.perf_counter() - begun < _LONG else 3
    seconds = interleaved(taken, block_seconds=0.02, rounds=rounds, rest=0.01)
    if seconds.get("tilewright", 0) * _SLOWER > seconds.get("alone", 1):
        again = _AGAIN if rounds > 3 else rounds + 2
        seconds = interleaved(taken, block_seconds=0.01, rounds=again, rest=0.01)
    seconds = {name: value / calls for name, value in seconds.items()}
    return {"case": title, "seconds": seconds, "refused": refused}


def _wait(device: str) -> None:
    if device != "cpu":
        torch.cuda.synchronize()


_PARTS = {
    "rows": _grouped_rows,
    "gradients": _followed_rows,
    "layers": _layer_rows,
    "experts": _experts_rows,
    "graphs": _graph_rows,
}


if __name__ == "__main__":
    main()
