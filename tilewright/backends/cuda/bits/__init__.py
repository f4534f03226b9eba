"""One-bit products on NVIDIA GPUs: where bits lie (`PLACE`), engines, launches."""

from tilewright.backends.cuda.bits.place import PLACE

__all__ = ["PLACE"]
