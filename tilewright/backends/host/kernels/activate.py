"""What becomes of sums: the activations of networks on sixteen numbers at once.

exp       2^n times a polynomial of what is left of x: n whole, |left| <= log(2) / 2
tanh      x + x^3 p(x^2) near 0, 1 - 2 / (exp(2x) + 1) elsewhere
gelu      x times the normal distribution's cumulative, by erfc: t exp(-z^2 + q(t)) with
          t = 1 / (1 + z / 2) (Press et al., Numerical Recipes, 6.2: 1.2e-7 of the result)

The polynomials of exp and tanh were fitted here at Chebyshev's points; 6e-8 of the result at most.
NaN stays NaN, infinities have their limits.
"""

from __future__ import annotations

import math

from llvmlite import ir

from tilewright.backends.host.kernels.emitted import emitted
from tilewright.backends.host.kernels.features import features
from tilewright.backends.host.kernels.helpers import helper
from tilewright.backends.host.kernels.lanes import (
    LANES,
    WIDTH,
    add,
    at_least,
    at_most,
    fused,
    load,
    load_some,
    multiply,
    overloaded,
    splat,
    store,
    store_some,
)
from tilewright.engines.conv import ACTIVATIONS

_FLOATS = ir.VectorType(ir.FloatType(), WIDTH)
_INTS = ir.VectorType(ir.IntType(32), WIDTH)
_EXP = (0.0013933645, 0.008363177, 0.041666467, 0.16666576, 0.5, 1.0, 1.0)
_TANH = (-0.006104949, 0.021003643, -0.0538525, 0.13332783, -0.33333328)
_ERFC = (
    0.17087277, -0.82215223, 1.48851587, -1.13520398, 0.27886807, -0.18628806, 0.09678418,
    0.37409196, 1.00002368, -1.26551223,
)  # fmt: skip
_LOG2 = (0.693359375, -2.12194440e-4)  # log(2) in two parts, the first of few bits
# Numbers of what is more than two bounds.
PLAIN = tuple(ACTIVATIONS.index(kind) for kind in ("none", "relu", "clip"))
_LEAKY, _PRELU, _SIGMOID, _HARD_SIGMOID, _HARD_SWISH, _SILU, _TANH_KIND, _GELU = (
    ACTIVATIONS.index(kind)
    for kind in (
        "leaky", "prelu", "sigmoid", "hard_sigmoid", "hard_swish", "silu", "tanh", "gelu",
    )
)  # fmt: skip


def _same(builder, value):
    """A vector constant."""
    return ir.Constant(_FLOATS, [value] * WIDTH)


@emitted(LANES, LANES, LANES, LANES, LANES)
def below(builder, value, bound, then, other):
    """`then` where value < bound, elsewhere, and where either is NaN, `other`."""
    return builder.select(builder.fcmp_ordered("<", value, bound), then, other)


@emitted(LANES, LANES, LANES)
def divide(builder, left, right):
    """left / right."""
    return builder.fdiv(left, right)


@emitted(LANES, LANES)
def magnitude(builder, value):
    """|value|."""
    return builder.call(overloaded(builder, "llvm.fabs.v16f32", _FLOATS, _FLOATS), [value])


@emitted(LANES, LANES)
def exp(builder, given):
    """e to the value."""
    fma = overloaded(builder, "llvm.fma.v16f32", _FLOATS, *[_FLOATS] * 3)
    nearest = overloaded(builder, "llvm.nearbyint.v16f32", _FLOATS, _FLOATS)
    low, high = _same(builder, -104.0), _same(builder, 89.0)
    value = builder.select(builder.fcmp_ordered("<", given, low), low, given)
    value = builder.select(builder.fcmp_ordered(">", value, high), high, value)
    whole = builder.call(nearest, [builder.fmul(value, _same(builder, 1 / math.log(2)))])
    for part in _LOG2:
        value = builder.call(fma, [whole, _same(builder, -part), value])
    result = _same(builder, _EXP[0])
    for factor in _EXP[1:]:
        result = builder.call(fma, [result, value, _same(builder, factor)])
    if "avx512f" in features():  # in one instruction, NaN too
        kinds = (_FLOATS, _FLOATS, _FLOATS, ir.IntType(16), ir.IntType(32))
        scaled = overloaded(builder, "llvm.x86.avx512.mask.scalef.ps.512", _FLOATS, *kinds)
        every, nearest_even = ir.IntType(16)(-1), ir.IntType(32)(4)
        return builder.call(scaled, [result, whole, result, every, nearest_even])
    number = builder.fcmp_ordered("ord", given, given)
    count = builder.fptosi(builder.select(number, whole, _same(builder, 0.0)), _INTS)
    half = builder.ashr(count, ir.Constant(_INTS, [1] * WIDTH))
    for part in (half, builder.sub(count, half)):  # beyond what one factor can hold
        biased = builder.add(part, ir.Constant(_INTS, [127] * WIDTH))
        factor = builder.shl(biased, ir.Constant(_INTS, [23] * WIDTH))
        result = builder.fmul(result, builder.bitcast(factor, _FLOATS))
    return result


def _polynomial(factors):
    """p(x) by Horner's rule as compiled code, the highest power first."""

    @emitted(LANES, LANES)
    def evaluate(builder, x):
        fma = overloaded(builder, "llvm.fma.v16f32", _FLOATS, *[_FLOATS] * 3)
        result = _same(builder, factors[0])
        for factor in factors[1:]:
            result = builder.call(fma, [result, x, _same(builder, factor)])
        return result

    return evaluate


_tanh_near_zero = _polynomial(_TANH)
_erfc_exponent = _polynomial(_ERFC)


@helper
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    one = splat(1.0)
    return divide(one, add(one, exp(multiply(x, splat(-1.0)))))


@helper
def hard_swish(x):
    """x times clip(x / 6 + 1 / 2, 0, 1)."""
    share = add(multiply(x, splat(1.0 / 6.0)), splat(0.5))
    return multiply(x, at_most(at_least(share, splat(0.0)), splat(1.0)))


@helper
def tanh(x):
    """The hyperbolic tangent."""
    one, two = splat(1.0), splat(2.0)
    size = magnitude(x)
    far = add(one, divide(splat(-2.0), add(exp(multiply(two, size)), one)))
    far = below(x, splat(0.0), multiply(far, splat(-1.0)), far)
    square = multiply(x, x)
    near = fused(multiply(x, square), _tanh_near_zero(square), x)
    return below(size, splat(0.625), near, far)


@helper
def gelu(x):
    """x times the share of a normal distribution below x."""
    z = multiply(magnitude(x), splat(0.70710678))
    t = divide(splat(1.0), fused(z, splat(0.5), splat(1.0)))
    power = fused(multiply(z, splat(-1.0)), z, _erfc_exponent(t))
    half = multiply(multiply(t, exp(power)), splat(0.5))
    upper = add(splat(1.0), multiply(half, splat(-1.0)))
    return multiply(x, below(x, splat(0.0), half, upper))


@helper
def activate(kind, x, low, high, slopes):
    """The activation `kind` of ACTIVATIONS; its numbers are vectors, slopes those of channels."""
    zero, one = splat(0.0), splat(1.0)
    if kind == _LEAKY:
        return below(x, zero, multiply(x, low), x)
    if kind == _PRELU:
        return below(x, zero, multiply(x, slopes), x)
    if kind == _SIGMOID:
        return sigmoid(x)
    if kind == _HARD_SIGMOID:
        return at_most(at_least(add(multiply(x, low), high), zero), one)
    if kind == _HARD_SWISH:
        return hard_swish(x)
    if kind == _SILU:
        return multiply(x, sigmoid(x))
    if kind == _TANH_KIND:
        return tanh(x)
    if kind == _GELU:
        return gelu(x)
    return at_most(at_least(x, low), high)


@helper
def activate_pixels(step, channel, some, out, pixels, apart):
    """The step's activation where sums lie: `some` channels of pixels that lie `apart` bytes.

    The usual ones have loops of their own: asked which for every vector, they took twice the time.
    """
    kind = step.curved
    if kind in (_SILU, _HARD_SWISH):
        for _ in range(pixels):
            for c in range(0, some, WIDTH):
                x = _part(out, c, some - c)
                y = multiply(x, sigmoid(x)) if kind == _SILU else hard_swish(x)
                _put_part(out, c, y, some - c)
            out += apart
        return
    low, high = splat(step.low), splat(step.high)
    for _ in range(pixels):
        for c in range(0, some, WIDTH):
            slopes = load(step.slopes, channel + c) if step.slopes else low
            value = activate(kind, _part(out, c, some - c), low, high, slopes)
            _put_part(out, c, value, some - c)
        out += apart


@helper
def _part(address, index, some):
    """Sixteen numbers, or what is left."""
    return load(address, index) if some >= WIDTH else load_some(address, index, some)


@helper
def _put_part(address, index, value, some):
    """The other way."""
    if some >= WIDTH:
        store(address, index, value)
    else:
        store_some(address, index, value, some)
