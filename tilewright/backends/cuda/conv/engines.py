"""The engines of convolutions on GPUs, in the order in which they are asked.

cudnn   the vendor's library, layer by layer: takes everything
"""

from tilewright.backends.cuda.conv.cudnn import Cudnn

CONV_ENGINES = (Cudnn(),)
