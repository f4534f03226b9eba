"""Steps of learning, all of one step on the device: crops, both passes, the optimiser, averages.

    drawn here       for CHUNK steps at once: places of the crops and learning rates, by NumPy from
                     the seed and the number of the step, so that a run that goes on is the same
    on the device    a counter picks the step's row; on CUDA a step is one graph, replayed

Half precision: gradients are multiplied by SCALE and divided before Adam; those that are not finite
count as 0. Norms beyond twice the usual are cut: without it 64 channels at 1e-3 do not learn.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from train.photographs import NDArray

CHUNK = 50
SCALE = 2.0**13


class Crops(Protocol):
    """What steps learn from."""

    def drawn(self, chance: np.random.Generator, steps: int, batch: int) -> NDArray:
        """Int64 [steps, batch, 7]: where crops are and how they are turned."""

    def at(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """What a step is given, and what is wanted of it, by its row: float32, 0 to 1."""


@dataclass(frozen=True)
class Plan:
    """How a net learns."""

    rate: float
    batch: int
    seed: int
    half: bool
    decibels: bool = False
    warm: int = 500  # steps in which the rate rises
    kept: float = 0.9995  # of the averaged weights, a step
    flat: float = 1e-4  # squared difference, of 2.5 codes, below which a crop counts less


class Steps:
    """A model's optimiser and averages, advanced by `run`.

    parameters  what learns
    current     the tensors of the plain net, which are averaged
    output      the model: crops, and those tensors, to enlarged crops
    """

    def __init__(
        self,
        parameters: Sequence[Tensor],
        output: Callable[[Tensor, list[Tensor]], Tensor],
        current: Callable[[], list[Tensor]],
        crops: Crops,
        plan: Plan,
    ) -> None:
        self._parameters, self._output, self._current = list(parameters), output, current
        self._crops, self._plan = crops, plan
        self._device = self._parameters[0].device
        self.done = 0
        with torch.no_grad():
            self.averages = [tensor.detach().clone() for tensor in current()]
        self._rate = self._number(0.0)
        self._usual = self._number(0.0)
        self._loss = self._number(0.0)
        cuda = self._device.type == "cuda"
        self._optimiser = torch.optim.Adam(
            self._parameters, lr=self._rate if cuda else 0.0, capturable=cuda, fused=cuda
        )
        self._rows = torch.zeros((CHUNK, plan.batch, 7), dtype=torch.int64, device=self._device)
        self._rates = torch.zeros(CHUNK, device=self._device)
        self._at = torch.zeros(1, dtype=torch.int64, device=self._device)
        self._graph: Any = None

    def _number(self, value: float) -> Tensor:
        return torch.tensor(value, device=self._device)

    def run(self, steps: int, left: Callable[[int], float], graph: bool = True) -> float:
        """Take at most CHUNK steps; left: the share of the rate by a step's number.

        Returns their mean loss; of pixels, in codes of eight bits.
        """
        rows, rates = [], []
        for number in range(self.done, self.done + steps):
            chance = np.random.default_rng((self._plan.seed, number))
            rows.append(self._crops.drawn(chance, 1, self._plan.batch))
            rates.append(self._plan.rate * left(number) * min(1.0, (number + 1) / self._plan.warm))
        self._rows[:steps] = torch.from_numpy(np.concatenate(rows)).to(self._device)
        self._rates[:steps] = torch.tensor(rates, device=self._device)
        self._at.zero_()
        self._loss.zero_()
        if self._device.type == "cuda" and graph:
            self._replay(steps)
        else:
            for number in range(steps):
                if self._device.type != "cuda":
                    self._optimiser.param_groups[0]["lr"] = rates[number]
                self._one()
        self._wait()
        self.done += steps
        return float(self._loss) / steps * 255

    def _wait(self) -> None:
        """Until the device is done, asleep: runs side by side leave each other the cores."""
        if self._device.type == "cuda":
            done = torch.cuda.Event(blocking=True)
            done.record()
            done.synchronize()

    def _replay(self, steps: int) -> None:
        """The steps as one graph each; the first ones, which make it ready, are undone."""
        if self._graph is None:
            before = self._copied()
            torch.backends.cudnn.benchmark = True  # crops have one size, unlike whole pictures
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(5):
                    self._one()
            torch.cuda.current_stream().wait_stream(stream)
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):
                self._one()
            torch.backends.cudnn.benchmark = False
            self._restore(before)
            self._at.zero_()
            self._loss.zero_()
        for _ in range(steps):
            self._graph.replay()

    def _one(self) -> None:
        """A step by the row that the counter names."""
        if self._device.type == "cuda":
            self._rate.copy_(self._rates.index_select(0, self._at)[0])
        x, wanted = self._crops.at(self._rows.index_select(0, self._at)[0])
        half = self._plan.half
        if half:
            x = x.half().contiguous(memory_format=torch.channels_last)
        tensors = self._current()
        loss = self._cost(self._output(x, tensors).float(), wanted)
        self._optimiser.zero_grad(set_to_none=False)
        (loss * SCALE if half else loss).backward()
        self._cut()
        self._optimiser.step()
        with torch.no_grad():
            torch._foreach_lerp_(self.averages, [t.detach() for t in tensors], 1 - self._plan.kept)
            self._loss += loss.detach()
            self._at += 1

    def _cost(self, got: Tensor, wanted: Tensor) -> Tensor:
        """Of all pixels, or of the decibels of each crop: what is judged, but for flat crops."""
        if not self._plan.decibels:
            return functional.l1_loss(got, wanted)
        return ((got - wanted).square().mean((1, 2, 3)) + self._plan.flat).log().mean() / 100

    @torch.no_grad()
    def _cut(self) -> None:
        """Gradients in their own scale, at most twice as long as usual."""
        found = [p.grad for p in self._parameters if p.grad is not None]
        if self._plan.half:
            torch._foreach_mul_(found, 1 / SCALE)
            for gradient in found:
                torch.nan_to_num_(gradient, 0.0, 0.0, 0.0)
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(found)))
        usual = self._usual + (self._usual == 0) * norm
        torch._foreach_mul_(found, (2 * usual / (norm + 1e-12)).clamp(max=1.0))
        self._usual.copy_(usual + 0.01 * (torch.minimum(norm, 4 * usual) - usual))

    def _copied(self) -> dict[str, Any]:
        """Copies of all that a step changes."""
        states = [self._optimiser.state.get(p, {}) for p in self._parameters]
        return {
            "parameters": [p.detach().clone() for p in self._parameters],
            "states": [{k: torch.as_tensor(v).clone() for k, v in s.items()} for s in states],
            "averages": [a.clone() for a in self.averages],
            "usual": self._usual.clone(),
        }

    @torch.no_grad()
    def _restore(self, kept: dict[str, Any]) -> None:
        """Put copies back into the memory that is there: a graph knows it by address."""
        for parameter, value, state in zip(
            self._parameters, kept["parameters"], kept["states"], strict=True
        ):
            parameter.copy_(value)
            held = self._optimiser.state[parameter]
            for name in ("step", "exp_avg", "exp_avg_sq"):
                if name in held:
                    held[name].copy_(state[name]) if state else held[name].zero_()
                elif state:
                    place = "cpu" if name == "step" and not self._capturable else self._device
                    held[name] = state[name].to(place).clone()
        for average, value in zip(self.averages, kept["averages"], strict=True):
            average.copy_(value)
        self._usual.copy_(kept["usual"])

    @property
    def _capturable(self) -> bool:
        return bool(self._optimiser.param_groups[0]["capturable"])

    def state(self) -> dict[str, Any]:
        """What a checkpoint needs to go on."""
        return {**self._copied(), "done": self.done}

    def load(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; before the first step."""
        self._restore(state)
        self.done = int(state["done"])


def falling(share: float) -> float:
    """Half a cosine from 1 to a hundredth, by the share of the time that is over."""
    return 0.01 + 0.99 * 0.5 * (1 + math.cos(math.pi * min(1.0, share)))
