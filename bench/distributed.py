"""More than one device: links, layers of experts, batches over Dask, and ranks not to be had here.

    python -m bench.distributed --name cpu                       gloo and Dask on this machine
    python -m bench.distributed --name h200 --gpus               NCCL on all GPUs of this host
    python -m bench.distributed --name cpu --again --plot FILE   of what was measured

Layers: ours, a plain exchange with a loop of torch.mm (bench/peers/experts_apart.py), each rank
with all experts and its own tokens (what it would take if nothing travelled), and one device with
the tokens of all. On one processor ranks share what one process has alone, so nothing can be won
there; what an exchange costs is what is measured. Batches: one process on all cores beside workers
on the same cores, and of one product the seconds on its way. From these the machines are counted
from which a batch is done earlier by others.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.distributed_batches import batches
from bench.distributed_ranks import Case, Plan, run
from bench.distributed_simulation import Layer, link_of, products_of, simulated
from bench.distributed_table import draw
from bench.environment import RESULTS, environment
from tilewright.inputs.devices import host, resolve

_CPU = Plan(
    device="cpu",
    dtype="float32",
    cases=(Case(64, 256, 128, 16, 2), Case(1024, 256, 128, 16, 2), Case(2048, 512, 512, 16, 2)),
    products=((1, 64), (8, 64), (8, 1024), (8, 4096), (16, 256), (16, 4096)),
    rounds=7,
    threads=host().compute_units,
)
_GPU = Plan(
    device="cuda",
    dtype="bfloat16",
    cases=(Case(512, 2048, 768, 128, 8), Case(16384, 2048, 768, 128, 8)),
    products=((1, 4096), (1, 65536), (16, 65536), (64, 1024), (64, 131072), (128, 16384)),
    rounds=9,
    threads=1,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--again", action="store_true", help="measure nothing")
    parser.add_argument("--plot", type=Path, default=None)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    path = options.output / f"distributed-{options.name}.json"
    document = json.loads(path.read_text()) if options.again else _measured(options.gpus)
    document["simulation"] = _simulated(document)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"written: {path}")
    if options.plot is not None:
        draw(document, options.plot)


def _measured(gpus: bool) -> dict[str, Any]:
    counts, plan, device = [2], _CPU, host()
    if gpus:
        import torch

        counts, plan, device = [torch.cuda.device_count()], _GPU, resolve("cuda:0")
    document: dict[str, Any] = {"environment": environment(device), "plan": asdict(plan)}
    document["groups"] = [_group(count, plan) for count in counts]
    if not gpus:
        document["batches"] = batches()
    return document


def _group(count: int, plan: Plan) -> dict[str, Any]:
    """What so many processes measured; one that fails ends all."""
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        try:
            processes.spawn(run, (count, plan, folder), nprocs=count)
        except Exception as error:
            print(f"{count} ranks: {error}", flush=True)
        found: dict[str, Any] = json.loads((Path(folder) / "found.json").read_text())
    print(json.dumps(found), flush=True)
    return found


def _simulated(document: dict[str, Any]) -> dict[str, Any]:
    plan, groups = document["plan"], document["groups"]
    case = plan["cases"][-1]
    itemsize = {"float32": 4, "bfloat16": 2}[plan["dtype"]]
    layer = Layer(case["tokens"], case["d"], itemsize, 1024, 8)
    return simulated(link_of(groups), products_of(groups[0]["products"]), layer)


if __name__ == "__main__":
    main()
