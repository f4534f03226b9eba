"""Layers of experts on more than one device, over torch.distributed. Importing it imports torch.

ExpertParallel    a layer whose experts are spread over the processes of a group
"""

from tilewright.distributed.experts import ExpertParallel

__all__ = ["ExpertParallel"]
