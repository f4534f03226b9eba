"""PyTorch's own ways in: a module, drop-in twins, custom operators. Importing it imports torch.

GroupedLinear     one linear layer a group of rows (experts, node types)
GroupedLoRA       adapters of unlike ranks over one linear layer, each row by its own
MoE               a layer of experts: router, gated products, weighted sum
grouped_mm        twin of torch._grouped_mm
segment_matmul    twin of pyg_lib.ops.segment_matmul
grouped_matmul    twin of pyg_lib.ops.grouped_matmul: lists in, list out, differentiable
Muon              torch.optim.Muon, all matrices of a step in one batch; newton_schulz
install           torch's own grouped_mm multiplies here where torch has no fast kernel; uninstall
qat               layers that train with the rounding of int8 (a module of its own)
"""

from tilewright.pytorch.install import install, uninstall
from tilewright.pytorch.lora import GroupedLoRA
from tilewright.pytorch.modules import GroupedLinear
from tilewright.pytorch.moe import MoE
from tilewright.pytorch.muon import Muon, newton_schulz
from tilewright.pytorch.twins import grouped_matmul, grouped_mm, segment_matmul

__all__ = [
    "GroupedLinear",
    "GroupedLoRA",
    "MoE",
    "Muon",
    "grouped_matmul",
    "grouped_mm",
    "install",
    "newton_schulz",
    "segment_matmul",
    "uninstall",
]
