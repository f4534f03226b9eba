"""Cards of networks: what they are, learned from, reach and do not; and the list of photographs."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import fmean
from typing import Any

_KINDS = {
    "bicubic": "bicubic (-0.75)",
    "float32": "this net, float32",
    "float16": "float16 (sums in float32)",
    "int8": "int8 (`{name}-int8`)",
    "int8, not learned": "int8 without learning it",
}

_TAUGHT = (
    "; of the pictures in the steps before {:.0%} was what an earlier `superres-l` made of their"
    " halves, the mean of all eight ways to mirror and turn them"
)
_TO_ROUND = (
    "then {steps:,} steps of {batch} crops, rounded in each,\nin {minutes:.1f} minutes of a core"
)
_THEN = ", in the last {:,} steps the logarithm of each crop's mean squared difference"


def card(facts: dict[str, Any]) -> str:
    """The card of a size, by what `export` measured."""
    name, figures = f"superres-{facts['size']}", facts["figures"]
    base, how = figures["float32"]["psnr"], facts["learned"]
    rows = [
        f"| {_KINDS[kind].format(name=name)} | {found['psnr']:.2f} | {found['ssim']:.4f} |"
        f" {found['psnr'] - figures['bicubic']['psnr']:.2f} |"
        for kind, found in figures.items()
    ]
    crops = "; ".join(
        f"{name} {one:.3f} and {other:.3f}" for name, (one, other) in facts["crops"].items()
    )
    return Path(__file__).with_name("card.md").read_text(encoding="utf-8").format(
        name=name, size=facts["size"], layers=facts["layers"], parameters=facts["parameters"],
        products=facts["products"], count=facts["test"], crops=crops, closer=facts["closer"],
        learned=facts["photographs"] - facts["closer"], rows="\n".join(rows),
        half=base - figures["float16"]["psnr"], whole=base - figures["int8"]["psnr"],
        calibrated=base - figures["int8, not learned"]["psnr"], damage=facts["damage"],
        crop=how["crop"], batch=how["batch"], rate=how["rate"], runs=how["runs"],
        steps=how["steps"], minutes=how["seconds"] / 60,
        then=_THEN.format(facts["last"]) if facts["last"] else "",
        taught=_TAUGHT.format(how["taught"]) if how["taught"] else "",
        whole_steps=facts["rounded"]["steps"], whole_minutes=facts["rounded"]["seconds"] / 60,
    )  # fmt: skip


def photographs(page: str) -> str:
    """The photographs of train/ out of the page that lies beside them: name, source, licence."""
    lines = [
        "# Photographs that the networks learned from",
        "",
        "Made smaller and cropped (closer crops of some of them too), turned to luma, halved.",
        "CC0: creativecommons.org/publicdomain/zero/1.0. PD: public domain.",
        "CC BY 2.0: creativecommons.org/licenses/by/2.0. CC BY 4.0: the same with by/4.0.",
    ]
    source = ""
    for line in page.splitlines():
        if line.startswith("## "):
            source = line[3:]
        elif found := re.match(r"\| `train/([\w-]+)\.\w+` \|([^|]*)\|([^|]*)\|([^|]*)\|", line):
            if found[1].endswith("-b"):
                continue
            if source:
                lines += ["", f"## {source}", "", "| photograph | path | licence, credit |"]
                lines.append("|---|---|---|")
                source = ""
            lines.append(f"| {found[1]} |{found[3]}|{found[4]}|")
    return "\n".join(lines) + "\n"


def restoring(facts: dict[str, Any]) -> str:
    """The card of a net that takes damage away, by what `bench.restore` measured."""
    kind, name, how = facts["kind"], f"{facts['kind']}-{facts['size']}", facts["learned"]
    page = Path(__file__).with_name(f"card_{kind}.md").read_text(encoding="utf-8")
    figures = facts["figures"]
    parts = ("noise",) if kind == "denoise" else ("jpeg", "films")
    noisy = kind == "denoise"
    colour = [case for case in figures["colour"] if case["name"].startswith("σ") == noisy]
    size, speed = facts["size"], figures["speed"][name]
    return page.format(
        name=name, size=size, layers=facts["layers"], parameters=facts["parameters"],
        rows="\n".join(row for part in parts for row in _gains(figures[part], size)),
        chroma="\n".join(_gains(colour, size)), crop=how["crop"], batch=how["batch"],
        rate=how["rate"], steps=how["steps"], minutes=how["seconds"] / 60,
        speed=speed["float32"], quick=speed.get("int8", 0.0),
        still=0.0 if noisy else _lost(figures, "jpeg", size),
        filmed=0.0 if noisy else _lost(figures, "films", size),
        whole=_TO_ROUND.format(**facts["rounded"]) if facts.get("rounded") else "nothing learned",
        processor=figures["environment"]["device"]["name"],
    )  # fmt: skip


def _gains(cases: list[dict[str, Any]], size: str) -> list[str]:
    """A row a case: what it was, and with the net in float32."""
    found = []
    for case in cases:
        before, after = (fmean(case["psnr"][way]) for way in ("damaged", size))
        found.append(f"| {case['name']} | {before:.2f} | {after:.2f} | {after - before:+.2f} |")
    return found


def _lost(figures: dict[str, Any], part: str, size: str) -> float:
    """What int8 loses, over the pictures that it was measured on."""
    every, ints = figures["other_types_every"], f"{size}-int8"
    found = [
        fmean(case["psnr"][size][::every]) - fmean(case["psnr"][ints])
        for case in figures[part]
        if ints in case["psnr"]
    ]
    return fmean(found)
