"""The table of docs/video.md that says how well people are told from what is behind."""

from __future__ import annotations

from typing import Any


def matted(document: dict[str, Any]) -> list[str]:
    """Lines of it."""
    rows = {
        "the man, `--plate`": document["plate"]["man"],
        "drawn people, `--plate`": document["plate"]["drawn"],
        "the man before green, `--key`": document["key"],
    }
    rows |= {f"the man before green, ffmpeg `{n}`": one for n, one in document["keys"].values()}
    lines = [
        "| mean absolute error of opacity | all | worst picture | most left open of a person |",
        "|---|---:|---:|---:|",
    ]
    for name, one in rows.items():
        opened = f"{100 * one['open']:.2f} %"
        lines.append(f"| {name} | {one['error']:.4f} | {one['worst']:.4f} | {opened} |")
    hidden = [
        f"{name}: {100 * one['open']:.2f} % open in the worst picture, grown in {one['grown']} of"
        f" {one['pictures']} pictures"
        for name, one in document["hidden"].items()
    ]
    rates = [f"{name} {one:.1f}" for name, one in document.get("rate", {}).items()]
    lines += ["", f"`--blur person`, {'; '.join(hidden)}."]
    lines += [f"640 × 480, two cores, pictures a second: {', '.join(rates)}."] if rates else []
    many = document["photographs"]
    return [*lines, f"{many} photographs, {document['pictures']} pictures each."]
