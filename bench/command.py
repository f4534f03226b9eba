"""What the benchmark commands share: the options, and where a result is written."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.environment import RESULTS, environment
from bench.timing import load_average
from tilewright import Device, settings
from tilewright.inputs.devices import resolve


def measure(
    kind: str, description: str | None, figures: Callable[[Device], dict[str, Any]]
) -> None:
    """Run `figures` on the device asked for; write bench/results/KIND-DEVICE.json.

    Where code is held to another processor's instructions (`settings.held`), the name ends in that.

    The device goes into TILEWRIGHT_DEVICE, so that calls without `device=` mean it too.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--device", default=None)
    parser.add_argument("--output", type=Path, default=None)
    options = parser.parse_args()
    if options.device:
        os.environ["TILEWRIGHT_DEVICE"] = options.device
    device = resolve(options.device)
    document = {
        "environment": environment(device),
        "load_before": load_average(),
        **figures(device),
    }
    name = "-".join((device.backend, device.name, *[*settings.held().values()][:1]))
    slug = re.sub(r"\W+", "-", name.lower()).strip("-")
    output = options.output or RESULTS / f"{kind}-{slug}.json"
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {output}")
