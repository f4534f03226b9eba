"""The CUDA back end as the rest of the project sees it: its GPUs, and the tiles their kernels have.

Products on a GPU's own arrays come in through calls/dense_run_gpu.py, batches of them through
calls/grouped_gpu.py. Both ask `engines` and not `kernels`: whole batches, not one problem at a
time. Arrays of the host are not taken here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from tilewright.arrays.array import Memory
from tilewright.arrays.views import View
from tilewright.backends.cuda.machine import driver
from tilewright.backends.cuda.tile_seconds import GroupedTiles
from tilewright.engines.backend import Backend, Timing
from tilewright.engines.grouped import GroupedKernel
from tilewright.errors import DeviceError, OperandError
from tilewright.facts.device import Device
from tilewright.facts.kernel import Plan
from tilewright.facts.scalars import Scalars


class Cuda(Backend):
    """Stateless; torch keeps streams and memory."""

    name = "cuda"
    takes_host_arrays = False

    def devices(self) -> tuple[Device, ...]:
        """Every GPU that torch sees; none, at once, without driver, torch or Triton."""
        return driver.found()

    def grouped(self, device: Device, dtype: str) -> GroupedKernel | None:
        """Tiles and scheduler of the Triton kernel, for plans made from sizes alone."""
        return GroupedTiles(device, dtype) if dtype in device.dtypes else None

    def allocate(self, size: int, device: Device, way: str, source: Any = None) -> Memory:
        """Refused: torch and CuPy make the arrays of these devices."""
        refuse(device)

    def run(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> None:
        """Refused: no plan for the host's arrays names this back end."""
        refuse(plan.device)

    def time(self, plan: Plan, views: Mapping[str, View], scalars: Scalars) -> Timing:
        """Refused, as `run`."""
        refuse(plan.device)


def refuse(device: Device) -> NoReturn:
    """What to do instead with an array of the host, or what is missing."""
    why = driver.missing()
    if why is not None:
        raise DeviceError(
            f"device={device.id!r}: {why}; needed are a GPU's driver and {driver.HINT}"
        )
    raise OperandError(
        f"device={device.id!r}: takes torch, CuPy and DLPack arrays that lie on it; move the"
        f" operands there (torch.from_numpy(a).to({device.id!r})) or name another device"
    )
