"""Where tests of torch's tensors run: on a processor, and where torch reaches a GPU there too."""

from __future__ import annotations

import pytest
import torch

HAS_GPU = torch.cuda.is_available()
GPU = pytest.param(
    "cuda",
    marks=[pytest.mark.gpu, pytest.mark.skipif(not HAS_GPU, reason="no GPU that torch reaches")],
)
DEVICES = ["cpu", GPU]
