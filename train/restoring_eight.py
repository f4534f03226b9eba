"""A net that takes damage away taught to round as int8 will, by ranges of values that stay.

Weights and biases go on from the averages of the run in float32, rounded in every step; gradients
pass as if nothing were (`tilewright.pytorch.qat`). What values lie between is what costs least on
drawn crops, as for a net that is calibrated alone. Some minutes of one core do for size s, so this
runs on a CPU, from its beginning to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from tilewright import nn as networks
from tilewright.pytorch import qat
from train import checkpoints
from train.restorer import DEPTHS, Restorer, planes
from train.restoring import Damaged, Judge, Task
from train.shipped import Chain, onnx_of, sample
from train.steps import CHUNK, Plan, Steps, falling

_WARM, _KEPT = 20, 0.98  # steps in which the rate rises; of averages, a step
_RATE = 2e-4


def teach(task: Task, crops: Damaged, judge: Judge, out: Path) -> Path:
    """Learn for the task's minutes from the net that lies in `out`; writes weights and ranges.

    Raises FileNotFoundError where that is not there.
    """
    net = Restorer(DEPTHS[task.size]).take(checkpoints.net(out / f"{task.name}.pt"))
    ranges = _ranges(net, crops)
    model = qat.prepare(Chain(net), ranges).train()
    names = [name for name, _ in model.named_parameters()]
    tensors = list(model.parameters())

    def output(x: Tensor, given: list[Tensor]) -> Tensor:
        said = functional_call(model, dict(zip(names, given, strict=True)), (planes(x),))
        return x[:, :1] + functional.pixel_shuffle(said, 2)

    plan = Plan(_RATE, task.batch, task.seed, half=False, decibels=True, warm=_WARM, kept=_KEPT)
    steps = Steps(tensors, output, lambda: tensors, crops, plan)
    began, over = time.process_time(), 0.0
    while over < 1:
        steps.run(min(CHUNK, task.steps or CHUNK), _always(falling(over)), graph=False)
        spent = time.process_time() - began
        over = steps.done / task.steps if task.steps else spent / (60 * task.minutes)
    path = out / f"{task.name}-int8.pt"
    kept = {"task": asdict(task), "tensors": steps.averages, "ranges": ranges}
    torch.save({**kept, "steps": steps.done, "seconds": spent}, path)
    _say(task, steps.averages, model, judge, steps.done)
    return path


def _always(share: float) -> Callable[[int], float]:
    return lambda number: share


@torch.no_grad()
def _say(task: Task, tensors: list[Tensor], model: nn.Module, judge: Judge, done: int) -> None:
    """Print how good it is, rounded to the bits of int8."""
    for parameter, tensor in zip(model.parameters(), tensors, strict=True):
        parameter.copy_(tensor)
    model.eval()

    def whole(x: Tensor) -> Tensor:
        return x[:, :1] + functional.pixel_shuffle(model(planes(x)), 2)

    print(f"{task.name}-int8: {done} steps; {judge(whole)}", flush=True)


def _ranges(net: Restorer, crops: Damaged) -> dict[str, tuple[float, float]]:
    """What every layer's input lies between, by the name of its weights."""
    floats = networks.import_onnx(onnx_of(net))
    graph = networks.quantise(floats, list(sample(crops)), method="squares").graph
    makers = {node.outputs[0]: node for node in graph.nodes}
    found = {}
    layers = [node for node in graph.nodes if node.operator == "Conv"]
    names = [f"{name}.weight" for name, one in Chain(net).named_modules() if hasattr(one, "stride")]
    for node, name in zip(layers, names, strict=True):
        scale, zero = (graph.constants[one].value for one in makers[node.inputs[0]].inputs[1:3])
        step, first = float(np.asarray(scale)), int(np.asarray(zero))
        found[name] = -first * step, (255 - first) * step
    return found
