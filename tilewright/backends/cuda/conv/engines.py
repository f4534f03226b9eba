"""The engines of convolutions on GPUs, in the order in which they are asked.

chain   3x3 chains of few channels as one kernel: Hopper (kernels/conv/chain_wgmma.cu)
triton  any shape, a launch a layer: NVIDIA and AMD (kernels/triton/conv.py)
cudnn   the vendor's library, layer by layer: takes everything
"""

from tilewright.backends.cuda.conv.chain import Chained
from tilewright.backends.cuda.conv.cudnn import Cudnn
from tilewright.backends.cuda.conv.triton import TritonConv

CONV_ENGINES = (Chained(), Cudnn(), TritonConv())
