"""Passes: graphs to graphs that compute the same in fewer, larger steps; pure, a file each.

    int8.py         DequantizeLinear, Conv, QuantizeLinear -> one convolution of whole numbers
    norms.py, identities.py, halves.py   for whoever quantises: batch norms into weights, copies of
                    constants, some layers in float16
    retyped.py      float32 -> float16 or bfloat16; halves -> float32 where engines have none
    unchanged.py    Identity, Dropout, casts to the same type: gone
    constants.py    what constants alone decide is computed once
    dead.py         what nobody reads is left out
    gates.py        x * Sigmoid(x), as exporters write it -> one node
    gelus.py        Gelu as five nodes by Erf -> one node
    turns.py        Concat, Reshape, Transpose, Reshape: a channel shuffle -> one node
    convs.py        Conv of constant weights -> Convs, the record that engines are asked with
                    (transposed.py: ConvTranspose -> the same with a pixel shuffle)
    whole.py        convolutions of whole numbers -> Convs too, which round a float32 x themselves
    before.py       Pad -> the convolution after it
    after.py        BatchNormalization, Mul, Add, activations, residuals, DepthToSpace -> the
                    convolution before them (epilogues.py: how each is taken in)
    chains.py       convolutions one after another -> one chain
    bits.py         layers of bits -> the network of bits whose compiled program runs them
    heads.py        means of pictures, products after them -> convolutions of the chain
    products.py     MatMul, Gemm and what stands round them -> products

A pass keeps the names of the values that stay, so sizes that were found before hold after it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.nn.graph import Graph, Tensor
from tilewright.nn.passes.after import followed
from tilewright.nn.passes.before import padded
from tilewright.nn.passes.bits import joined_bits
from tilewright.nn.passes.chains import chained
from tilewright.nn.passes.constants import folded
from tilewright.nn.passes.convs import with_convs
from tilewright.nn.passes.dead import without_dead
from tilewright.nn.passes.gates import gated
from tilewright.nn.passes.gelus import with_gelus
from tilewright.nn.passes.heads import with_heads
from tilewright.nn.passes.products import with_products
from tilewright.nn.passes.turns import in_turns
from tilewright.nn.passes.unchanged import without_unchanged
from tilewright.nn.passes.whole import with_whole_convs


def simplified(
    graph: Graph, tensors: Mapping[str, Tensor], *, fuse: bool = True, whole_adds: bool = False
) -> Graph:
    """The same network with all passes done; `tensors` of `infer.tensors` for the same graph.

    fuse: whether convolutions take in what is before and after them; without, each stays alone.
    whole_adds: whether engines add residuals to sums of whole numbers: the host's do.
    """
    graph = without_dead(without_unchanged(folded(graph, tensors), tensors))
    if fuse:
        graph = without_dead(with_gelus(gated(in_turns(graph, tensors)), tensors))
    graph = with_convs(graph, tensors)
    if not fuse:
        return without_dead(with_products(graph, tensors, fuse=False))
    graph = without_dead(with_whole_convs(graph, tensors))
    graph = followed(padded(graph, tensors), tensors, whole_adds)
    graph = without_dead(joined_bits(chained(graph)))
    graph = chained(without_dead(with_heads(graph, tensors)))
    return without_dead(with_products(without_dead(graph), tensors))
