"""Typed linear layers of heterogeneous graph networks: one product a node type or relation.

    graph-dblp-inputs       features of every node type of DBLP, each of its own width, projected to
                            64: the first layer of any network on it. Authors 4,057 x 334, papers
                            14,328 x 4,231, terms 7,723 x 50 (counts as PyTorch Geometric lists
                            them; Fu et al., MAGNN, 2020). Conferences have no features: k = 0.
    graph-hgt-ogbn-mag      key, query, value and output projections of a Heterogeneous Graph
                            Transformer layer (Hu et al., 2020), width 512 and 8 heads as in its
                            authors' code for ogbn-mag, on a sample of that graph: 736,389 papers,
                            1,134,649 authors, 8,740 institutions, 59,965 fields of study (Hu et
                            al., Open Graph Benchmark, 2020).
    graph-hgt-relations     the same layer's attention and message products, 64 x 64 in 8 heads, of
                            every relation, both ways, one row a sampled edge: 7,145,660 author
                            writes paper, 5,416,271 paper cites paper, 7,505,078 paper has topic,
                            1,043,998 author affiliated with institution.
    graph-rgcn-am           a relational graph convolution (Schlichtkrull et al., 2018) on a sample
                            of AM: 5,988,321 edges of 133 relations, both ways, and the self-loops
                            of 1,666,764 nodes; width 64, as in Open Graph Benchmark's R-GCN. How
                            the edges share out among relations is not in the paper; they are drawn
                            by Zipf's law over ranks.

Samples keep every node or edge with probability 1 % (ogbn-mag's edges 0.1 %), seeded.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tilewright.facts.problem import Column

SOURCE = (
    "published node, edge and feature counts of DBLP, ogbn-mag and AM, and widths of HGT and R-GCN"
    " layers; 1 % or 0.1 % samples, seeded; AM's edges a relation drawn by Zipf's law"
)
NAMES = ("graph-dblp-inputs", "graph-hgt-ogbn-mag", "graph-hgt-relations", "graph-rgcn-am")

# Papers, authors, institutions, fields of study.
MAG_NODES = (736_389, 1_134_649, 8_740, 59_965)
# Writes, cites, has topic, affiliated with.
MAG_EDGES = (7_145_660, 5_416_271, 7_505_078, 1_043_998)
# Authors, papers, terms, conferences: nodes and features.
DBLP = ((4_057, 334), (14_328, 4_231), (7_723, 50), (20, 0))
AM_NODES, AM_EDGES, AM_RELATIONS = 1_666_764, 5_988_321, 133


def draw(name: str, seed: int) -> tuple[Column, Column, Column]:
    """The columns of one of `NAMES`."""
    random = np.random.default_rng(seed)
    if name == "graph-dblp-inputs":
        rows, features = np.array(DBLP).T
        # Seed 0 is the whole graph, another one a sample of half of it.
        rows = rows if seed == 0 else random.binomial(rows, 0.5)
        return rows, np.full_like(rows, 64), features
    if name == "graph-hgt-ogbn-mag":
        return _square(np.repeat(random.binomial(MAG_NODES, 0.01), 4), 512)
    if name == "graph-hgt-relations":
        both_ways = np.repeat(random.binomial(MAG_EDGES, 0.001), 2)
        return _square(np.repeat(both_ways, 2 * 8), 64)
    shares = 1.0 / np.arange(1, AM_RELATIONS + 1)
    edges = random.multinomial(AM_EDGES // 100, random.permutation(shares / shares.sum()))
    loops = random.binomial(AM_NODES, 0.01, size=1)
    return _square(np.concatenate((edges, edges, loops)), 64)


def _square(rows: npt.NDArray[np.int64], width: int) -> tuple[Column, Column, Column]:
    return rows, np.full_like(rows, width), np.full_like(rows, width)
