"""Every figure of this processor, one command after another, and then the tables that show them.

    python -m bench.processor [--only grouped,dense] [--tuned] [--device opencl:intel]

About fifteen minutes on two quiet cores, each step's seconds printed; `--tuned` tunes first, for 22
minutes more. Whatever else has the processor meanwhile is in the figures, so a step that began
beside other work is named at the end. MKL's batch is a peer where it is installed (`pip install
mkl`), as torch and onnxruntime are.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

QUIET = 0.05  # of the processor's time, which a machine without other work stays below
SETTLE = 5.0  # seconds between steps, in which that is looked at
INTEL, RESULTS = "opencl:intel", "bench/results"


def steps(device: str, *, tuned: bool) -> dict[str, list[str]]:
    """Arguments after `python -m`, by name, in the order in which they are run."""
    ahead = ["tilewright", "tune", "--budget", "600", "--device"]
    tuning = {
        "tune": [*ahead, device],
        "tuned": ["bench.tune", "--device", device],
        "tune-pocl": [*ahead, "opencl:pocl"],
        "tuned-pocl": [
            *("bench.tune", "--device", "opencl:pocl", "--output", f"{RESULTS}/tune-pocl.json"),
        ],
    }
    plain = {
        "dense": ["bench.dense", "--device", device],
        "grouped": ["bench.grouped", "--device", device],
        "onebit": ["bench.onebit", "--device", "host", "--output", f"{RESULTS}/onebit-cpu.json"],
        "birealnet": ["bench.birealnet"],
        "regret": ["bench.regret", "--device", device],
        "ladder": ["bench.ladder", "--name", "cpu", "--device", device, "--sizes", "1024"],
        "peak": ["bench.peak", "--name", "cpu", "--device", device, "--sizes", "1024"],
        "planner": ["bench.planner_example", "--plot", "docs/images/planner-fronts.png"],
    }
    return {**(tuning if tuned else {}), **plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="names of steps, with commas between")
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--device", default=INTEL)
    options = parser.parse_args()
    chosen = steps(options.device, tuned=options.tuned)
    wanted = options.only.split(",") if options.only else list(chosen)
    if unknown := set(wanted) - set(chosen):
        parser.error(f"--only={options.only!r}: no {sorted(unknown)}; accepted: {list(chosen)}")
    said = [_run(name, chosen[name]) for name in chosen if name in wanted]
    _run("tables", ["bench.tables"])
    problems = [one for one in said if one]
    print("\n".join(problems) or "every step ended well on a quiet machine")
    raise SystemExit(1 if problems else 0)


def _run(name: str, command: list[str]) -> str:
    """Run a step; what is to be said of it at the end."""
    others, begun = _busy(SETTLE), time.perf_counter()
    print(f"== {name}: python -m {' '.join(command)}", flush=True)
    status = subprocess.run([sys.executable, "-m", *command], check=False).returncode
    print(f"== {name}: {time.perf_counter() - begun:.0f} s", flush=True)
    if status:
        return f"{name}: ended with status {status}"
    return f"{name}: others had {others:.0%} of the processor before it" if others > QUIET else ""


def _busy(seconds: float) -> float:
    """The share of all cores' time that was used while we sleep so long; 0 where Linux is not."""
    before = _ticks()
    time.sleep(seconds)
    spent = [after - one for one, after in zip(before, _ticks(), strict=True)]
    return 1 - (spent[3] + spent[4]) / sum(spent) if sum(spent) else 0.0


def _ticks() -> list[int]:
    """Of user, nice, system, idle, waiting for a disk, and so on, since the machine started."""
    path = Path("/proc/stat")
    if not path.exists():
        return []
    return [int(word) for word in path.read_text().splitlines()[0].split()[1:]]


if __name__ == "__main__":
    main()
