"""The engine of fp32-accurate products: fp32 operands as two halves each, on Hopper's wgmma.

    x 2^e = h0 + h1 2^-11                                    h0, h1 fp16, rounded to nearest
    a b   = (h0 h0 + 2^-11 (h0 h1 + h1 h0)) 2^-(ea + eb)     three products, h1 h1 is below fp32

packing pass   splits, with an exponent e for each operand and problem, from a sample of its
               elements, and counts those that the exponent does not suit
wgmma          multiplies; results of problems with too many such elements are not stored
CUDA cores     multiply those problems from the operands as they lie; no work where there are none
"""

from __future__ import annotations

from tilewright.backends.cuda.hopper.blocks import SPLIT
from tilewright.backends.cuda.hopper.engine import HopperHalf, unready
from tilewright.backends.cuda.work import Work
from tilewright.facts.device import Device


class HopperSplit(HopperHalf):
    """fp32 as accurate as fp32's own products, in three products of halves.

    The method is Ootomo and Yokota's, "Recovering single precision accuracy from Tensor Cores while
    surpassing the FP32 theoretical peak performance" (2022); choosing by the operands' exponents
    follows their later cuMpSGEMM. Relative errors in the Frobenius norm on an H200, cuBLAS's fp32
    in brackets: 4096^3 uniform 1.0e-7 (8.4e-7), normal 1.8e-7 (1.1e-6); 512^3 0.8e-7 (0.9e-7) and
    1.2e-7 (2.1e-7). Where few terms count, fp32 is better: 512^3 with 5 % of the elements not zero
    0.9e-7 (0.4e-7). Products of up to 4 terms are not split but summed in fp32.

    It fails where elements are infinite, NaN, or more than 128 times the largest of the sample; and
    where elements under 2^-21 of that largest, zeros aside, are all there is of 8 neighbours or, if
    neighbours do not follow one another along k, as many as half of k: rows of tiny numbers, or
    numbers of all sizes. Such problems are found on the device, launch by launch, and multiplied in
    IEEE fp32 on CUDA cores: 4096 x 4096 x 4096 takes 6.8 ms then, cuBLAS 3.3.
    """

    name = "hopper-split"
    shapes = (SPLIT,)

    def why_not(self, work: Work, device: Device) -> str | None:
        """Takes fp32 where accuracy is asked for by name."""
        if (work.dtype, work.precision) != ("float32", "fp32x"):
            return "takes float32 with precision='fp32x' only"
        return unready(work, device)
