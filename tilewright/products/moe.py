"""A whole layer of experts: tokens go to the experts they chose, and what comes back is added up.

    moe(x [T, d], w_up [E, d, 2 n], w_down [E, n, d], experts [T, K], weights [T, K]) -> [T, d]

How many rows an expert gets stays on the device. Rows of x are read by index where they are
multiplied, so no sorted copy of x is made; how, layer.py of backends/cuda/moe says.
"""

from __future__ import annotations

from typing import Any

from tilewright.inputs.checks import check_is_tensor


def moe(
    x: Any,
    w_up: Any,
    w_down: Any,
    experts: Any,
    weights: Any,
    *,
    activation: str = "swiglu",
    precision: str | None = None,
    batch_invariant: bool = False,
) -> Any:
    """out[t] = sum over k of weights[t, k] · f(x[t] @ w_up[e]) @ w_down[e], e = experts[t, k].

    Args:
        x: tensor [T, d], a row a token; float16, bfloat16, float32 or float64.
        w_up: [E, d, 2 n], the gate's columns first, then those it multiplies; [E, d, n] where
            `activation` has no gate. Of x's dtype, as is w_down, and of any strides.
        w_down: [E, n, d].
        experts: int32 or int64 tensor [T, K]: the experts of each token. One may be named twice.
            -1 is nobody, say an expert that another rank has: nothing is multiplied, 0 is added.
        weights: [T, K], of x's dtype or float32.
        activation: "swiglu", "geglu", "reglu", "relu2glu": silu, gelu (erf), relu or relu squared
            of the gate, times the other half; "silu", "gelu", "relu", "relu2": without a gate.
        precision: "tf32" and "fp32x" as in `ragged_matmul`.
        batch_invariant: a token's row of the result has the same bits whatever other tokens there
            are and whomever they choose, as `ragged_matmul` has it.

    Returns: [T, d], of x's dtype, ordered on the current stream; nothing is waited for. The K rows
    of a token are added in their order, in fp32 (fp64 in fp64), so results are the same each time.
    Differentiable once, in x, w_up, w_down and weights; for the backward pass x, h = x @ w_up and
    int32 routes are kept: T d + width T K numbers and (3 T K + E) integers.

    An element of `experts` that is neither -1 nor an expert cannot be seen on a GPU without
    waiting: it adds nothing, and the next such call after the kernel has finished, or
    `synchronize`, raises ArgumentError. On processors it is raised at once.

    Under autocast operands but float64 ones are cast to its dtype first; weights are not.

    Raises: ShapeError, DtypeError, OperandError, ArgumentError.
    """
    check_is_tensor(x, "x")
    from tilewright.torch_ops.moe_call import layer

    return layer(x, w_up, w_down, experts, weights, activation, precision, batch_invariant)


def explain_moe(
    x: Any,
    w_up: Any,
    w_down: Any,
    experts: Any,
    weights: Any,
    *,
    activation: str = "swiglu",
    precision: str | None = None,
    batch_invariant: bool = False,
) -> str:
    """The report of what `moe` of these tensors would do: that of both its products.

    Args: as in `moe`.

    Returns: lines of text, as `explain_ragged` has them for each product. No product is computed;
        on a processor the rows of experts are found.

    Raises: what `moe` raises.
    """
    check_is_tensor(x, "x")
    from tilewright.torch_ops.moe_call import explain

    return explain(x, w_up, w_down, experts, weights, activation, precision, batch_invariant)
