"""The engines of convolutions on GPUs, in the order in which they are asked.

chain       3x3 chains of few channels as one kernel: Hopper (kernels/conv/chain_wgmma.cu)
chain_mma   the same by mma.sync: Ampere and later (kernels/conv/chain_mma.cu)
cudnn       the vendor's library, layer by layer: takes everything
winograd    3x3 in float32: kernels/conv/winograd.cu
triton      any shape, a launch a layer: NVIDIA and AMD (kernels/triton/conv.py)
"""

from tilewright.backends.cuda.conv.chain import CHAIN, CHAIN_MMA
from tilewright.backends.cuda.conv.cudnn import Cudnn
from tilewright.backends.cuda.conv.triton import TritonConv
from tilewright.backends.cuda.conv.winograd import WinogradConv

CONV_ENGINES = (CHAIN, CHAIN_MMA, Cudnn(), WinogradConv(), TritonConv())
