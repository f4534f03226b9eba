"""Products with a long k, few tiles each: all of k dealt out evenly, as one launch and a sum."""

from tilewright.backends.cuda.deep.engine import DeepTiles

ENGINES = (DeepTiles(),)
