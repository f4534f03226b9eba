"""Tables and the picture of more than one device (bench/distributed.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.distributed_simulation import SKEW
from tilewright.report import plots
from tilewright.wording import time_text

_SHOWN = ("tilewright", "plain", "alone", "one device")


def tables(document: dict[str, Any]) -> list[str]:
    """Layers, links, batches and simulated ranks, one table behind another."""
    lines = _layers(document)
    if "batches" in document:
        lines += ["", *_batches(document["batches"])]
    return [*lines, "", *_ranks(document["simulation"])]


def _layers(document: dict[str, Any]) -> list[str]:
    lines = [
        "| layer, ms forward / with gradients | ours | plain exchange, loop of mm | all experts on"
        " each rank, nothing sent | one device, all tokens | rows sent, of chosen experts |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for group in document["groups"]:
        for row in group["layers"]:
            case, seconds = row["case"], row["seconds"]
            cells = [
                f"{seconds[f'{name} forward'] * 1e3:.2f} / {seconds[f'{name} step'] * 1e3:.2f}"
                for name in _SHOWN
            ]
            sent = row["rows"]
            share = f"{sent['once a rank'] / sent['once a slot']:.0%}"
            name = (
                f"{group['ranks']} ranks, {case['tokens']} tokens each, d {case['d']},"
                f" n {case['n']}, {case['top']} of {case['experts']}"
            )
            lines.append(f"| {name} | **{cells[0]}** | {' | '.join(cells[1:])} | {share} |")
    return lines


def _batches(found: dict[str, Any]) -> list[str]:
    lines = [
        "| batch, float32 | here, all cores | a worker a core, same cores | ratio | machines from"
        " which it pays |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in found["batches"]:
        here, there = row["seconds"]["here"], row["seconds"]["workers"]
        way = row["bytes"] / 3 * (2 / found["link"]["there"] + 1 / found["link"]["back"])
        # Others begin to multiply as soon as chunks come; all of them come through one scheduler.
        needed = "never" if way >= here else f"{here / (here - way):.1f}"
        lines.append(
            f"| {row['count']} of {row['size']}³ | {time_text(here)} | {time_text(there)}"
            f" | {here / there:.2f}× | {needed} |"
        )
    rate = [f"{found['link'][name] / 1e9:.2f}" for name in ("there", "back")]
    task = time_text(found["task"])
    last = found["batches"][-1]
    flops = 2 * last["size"] ** 3 * last["count"] / last["seconds"]["here"]
    two = (8 / found["link"]["there"] + 4 / found["link"]["back"]) * flops
    return [
        *lines,
        "",
        f"A task takes {task}, and {rate[0]} GB/s go there, {rate[1]} come back: two machines like"
        f" this one are earlier than one from about m = n = k = {round(two, -2):,.0f} on, any"
        f" number of them from {round(two / 2, -2):,.0f} on.",
    ]


def _ranks(found: dict[str, Any]) -> list[str]:
    lines = [
        "| ranks | even routes, a further rank costs nothing | even routes, it costs as much as the"
        " first | the latter, a row sent for each chosen expert | skewed routes, neighbouring"
        " experts on a rank | skewed routes, placed by `split` |",
        "|---:|---:|---:|---:|---:|---:|",
    ]
    for ranks in sorted({row["ranks"] for row in found["rows"]}):
        even = _row(found, ranks, 0.0, "runs")
        skewed = [_row(found, ranks, SKEW, how)["call"] for how in ("runs", "split")]
        lines.append(
            f"| {ranks} | {even['call at best'] * 1e3:.2f} ms | {even['call'] * 1e3:.2f} ms"
            f" | {even['call once a slot'] * 1e3:.2f} ms | {skewed[0] * 1e3:.2f} ms"
            f" | {skewed[1] * 1e3:.2f} ms |"
        )
    link, products = found["link"], found["products"]
    layer = found["layer"]
    return [
        *lines,
        "",
        f"Simulated, forward: {layer['tokens']} tokens a rank, {layer['top']} of"
        f" {layer['experts']} experts. What was measured and put in: an exchange takes"
        f" {link['start'] * 1e6:.0f} µs, {link['each'] * 1e6:.0f} µs more for each further rank,"
        f" and its bytes at {link['rate'] / 1e9:.1f} GB/s; products take"
        f" {products['start'] * 1e6:.0f} µs, {products['expert'] * 1e6:.1f} µs more an expert and"
        f" {products['row'] * 1e9:.0f} ns more a row.",
    ]


def _row(found: dict[str, Any], ranks: int, skew: float, placement: str) -> dict[str, Any]:
    wanted = (ranks, skew, placement)
    return next(
        row for row in found["rows"] if (row["ranks"], row["skew"], row["placement"]) == wanted
    )


def draw(document: dict[str, Any], path: Path) -> None:
    """Milliseconds of a call over ranks: even routes, once a slot, skewed, and placed by split."""
    from matplotlib.figure import Figure

    found = document["simulation"]
    counts = sorted({row["ranks"] for row in found["rows"]})
    lines = {
        "ours: a token is sent once a rank": (0.0, "runs", "call"),
        "ours, if further ranks cost nothing": (0.0, "runs", "call at best"),
        "a row sent for each chosen expert": (0.0, "runs", "call once a slot"),
        "products of the busiest rank alone": (0.0, "runs", "products"),
        "skewed routes, neighbours on a rank": (SKEW, "runs", "call"),
        "skewed routes, placed by split": (SKEW, "split", "call"),
    }
    with plots.canvas(path, "plot") as save:
        figure = Figure(figsize=(9, 4.6), layout="constrained")
        axes = figure.add_subplot()
        for at, (label, (skew, how, part)) in enumerate(lines.items()):
            values = [_row(found, ranks, skew, how)[part] * 1e3 for ranks in counts]
            style: dict[str, Any] = {"color": plots.LINES[at], "marker": plots.MARKERS[at]}
            # Some lie upon each other: the later, the thinner.
            width = 5.0 - 0.7 * at
            axes.plot(counts, values, label=label, linewidth=width, markersize=5 + width, **style)
        axes.set_xscale("log", base=2)
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:g}")
        plots.frame(axes, "ranks, the same tokens on each", "ms a forward call", "y")
        axes.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
        name = document["environment"]["device"]["name"]
        axes.set_title(f"Simulated from times measured on {name}", loc="left", fontsize=11)
        save(figure)
