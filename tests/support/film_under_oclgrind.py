"""The kernels of motion in Oclgrind; run by under_oclgrind.py in a process of its own."""

from __future__ import annotations

from dataclasses import replace

from tests.backends.opencl.film.test_film_opencl import OnDevice
from tests.support import made_up
from tests.support.moving import layers, look, made
from tilewright import Device
from tilewright.backends.opencl.film.cut import cut_of

# Odd sizes, two of luma, edges everywhere; and a picture too small to see anything move.
CASES = ((51, 49, "yuv422p10le"), (3, 5, "gray"))


def multiply(device: Device) -> None:
    """Every case, cut as for a processor and as for a GPU: the same but for rounding."""
    of_two = cut_of(replace(made_up.TWO_CORES, compute_units=6))
    of_gpu = replace(cut_of(made_up.MALI_T604), group=16)
    for columns, rows, format in CASES:
        like = look(columns, rows, format)
        pair = layers(like, 5, 1)
        found = [made(OnDevice(like, device, cut), pair, 0.3)[0] for cut in (of_two, of_gpu)]
        for one, other in zip(*found, strict=True):
            assert (abs(one.astype(int) - other) > 1).mean() < 0.01
