"""Triton kernels of local response normalisation: a program goes over channels, their windows in registers.

Letters as in `kernels_cpu`: a the input, g the cotangent, s = k + scale W a^2, t = g a s^(-beta - 1). A tensor is seen
as (images, channels, positions), and a lane is a position of an image: neighbouring lanes are neighbours in memory. A
program has some lanes and `CHUNK` channels; the channels around them, which its neighbours own, it reads, too.

A window is added up anew for every channel, because a running sum, which subtracts the channel that leaves, loses the
small channels behind a large one. Windows too long for the registers are read again for every channel (`_long`).

Source: A. Krizhevsky, I. Sutskever, G. E. Hinton, ImageNet Classification with Deep Convolutional Neural Networks,
NeurIPS 2012, section 3.3.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..gpu.arithmetic import divide, number, times_power_of_two


@triton.jit
def _root(s):
    return tl.sqrt(s) if s.dtype == tl.float64 else tl.sqrt_rn(s)


@triton.jit
def _scale_to_power(s, exponent, KIND: tl.constexpr):
    """s^exponent. The kind is the exponent where that is usual, else "even", "odd" or "general"."""
    if KIND == "0":
        power = tl.full(s.shape, 1.0, s.dtype)
    elif KIND == "1":
        power = s
    elif KIND == "2":
        power = s * s
    elif KIND == "1/2":
        power = _root(s)
    elif KIND == "3/4":
        power = _root(s) * _root(_root(s))
    else:
        power = _general_power(s, exponent, KIND)
    return power


@triton.jit
def _general_power(s, exponent, KIND: tl.constexpr):
    """|s|^exponent = 2^(exponent n) m^exponent for |s| = m 2^n, with the sign of s where the exponent is odd.

    In float32 it is as accurate as the hardware's 2^x, of 2 ulp (PTX ISA, ex2.approx.ftz.f32), and as the logarithm of
    m, of 1 ulp (CUDA C++ Programming Guide), times the exponent.
    """
    size = tl.abs(s)
    usual = (size > 0.0) & (size < float("inf"))
    # The logarithm may be large, and the rounding error of its product with the exponent is a relative error of the
    # power. So the integer part n is taken apart, and the product with it is held in two numbers.
    n = tl.floor(tl.where(usual, tl.log2(size), 0.0))
    INTEGER: tl.constexpr = tl.int64 if s.dtype == tl.float64 else tl.int32
    m = times_power_of_two(tl.where(usual, size, 1.0), -n.to(INTEGER))
    high = exponent * n
    low = tl.fma(exponent, n, -high) + exponent * tl.log2(m)
    # Beyond the bounds the power is zero or infinity by its first factor alone, or together with the second.
    most = 2044.0 if s.dtype == tl.float64 else 252.0
    whole = tl.minimum(tl.maximum(tl.floor(high), -most), most)
    power = times_power_of_two(tl.exp2((high - whole) + low), whole.to(INTEGER))
    power = tl.where(size == 0.0, tl.where(exponent > 0.0, 0.0, float("inf")), power)
    power = tl.where(size == float("inf"), tl.where(exponent > 0.0, float("inf"), 0.0), power)
    if KIND == "odd":
        power = tl.where(s < 0.0, -power, power)
    if KIND == "general":
        power = tl.where(s < 0.0, float("nan"), power)
    return tl.where(s == s, power, s)


@triton.jit
def _normalised(a, s, exponent, KIND: tl.constexpr, UP: tl.constexpr, FAST: tl.constexpr):
    """a s^(-beta) for the exponent |beta|; `UP` where beta is negative, `FAST` where the result becomes a half one.

    The fast root and reciprocal root have relative errors of 2^-23 and 2^-22.9 (PTX ISA, sqrt.approx and rsqrt.approx),
    which is little beside the rounding to a half dtype.
    """
    if UP:
        out = a * _scale_to_power(s, exponent, KIND)
    elif FAST and KIND == "3/4":
        out = a * (tl.rsqrt(s) * tl.sqrt(tl.rsqrt(s)))
    elif FAST and KIND == "1/2":
        out = a * tl.rsqrt(s)
    else:
        out = divide(a, _scale_to_power(s, exponent, KIND))
    return out


@triton.jit
def _term(g, a, s, scaled, exponent, KIND: tl.constexpr, UP: tl.constexpr):
    """t = g a s^(-beta - 1), of `scaled` = g s^(-beta) where beta > 0; else by the exponent -beta - 1: s may be 0."""
    return g * a * _scale_to_power(s, exponent, KIND) if UP else divide(scaled * a, s)


@triton.jit
def _place(lanes, channels, positions, CHUNK: tl.constexpr, LANES: tl.constexpr):
    """Where the lanes of this program begin, which of them there are, and its first channel."""
    pid = tl.program_id(0).to(tl.int64)
    chunks = (channels + CHUNK - 1) // CHUNK
    # Programs of the same lanes follow each other, so that the channels that two of them read are still in L2.
    lane = (pid // chunks) * LANES + tl.arange(0, LANES)
    return (lane // positions) * channels * positions + lane % positions, lane < lanes, (pid % chunks) * CHUNK


@triton.jit
def _channel(X, start, there, channel, channels, positions, ACC: tl.constexpr):
    """A channel of all lanes; zeros where there is no such channel."""
    mask = there & (channel >= 0) & (channel < channels)
    return tl.load(X + (start + channel * positions), mask=mask, other=0.0).to(ACC)


@triton.jit
def _last(values, COUNT: tl.constexpr):
    """The sum of the last values of a tuple."""
    total = values[len(values) - COUNT]
    for i in tl.static_range(1, COUNT):
        total += values[len(values) - COUNT + i]
    return total


@triton.jit(do_not_specialize=["scale", "k", "exponent"])
def response_norm_forward(
    X, Y, lanes, channels, positions, scale, k, exponent,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, KIND: tl.constexpr, UP: tl.constexpr,
    FAST: tl.constexpr, DOUBLE: tl.constexpr, CHUNK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """a s^(-beta)."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    scale, k, exponent = number(scale, ACC), number(k, ACC), number(exponent, ACC)
    start, there, first = _place(lanes, channels, positions, CHUNK, LANES)
    values, squares = (), ()
    for i in tl.static_range(CHUNK + BEFORE + AFTER):
        a = _channel(X, start, there, first + (i - BEFORE), channels, positions, ACC)
        values += (a,)
        squares += (a * a,)
        if i >= BEFORE + AFTER:
            s = _last(squares, BEFORE + AFTER + 1) * scale + k
            y = _normalised(values[i - AFTER], s, exponent, KIND, UP, FAST)
            channel = first + (i - BEFORE - AFTER)
            at = start + channel * positions
            tl.store(Y + at, y.to(Y.dtype.element_ty), mask=there & (channel < channels))


@triton.jit(do_not_specialize=["scale", "k", "exponent", "inner_exponent", "slope"])
def response_norm_backward(
    G, X, D, lanes, channels, positions, scale, k, exponent, inner_exponent, slope,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, KIND: tl.constexpr, INNER_KIND: tl.constexpr, UP: tl.constexpr,
    FAST: tl.constexpr, DOUBLE: tl.constexpr, CHUNK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """g s^(-beta) + slope a W' t; W' is the sum over the mirrored window."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    scale, k, slope = number(scale, ACC), number(k, ACC), number(slope, ACC)
    exponent, inner_exponent = number(exponent, ACC), number(inner_exponent, ACC)
    start, there, first = _place(lanes, channels, positions, CHUNK, LANES)
    REACH: tl.constexpr = BEFORE + AFTER
    values, squares, scaled, terms = (), (), (), ()
    for i in tl.static_range(CHUNK + 2 * REACH):
        a = _channel(X, start, there, first + (i - REACH), channels, positions, ACC)
        values += (a,)
        squares += (a * a,)
        if i >= REACH:
            centre = first + (i - REACH - AFTER)
            g = _channel(G, start, there, centre, channels, positions, ACC)
            s = _last(squares, REACH + 1) * scale + k
            p = _normalised(g, s, exponent, KIND, UP, FAST)
            t = _term(g, values[i - AFTER], s, p, inner_exponent, INNER_KIND, UP)
            scaled += (p,)
            # Where there is no channel s is k, which may be zero, and t would be NaN.
            terms += (tl.where((centre >= 0) & (centre < channels), t, 0.0),)
        if i >= 2 * REACH:
            d = scaled[i - 2 * REACH + AFTER] + slope * values[i - REACH] * _last(terms, REACH + 1)
            channel = first + (i - 2 * REACH)
            at = start + channel * positions
            tl.store(D + at, d.to(D.dtype.element_ty), mask=there & (channel < channels))


@triton.jit
def window_sum(
    X, Y, lanes, channels, positions,
    BEFORE: tl.constexpr, AFTER: tl.constexpr, DOUBLE: tl.constexpr, CHUNK: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The sum over each channel's window."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there, first = _place(lanes, channels, positions, CHUNK, LANES)
    values = ()
    for i in tl.static_range(CHUNK + BEFORE + AFTER):
        values += (_channel(X, start, there, first + (i - BEFORE), channels, positions, ACC),)
        if i >= BEFORE + AFTER:
            channel = first + (i - BEFORE - AFTER)
            at = start + channel * positions
            total = _last(values, BEFORE + AFTER + 1)
            tl.store(Y + at, total.to(Y.dtype.element_ty), mask=there & (channel < channels))


@triton.jit
def _read_again(
    X, start, there, channel, channels, positions, before, after,
    SQUARED: tl.constexpr, ACC: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """The sum over a channel's window, of squares where asked for."""
    total = tl.zeros((LANES,), ACC)
    for j in range(0, before + after + 1):
        a = _channel(X, start, there, channel - before + j, channels, positions, ACC)
        total += a * a if SQUARED else a
    return total


@triton.jit(do_not_specialize=["scale", "k", "exponent"])
def response_norm_forward_long(
    X, Y, lanes, channels, positions, scale, k, exponent, before, after,
    KIND: tl.constexpr, UP: tl.constexpr, FAST: tl.constexpr, DOUBLE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """a s^(-beta); a program has one channel."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    scale, k, exponent = number(scale, ACC), number(k, ACC), number(exponent, ACC)
    start, there, channel = _place(lanes, channels, positions, 1, LANES)
    s = _read_again(X, start, there, channel, channels, positions, before, after, True, ACC, LANES) * scale + k
    a = _channel(X, start, there, channel, channels, positions, ACC)
    y = _normalised(a, s, exponent, KIND, UP, FAST)
    tl.store(Y + (start + channel * positions), y.to(Y.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["scale", "k", "exponent", "inner_exponent"])
def response_norm_terms_long(
    G, X, P, T, lanes, channels, positions, scale, k, exponent, inner_exponent, before, after,
    KIND: tl.constexpr, INNER_KIND: tl.constexpr, UP: tl.constexpr, FAST: tl.constexpr, DOUBLE: tl.constexpr,
    LANES: tl.constexpr,
):  # fmt: skip
    """g s^(-beta) into P and t into T, both in the dtype of the sums."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    scale, k = number(scale, ACC), number(k, ACC)
    exponent, inner_exponent = number(exponent, ACC), number(inner_exponent, ACC)
    start, there, channel = _place(lanes, channels, positions, 1, LANES)
    s = _read_again(X, start, there, channel, channels, positions, before, after, True, ACC, LANES) * scale + k
    a = _channel(X, start, there, channel, channels, positions, ACC)
    g = _channel(G, start, there, channel, channels, positions, ACC)
    p = _normalised(g, s, exponent, KIND, UP, FAST)
    tl.store(P + (start + channel * positions), p, mask=there)
    tl.store(T + (start + channel * positions), _term(g, a, s, p, inner_exponent, INNER_KIND, UP), mask=there)


@triton.jit(do_not_specialize=["slope"])
def response_norm_backward_long(
    P, X, T, D, lanes, channels, positions, slope, before, after, DOUBLE: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """P + slope a W' T."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    slope = number(slope, ACC)
    start, there, channel = _place(lanes, channels, positions, 1, LANES)
    total = _read_again(T, start, there, channel, channels, positions, after, before, False, ACC, LANES)
    a = _channel(X, start, there, channel, channels, positions, ACC)
    d = _channel(P, start, there, channel, channels, positions, ACC) + slope * a * total
    tl.store(D + (start + channel * positions), d.to(D.dtype.element_ty), mask=there)


@triton.jit
def window_sum_long(
    X, Y, lanes, channels, positions, before, after, DOUBLE: tl.constexpr, LANES: tl.constexpr
):  # fmt: skip
    """The sum over each channel's window."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    start, there, channel = _place(lanes, channels, positions, 1, LANES)
    total = _read_again(X, start, there, channel, channels, positions, before, after, False, ACC, LANES)
    tl.store(Y + (start + channel * positions), total.to(Y.dtype.element_ty), mask=there)
