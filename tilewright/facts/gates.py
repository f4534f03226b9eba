"""What experts do between their two products: f(h), or f(gate) · up of h's two halves.

name        f            h
swiglu      silu         [gate | up], 2 n wide        Shazeer, "GLU variants improve
geglu       gelu (erf)                                transformer", 2020
reglu       relu
relu2glu    relu squared
silu        silu         n wide
gelu        gelu (erf)
relu        relu
relu2       relu squared                              So et al., "Primer", 2021
"""

from __future__ import annotations

from dataclasses import dataclass

FUNCTIONS = ("silu", "gelu", "relu", "relu2")


@dataclass(frozen=True, slots=True)
class Gate:
    """A function, by its place in FUNCTIONS, and whether there are two halves."""

    kind: int
    is_pair: bool

    @property
    def form(self) -> int:
        """What kernels/triton/moe.py calls it: 1 for f(h), 2 for f(gate) · up."""
        return 2 if self.is_pair else 1

    def width(self, n: int) -> int:
        """Columns of h, where what is made of it has n."""
        return 2 * n if self.is_pair else n


GATES = {
    **{
        name: Gate(kind, True) for kind, name in enumerate(("swiglu", "geglu", "reglu", "relu2glu"))
    },
    **{name: Gate(kind, False) for kind, name in enumerate(FUNCTIONS)},
}
