"""Turns bench/results/*.json into the tables of README.md and docs/, between their markers.

    <!-- table: dense-opencl-... -->  ...  <!-- end -->

Nobody types a number into a document: `make tables` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench import arm_table, distributed_table, doors_table, moe_table, tables_nets
from bench.environment import RESULTS, ROOT
from bench.fp8_table import products
from bench.narrow_table import lines as narrow
from bench.processors_table import lines as by_processor
from bench.restore_table import restored

_LINES = {**tables_nets.TABLES, **doors_table.TABLES, "fp8": products, "processors": by_processor}
_LINES |= {"distributed": distributed_table.tables, "arm": arm_table.modelled}
_LINES |= {"narrow": narrow, "restore": restored, "layers": moe_table.measured_layers}
_PARTS = ("short", "training", "layers", "processors")  # tables of a part of a file
_MARK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def main() -> None:
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        text = page.read_text()
        if (anew := filled(text)) != text:
            page.write_text(anew)
            print(f"updated: {page.relative_to(ROOT)}")


def filled(text: str) -> str:
    """A page with its tables made anew."""
    return _MARK.sub(_fill, text)


def _fill(match: re.Match[str]) -> str:
    name = match.group(2)
    kind, _, rest = name.partition("-")
    path = RESULTS / f"{rest if kind in _PARTS else name}.json"
    if not path.exists():
        raise SystemExit(f"table={name!r}: there is no {path.relative_to(ROOT)}")
    document = json.loads(path.read_text())
    document = document[kind] if kind == "layers" else document  # of a run of their own
    if kind in _LINES:
        lines = [*_LINES[kind](document), "", _source(document, path)]
        return "\n".join([match.group(1) + lines[0], *lines[1:], match.group(3)])
    return f"{match.group(1)}{_TABLES[kind](document, path)}\n{match.group(3)}"


def _dense(document: dict[str, Any], path: Path) -> str:
    lines = [
        "| n = m = k | NumPy | `matmul` | ratio | runs on |",
        "|---:|---:|---:|---:|---|",
    ]
    for row in document["sizes"]:
        seconds, rate = row["seconds"], row["gflops"]
        if row["size"] < 384:
            ours = f"{seconds['numpy'] * 1e6:.1f} µs | {seconds['matmul'] * 1e6:.1f} µs"
            note = f"{row['added_microseconds']:+.1f} µs"
        else:
            ours = f"{rate['numpy']:.0f} GFLOP/s | {rate['matmul']:.0f} GFLOP/s"
            note = f"{row['ratio']:.2f}×"
        lines.append(f"| {row['size']} | {ours} | {note} | {row['chosen']} |")
    return "\n".join([*lines, "", _source(document, path)])


def _ladder(document: dict[str, Any], path: Path) -> str:
    """The largest size of a ladder, fastest first, and cuBLAS of the same run."""
    last = document["ladders"][-1]
    lines = [
        f"| {last['size']}³, {document['dtype']} | TFLOP/s | × serial | largest error |",
        "|---|---:|---:|---:|",
    ]
    cublas = document.get("cublas_tflops", {}).get(str(last["size"]))
    if cublas and cublas[0]:
        lines.append(f"| cuBLAS (fp32, before and after) | {cublas[0]:.1f}, {cublas[1]:.1f} | | |")
    for rung in sorted(last["rungs"], key=lambda rung: -rung["gflops"]):
        name = f"`{rung['name']}`" if rung["kind"] == "kernel" else rung["name"]
        over = rung["speedup_over_serial"]
        lines.append(f"| {name} | {rung['gflops'] / 1e3:.2f} | {over:,.0f} | {rung['error']:.1e} |")
    return "\n".join([*lines, "", _source(document, path)])


def _grouped(document: dict[str, Any], path: Path) -> str:
    """Batches beside MKL's batch call and loops, or every order on a GPU."""
    if "milliseconds" in document["batches"][0]:
        return _grouped_gpu(document, path)
    lines = [
        "| m, n, k drawn from | bound plan | MKL batch | NumPy loop, `out=` | ÷ MKL | ÷ NumPy |"
        " `grouped_matmul` | NumPy loop | ÷ NumPy |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in document["batches"]:
        times, flops = row["seconds"], row["flops"]
        rate = {name: flops / value / 1e9 for name, value in times.items()}
        bound, call = rate["bound plan"], rate["grouped_matmul"]
        cells = [f"{bound:.0f}"]
        for peer in ("mkl batch", "numpy loop, out="):
            cells.append(f"{rate[peer]:.0f}" if peer in rate else "not measured")
        for peer in ("mkl batch", "numpy loop, out="):
            cells.append(f"{bound / rate[peer]:.2f}×" if peer in rate else "-")
        loop = rate["numpy loop"]
        cells += [f"{call:.0f}", f"{loop:.0f}", f"{call / loop:.2f}×"]
        drawn = row.get("drawn") or f"{row['count']} of {row['low']}..{row['high']}"
        lines.append(f"| {drawn} | {' | '.join(cells)} |")
    planning = "; ".join(
        f"{row['count']:,} problems {row['fresh_ms']:.2f} ms, found again {row['cached_ms']:.3f} ms"
        for row in document["planning"]
    )
    means = (
        "GFLOP/s, fp32; a bound plan, MKL and the first loop write to results that are there, the"
    )
    means += f" other two make theirs anew. Planning: {planning}."
    return "\n".join([*lines, "", means, _source(document, path)])


def _grouped_gpu(document: dict[str, Any], path: Path) -> str:
    orders = list(document["batches"][0]["milliseconds"])
    lines = [f"| ms | {' | '.join(orders)} |", "|---|" + "---:|" * len(orders)]
    for row in document["batches"]:
        cells = " | ".join(f"{row['milliseconds'][order]:.3f}" for order in orders)
        lines.append(f"| {row['count']} of {row['low']}..{row['high']} | {cells} |")
    return "\n".join([*lines, "", _source(document, path)])


def _onebit(document: dict[str, Any], path: Path) -> str:
    """Products of bits beside each type's library, and how many times the best of those."""
    if "ways" in document["shapes"][0]:
        return _onebit_gpu(document, path)
    peers = ("fp32", "fp16", "bf16", "int8")
    lines = [
        "| m × n × k | int32 out | bits out | A packed too | "
        + " | ".join(peers)
        + " | ÷ best of these | A packed too |",
        "|---|" + "---:|" * (len(peers) + 5),
    ]
    for row in document["shapes"]:
        rates, gains = row["gops"], row["gain_over_best_peer"]
        ways = ("one-bit int32", "one-bit bits", "packed and multiplied", *peers)
        shown = [f"{rates[way]:,.0f}" if way in rates else "-" for way in ways]
        shown += [f"{gains[way]:.2f}×" for way in (ways[0], ways[2])]
        lines.append(f"| {row['m']} × {row['n']} × {row['k']} | {' | '.join(shown)} |")
    return "\n".join([*lines, "", "GOP/s.", _source(document, path)])


def _onebit_gpu(document: dict[str, Any], path: Path) -> str:
    """Microseconds of a GPU's one-bit kernels beside cuBLAS, and of packing A."""
    shown = ("wgmma int32", "wgmma bits", "mma int32", "popcount int32", "pack")
    peers = ("cublas bfloat16", "cublas int8", "cublas float32")
    lines = [
        f"| µs (TOP/s) on m × n × k | {' | '.join((*shown, *peers))} | A packed too, ÷ best peer |",
        "|---|" + "---:|" * (len(shown) + len(peers) + 1),
    ]
    for row in document["shapes"]:
        ways = row["ways"]
        cells = [_microseconds(name, ways.get(name)) for name in (*shown, *peers)]
        best = min(ways[peer]["kernel_us"] for peer in peers if peer in ways)
        gain = best / (ways[shown[0]]["kernel_us"] + ways["pack"]["kernel_us"])
        sizes = f"{row['m']} × {row['n']} × {row['k']}"
        lines.append(f"| {sizes} | {' | '.join(cells)} | {gain:.2f}× |")
    return "\n".join([*lines, "", _source(document, path)])


def _microseconds(name: str, way: dict[str, Any] | None) -> str:
    if way is None:
        return "-"
    rate = "" if name == "pack" else f" ({way['tops']:,.0f})"
    return f"{way['kernel_us']:,.1f}{rate}"


def _gpu(document: dict[str, Any], path: Path) -> str:
    """Every case of bench.gpu: ours, what is asked, and each other way, in milliseconds."""
    peers = ("cuBLAS grouped", "padded bmm", "loop of mm", "graph of mm", "_grouped_mm", "torch.mm")
    lines = [
        f"| ms | ours | engine | must | aim | {' | '.join(peers)} | host µs |",
        "|---|---:|---|---:|---:|" + "---:|" * (len(peers) + 1),
    ]
    for row in document["cases"]:
        ways, ours = row["ways"], row["ways"].get("tilewright")
        asked = [row["must_ms"], row["aim_ms"]]
        found = [ways[peer]["ms"] if peer in ways else None for peer in peers]
        cells = ["-" if ms is None else f"{ms:.3f}" for ms in (*asked, *found)]
        own = ["-", "-"] if ours is None else [f"**{ours['ms']:.3f}**", row["engine"]]
        host = "-" if ours is None else f"{ours['host_us']:.1f}"
        lines.append(f"| {_label(row)} | {' | '.join([*own, *cells, host])} |")
    return "\n".join([*lines, "", _source(document, path)])


def _label(row: dict[str, Any]) -> str:
    """A case of bench.gpu by its dtype, its precision where it is not the dtype's own, its name."""
    kind = row["dtype"] if row["precision"] == "ieee" else f"{row['dtype']} {row['precision']}"
    return f"{kind}, {row['case']}"


def _host_time(document: dict[str, Any], path: Path) -> str:
    """What a call costs the host, beside torch's own of the same run."""
    lines = [
        "| µs of host time a call | ours | beside it | | at most |",
        "|---|---:|---:|---|---:|",
    ]
    for row in document["rows"]:
        times = f"{row['ours_us']:,.1f} | {row['torch_us']:,.1f} | {row['torch_is']}"
        lines.append(f"| {row['name']} | {times} | {row['at_most_us']:,.1f} |")
    return "\n".join([*lines, "", _source(document, path)])


def _conv(document: dict[str, Any], path: Path) -> str:
    """Chains of convolutions: ours beside the peers, and both errors."""
    if "seconds" in document["cases"][0]:
        return _whole_nets(document, path)
    peers = ("tilewright int8", "cudnn graph", "torch.compile")
    lines = [
        "| ms | ours | must | aim | ours, int8 | cudnn graph | torch.compile | error | torch's |",
        "|---|---:|" + "---:|" * (len(peers) + 4),
    ]
    for row in document["cases"]:
        wanted = " | ".join(str(row[name] or "-") for name in ("must_ms", "aim_ms"))
        beside = " | ".join(
            f"{row['ms'][name]:.3f}" if name in row["ms"] else "-" for name in peers
        )
        errors = f"{row['error']:.1e} | {row['torch_error']:.1e}"
        ours = f"**{row['ms']['tilewright']:.3f}**"
        lines.append(f"| {row['case']} | {ours} | {wanted} | {beside} | {errors} |")
    return "\n".join([*lines, "", _source(document, path)])


def _whole_nets(document: dict[str, Any], path: Path) -> str:
    """Networks on the processor: every way's time, and ours beside the faster peer."""
    ways = list(document["cases"][0]["seconds"])
    heads = f"| ms | {' | '.join(ways)} | × the faster peer |"
    lines = [heads, "|---|" + "---:|" * (len(ways) + 1)]
    for row in document["cases"]:
        cells = " | ".join(f"{row['seconds'][way] * 1e3:.2f}" for way in ways)
        times = row["times_the_faster_peer"]
        ours = next(iter(times.values())) if isinstance(times, dict) else times
        lines.append(f"| {row['name']} | {cells} | {ours:.2f} |")
    return "\n".join([*lines, "", _source(document, path)])


def _short(document: dict[str, Any], path: Path) -> str:
    """What of bench.gpu has a target, but for skewed batches: beside what users have now."""
    peers = ("cuBLAS grouped", "_grouped_mm", "loop of mm", "torch.mm")
    lines = [
        f"| ms | ours | {' | '.join(peers)} | best other way |",
        "|---|---:|" + "---:|" * (len(peers) + 1),
    ]
    for row in document["cases"]:
        ways = dict(row["ways"])
        ours = ways.pop("tilewright", None)
        aimed = row["must_ms"] is not None or "dense" in row["case"]
        if ours is None or not aimed or row["case"].startswith("skewed"):
            continue
        best = min(ways, key=lambda name: ways[name]["ms"])
        cells = [f"{ways[peer]['ms']:.3f}" if peer in ways else "-" for peer in peers]
        gain = ways[best]["ms"] / ours["ms"]
        lines.append(
            f"| {_label(row)} | **{ours['ms']:.3f}** | {' | '.join(cells)} | {best}, {gain:.2f}× |"
        )
    return "\n".join([*lines, "", _source(document, path)])


def _training(document: dict[str, Any], path: Path) -> str:
    """The training steps of bench.gpu: forward and every gradient, in milliseconds."""
    peers = ("_grouped_mm", "without bias", "loop of addmm")
    lines = [
        f"| ms, forward and gradients | ours | {' | '.join(peers)} | host µs |",
        "|---|---:|" + "---:|" * (len(peers) + 1),
    ]
    for row in document.get("training", []):
        ways = row["ways"]
        cells = [f"{ways[peer]['ms']:.3f}" if peer in ways else "-" for peer in peers]
        ours = ways["tilewright"]
        lines.append(
            f"| {row['dtype']}, {row['case'].partition(', ')[2]} | **{ours['ms']:.3f}** |"
            f" {' | '.join(cells)} | {ours['host_us']:.1f} |"
        )
    return "\n".join([*lines, "", _source(document, path)])


def _source(document: dict[str, Any], path: Path) -> str:
    facts = document["environment"]
    device = facts["device"]
    driver = device["driver"]
    if not driver.startswith(device["platform"]):
        driver = f"{device['platform']} {driver}"
    if "NumPy" not in driver:
        driver += f", NumPy {facts['versions']['numpy']}"
    date = facts["date"][:16].replace("T", " ")
    commit, *dirty = facts["commit"].split("-")
    sets = facts.get("processor") if device["kind"] == "cpu" else None
    has = f" ({' '.join(sets)})" if sets else ""
    return (
        f"{device['name']}{has}, {device['compute_units']} compute units, {driver};"
        f" {date} UTC, commit"
        f" {'-'.join([commit[:12], *dirty])}; from `{path.relative_to(ROOT)}`."
    )


def _tune(document: dict[str, Any], path: Path) -> str:
    """Every kernel's tuned configurations over its defaults, and the largest size it was run at."""
    lines = [
        "| kernel | sizes | tuned ÷ untuned, geometric mean | worst size | largest size, GFLOP/s |",
        "|---|---|---:|---:|---:|",
    ]
    for row in sorted(document["kernels"], key=lambda row: -row["faster"]):
        first, last = row["sizes"][0], row["sizes"][-1]
        worst = min(size["faster"] for size in row["sizes"])
        rate = last["gflops"]
        lines.append(
            f"| `{row['kernel']}` | {first['size']} to {last['size']} | {row['faster']:.2f}× |"
            f" {worst:.2f}× | {rate['default']:.0f} → {rate['tuned']:.0f} |"
        )
    worst = document["slowest_ratio"]
    mean = f"All kernels: {document['faster']:.2f}×; no size below {worst:.2f}×."
    return "\n".join([*lines, "", mean, _source(document, path)])


def _regret(document: dict[str, Any], path: Path) -> str:
    """How often the pick was within 5 % of the best choice, by where the operands lie."""
    lines = [
        f"| {len(document['shapes'])} held-out shapes | within 5 % | median | mean | worst |",
        "|---|---:|---:|---:|---:|",
    ]
    for column, words in (("host", "host arrays, NumPy a choice"), ("device", "device arrays")):
        row = document[column]
        lines.append(
            f"| {words} | {row['within']:.0%} | {row['median']:.3f}× | {row['mean']:.3f}× |"
            f" {row['worst']:.2f}× |"
        )
    return "\n".join([*lines, "", _source(document, path)])


def _birealnet(document: dict[str, Any], path: Path) -> str:
    """A run, the file, and every block of layers, beside onnxruntime's of the same graph."""
    ours, theirs = document["seconds"]["onebit"], document["seconds"]["onnxruntime"]
    sizes = document["bytes"]
    ours_by_block = _by_block((one["layers"][0], one) for one in document["onebit_passes"])
    nodes = document["onnxruntime_nodes"]
    theirs_by_block = _by_block(_owned(nodes))
    lines = [
        "| | one-bit | onnxruntime fp32 | |",
        "|---|---:|---:|---:|",
        f"| a run | **{ours * 1e3:.2f} ms** | {theirs * 1e3:.2f} ms | {theirs / ours:.1f}× |",
        f"| file | {sizes['onebit'] / 2**20:.2f} MiB | {sizes['onnx'] / 2**20:.2f} MiB |"
        f" {sizes['onnx'] / sizes['onebit']:.1f}× |",
    ]
    for block, spent in ours_by_block.items():
        other = theirs_by_block[block]
        lines.append(f"| {block} | {spent:.0f} µs | {other:.0f} µs | {other / spent:.1f}× |")
    threads = f"{document['threads']} threads; medians of the parts, each timed in a whole run."
    return "\n".join([*lines, "", threads, _source(document, path)])


def _owned(nodes: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every node with the layer it serves: a reordering belongs to the next named one."""
    waiting: list[dict[str, Any]] = []
    for node in nodes:
        waiting.append(node)
        if not node["op"].startswith("Reorder"):
            yield from ((node["node"], one) for one in waiting)
            waiting = []


def _by_block(parts: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, float]:
    """Microseconds by the block that a layer's name begins with: stem, stage1.0 ... and the end."""
    spent: dict[str, float] = {}
    for name, part in parts:
        found = re.match(r"stem|stage\d\.\d", name)
        block = found.group() if found else "mean, dense"
        spent[block] = spent.get(block, 0.0) + part["microseconds"]
    return spent


def _peak(document: dict[str, Any], path: Path) -> str:
    """The best rate of each type and way, bandwidths by working set, and times."""
    found = document["ceilings"]
    best: dict[tuple[str, str], float] = {}
    for row in found["rates"]:
        key = (row["dtype"], row["way"])
        best[key] = max(best.get(key, 0.0), row["value"] / 1e9)
    ways = ("a*b+c", "mad", "fma")
    lines = [
        "| GOP/s | `a*b+c` | `mad` | `fma` | other |",
        "|---|---:|---:|---:|---:|",
    ]
    for dtype in dict.fromkeys(row["dtype"] for row in found["rates"]):
        cells = [f"{best[dtype, way]:.3g}" if (dtype, way) in best else "" for way in ways]
        other = [f"`{way}` {best[kind, way]:.3g}" for kind, way in best if kind == dtype]
        other = [cell for cell in other if cell.split("`")[1] not in ways]
        lines.append(f"| {dtype} | {' | '.join([*cells, ', '.join(other)])} |")
    read = [row for row in found["bandwidths"] if row["path"] == "read"]
    lines += [
        "",
        f"| working set | {' | '.join(_size(row['size']) for row in read)} |",
        "|---|" + "---:|" * len(read),
        f"| read, GB/s | {' | '.join(_rate(row) for row in read)} |",
        "",
    ]
    rest = [
        f"{row['path']} {_rate(row)} ({_size(row['size'])})"
        for row in found["bandwidths"]
        if row["path"] != "read"
    ]
    times = [f"{row['what']} {row['value'] * 1e6:.1f}" for row in found["latencies"]]
    lines += [f"GB/s: {'; '.join(rest)}. µs: {'; '.join(times)}."]
    if found["busy"]:
        lines.append(f"Named as busy: {'; '.join(found['busy'])}.")
    if found["skipped"]:
        lines.append(f"Not measured: {'; '.join(what for what, _ in found['skipped'])}.")
    return "\n".join([*lines, _source(document, path)])


def _rate(row: dict[str, Any]) -> str:
    return f"{row['value'] / 1e9:.3g}"


def _size(count: int) -> str:
    """Bytes, in the largest unit of which there is a whole one."""
    power = min((count.bit_length() - 1) // 10, 3)
    return f"{count >> 10 * power} {('bytes', 'KiB', 'MiB', 'GiB')[power]}"


def _low_light(document: dict[str, Any], path: Path) -> str:
    """Darkened photographs by noise, clips' flicker, and a picture's time."""
    lines = [
        "| noise | by the mean | `normalize` | `histeq` | one power curve for all |"
        " best for each picture | and best gain | `--low-light` | two axes | told the curve |"
        " over the best blind way | over one for all | over the best | told, over the best |",
        "|---:" * 14 + "|",
    ]
    rows = document["photographs"]
    blind = ("by mean", "normalize", "histeq")
    for noise in sorted({row["noise"] for row in rows}):
        chosen = [row for row in rows if row["noise"] == noise]
        ways = (*blind, "one power", "power", "power and gain", "3d", "2d", "told")
        means = {way: sum(row[way] for row in chosen) / len(chosen) for way in ways}
        gains = [means["3d"] - max(means[way] for way in blind)]
        over = (("3d", "one power"), ("3d", "power"), ("told", "power"))
        gains += [means[way] - means[other] for way, other in over]
        cells = [f"{means[way]:.2f}" for way in ways] + [f"{gain:+.2f}" for gain in gains]
        lines.append(f"| {noise:g} | {' | '.join(cells)} |")
    said = [
        f"dB, means of {len(chosen)} photographs; noise: deviation, of 255.",
        "Successive pictures' difference of mean luma, as a share of it, afterwards over before: "
        + ", ".join(f"{row['name']} {row['ratio']:.2f}" for row in document["clips"])
        + ".",
    ]
    times = document["milliseconds"]
    said.append(
        f"A picture of 640 × 480 on two cores: {times['table']:.2f} ms,"
        f" {times['table, luma alone']:.2f} ms without chroma."
    )
    on = f"Photographs: {_source(document['photographs on'], path)}"
    return "\n".join([*lines, "", " ".join(said), on, "", f"Others: {_source(document, path)}"])


def _film(document: dict[str, Any], path: Path) -> str:
    """A film made twice as large, ways beside each other, and what a dry run foretold."""
    lines = ["| | pictures a second |", "|---|---:|"]
    lines += [f"| {way} | {rate:.1f} |" for way, rate in document["pictures_a_second"].items()]
    lines += ["", f"{document['times_the_faster_peer']:.2f} times the faster of the others.", ""]
    lines += ["| film | predicted | came |", "|---|---:|---:|"]
    for case in document["forecasts"]:
        told, came = (
            f"{found['seconds']:.1f} s, {found['bytes'] / 1e6:.2f} MB"
            for found in (case["predicted"], case["came"])
        )
        lines.append(f"| {case['film']}, {case['pictures']} pictures | {told} | {came} |")
    return "\n".join([*lines, "", _source(document, path)])


_TABLES: dict[str, Callable[[dict[str, Any], Path], str]] = {
    "host_time": _host_time,
    "dense": _dense,
    "ladder": _ladder,
    "grouped": _grouped,
    "onebit": _onebit,
    "gpu": _gpu,
    "conv": _conv,
    "nets": _whole_nets,
    "birealnet": _birealnet,
    "short": _short,
    "training": _training,
    "peak": _peak,
    "tune": _tune,
    "regret": _regret,
    "low": _low_light,
    "film": _film,
}


if __name__ == "__main__":
    main()
