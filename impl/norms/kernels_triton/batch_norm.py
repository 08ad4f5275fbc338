"""Triton kernels of batch norm, forward: with the statistics of the batch, and with constant ones.

Memory is seen as (samples, lines, length), contiguous, or with LAST as (length, lines). A line is a channel, or one of
`each` lines of a channel, one beside the other. A program takes a tile: LINES lines, and of each of them POSITIONS
elements of SAMPLES samples. So loads are dense in both memory formats, along a line or across the lines.

A channel that fits into one tile is read once and normalised where it is. Otherwise every tile yields the sum of its
part of a line and the squares of that part's deviations from its own mean. These partial results are combined in a
fixed order, without cancellation however large the mean is: n var = Σ M_i + Σ n_i (mean_i - mean)².

Source: T. F. Chan, G. H. Golub, R. J. LeVeque, Updating formulae and a pairwise algorithm for computing sample
variances, COMPSTAT 1982, eq. 2.1 for any number of parts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ...gpu.arithmetic import divide, number, reciprocal_sqrt


@triton.jit
def tile_of(
    samples, lines, length, over, tiles,
    LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Where the program's elements are, which of them there are, its lines, which of them there are, and its piece."""
    pid = tl.program_id(0).to(tl.int64)
    piece = pid // tiles
    line = (pid % tiles) * LINES + tl.arange(0, LINES)
    k = tl.arange(0, SAMPLES * POSITIONS)
    position = (piece % over) * POSITIONS + k % POSITIONS
    if LAST:
        at = position[None, :] * lines + line[:, None]
        mask = (line < lines)[:, None] & (position < length)[None, :]
    else:
        sample = (piece // over) * SAMPLES + k // POSITIONS
        at = (sample * lines * length + position)[None, :] + (line * length)[:, None]
        mask = (line < lines)[:, None] & ((sample < samples) & (position < length))[None, :]
    return at, mask, line, line < lines, piece


@triton.jit
def size_of(piece, samples, length, over, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr):
    """How many elements a line has in a piece."""
    rest = samples - piece // over * SAMPLES
    remainder = length - piece % over * POSITIONS
    return tl.minimum(rest, SAMPLES) * tl.minimum(remainder, POSITIONS)


@triton.jit
def of_channel(T, channel, there, ACC: tl.constexpr):
    """Elements of a (C,) tensor, to go with a tile."""
    return tl.load(T + channel, mask=there, other=0.0).to(ACC)[:, None]


@triton.jit
def affine(normalized, W, B, channel, there, ACC: tl.constexpr):
    """normalized * weight + bias."""
    if W is not None:
        normalized *= of_channel(W, channel, there, ACC)
    if B is not None:
        normalized += of_channel(B, channel, there, ACC)
    return normalized


@triton.jit
def _moved(RUNNING, channel, there, moment, keep, share, ACC: tl.constexpr):
    """keep RUNNING + share moment, in two roundings and one to its dtype, as `running.update` has it."""
    before = tl.load(RUNNING + channel, mask=there, other=0.0).to(ACC) * number(keep, ACC)
    return tl.fma(moment, number(share, ACC) + tl.zeros_like(before), before).to(RUNNING.dtype.element_ty)


@triton.jit
def store_statistics(
    MEAN, INVSTD, MOMENTS, RUNNING_MEAN, RUNNING_VAR, channel, there, channels, mean, squares, keep, share, count, less,
    eps, ACC: tl.constexpr,
):  # fmt: skip
    """What a training forward returns beside its output, or writes to running statistics; 1 / sqrt(variance + eps).

    The unbiased variance of a single element is 0 / 0, NaN.
    """
    invstd = reciprocal_sqrt(divide(squares, number(count, ACC)) + number(eps, ACC))
    unbiased = divide(squares, number(less, ACC))
    tl.store(MEAN + channel, mean, mask=there)
    tl.store(INVSTD + channel, invstd, mask=there)
    if MOMENTS is not None:
        tl.store(MOMENTS + channel, mean, mask=there)
        tl.store(MOMENTS + channels + channel, unbiased, mask=there)
    if RUNNING_MEAN is not None:
        moved_mean = _moved(RUNNING_MEAN, channel, there, mean, keep, share, ACC)
        moved_var = _moved(RUNNING_VAR, channel, there, unbiased, keep, share, ACC)
        # Several threads read each number and one writes it, after all have read.
        tl.debug_barrier()
        tl.store(RUNNING_MEAN + channel, moved_mean, mask=there)
        tl.store(RUNNING_VAR + channel, moved_var, mask=there)
    return invstd


@triton.jit(do_not_specialize=["keep", "share", "count", "less", "eps"])
def batch_norm_whole(
    X, W, B, Y, MEAN, INVSTD, MOMENTS, RUNNING_MEAN, RUNNING_VAR, keep, share,
    samples, lines, length, over, tiles, count, less, eps,
    DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Statistics of the batch and output, of channels that fit into a tile."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, _ = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    mean = divide(tl.sum(x, 1), number(count, ACC))
    centred = tl.where(mask, x - mean[:, None], 0.0)
    squares = tl.sum(centred * centred, 1)
    invstd = store_statistics(
        MEAN, INVSTD, MOMENTS, RUNNING_MEAN, RUNNING_VAR, line, there, lines, mean, squares, keep, share, count, less,
        eps, ACC,
    )  # fmt: skip
    y = affine(centred * invstd[:, None], W, B, line, there, ACC)
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=mask)


@triton.jit
def batch_norm_moments(
    X, PARTIAL, samples, lines, length, over, tiles, results,
    DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Of every piece of a line, into (2, pieces, lines), which has `results` elements in each half.

    First stand sums, then squares of the deviations from the piece's own mean.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, piece = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    total = tl.sum(x, 1)
    size = size_of(piece, samples, length, over, SAMPLES, POSITIONS).to(ACC)
    centred = tl.where(mask, x - divide(total, size)[:, None], 0.0)
    tl.store(PARTIAL + piece * lines + line, total, mask=there)
    tl.store(PARTIAL + results + piece * lines + line, tl.sum(centred * centred, 1), mask=there)


@triton.jit
def part_of(first, each, pieces, channel, channels, BLOCK: tl.constexpr):
    """Where partial results of channels are, in (pieces, channels, each); which there are; and their pieces."""
    k = first + tl.arange(0, BLOCK).to(tl.int64)
    piece = k // each
    at = (piece * channels * each + k % each)[None, :] + (channel * each)[:, None]
    return at, (channel < channels)[:, None] & (piece < pieces)[None, :], piece


@triton.jit(do_not_specialize=["keep", "share", "count", "less", "eps"])
def batch_norm_combine(
    PARTIAL, MEAN, INVSTD, MOMENTS, RUNNING_MEAN, RUNNING_VAR, keep, share,
    channels, each, pieces, samples, length, over, results, count, less, eps,
    DOUBLE: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr, SAMPLES: tl.constexpr, POSITIONS: tl.constexpr,
):  # fmt: skip
    """Statistics of channels from the partial results of `batch_norm_moments`."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    channel = tl.program_id(0).to(tl.int64) * CHANNELS + tl.arange(0, CHANNELS)
    total = tl.zeros((CHANNELS, BLOCK), ACC)
    for first in range(0, pieces * each, BLOCK):
        at, mask, piece = part_of(first, each, pieces, channel, channels, BLOCK)
        total += tl.load(PARTIAL + at, mask=mask, other=0.0)
    mean = divide(tl.sum(total, 1), number(count, ACC))
    squares = tl.zeros((CHANNELS, BLOCK), ACC)
    for first in range(0, pieces * each, BLOCK):
        at, mask, piece = part_of(first, each, pieces, channel, channels, BLOCK)
        size = size_of(piece, samples, length, over, SAMPLES, POSITIONS).to(ACC)[None, :]
        off = divide(tl.load(PARTIAL + at, mask=mask, other=0.0), size) - mean[:, None]
        own = tl.load(PARTIAL + results + at, mask=mask, other=0.0)
        squares += tl.where(mask, own + size * (off * off), 0.0)
    store_statistics(
        MEAN, INVSTD, MOMENTS, RUNNING_MEAN, RUNNING_VAR, channel, channel < channels, channels, mean,
        tl.sum(squares, 1), keep, share, count, less, eps, ACC,
    )  # fmt: skip


@triton.jit(do_not_specialize=["eps"])
def batch_norm_apply(
    X, MEAN, SCALE, W, B, Y, samples, lines, length, over, tiles, each, eps,
    CONSTANT: tl.constexpr, DOUBLE: tl.constexpr, LAST: tl.constexpr, LINES: tl.constexpr, SAMPLES: tl.constexpr,
    POSITIONS: tl.constexpr,
):  # fmt: skip
    """The output from statistics: SCALE is the variance where these are CONSTANT, else 1 / sqrt(variance + eps)."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    at, mask, line, there, _ = tile_of(samples, lines, length, over, tiles, LAST, LINES, SAMPLES, POSITIONS)
    channel = line // each
    scale = of_channel(SCALE, channel, there, ACC)
    if CONSTANT:
        scale = reciprocal_sqrt(scale + number(eps, ACC))
    x = tl.load(X + at, mask=mask, other=0.0).to(ACC)
    y = affine((x - of_channel(MEAN, channel, there, ACC)) * scale, W, B, channel, there, ACC)
    tl.store(Y + at, y.to(Y.dtype.element_ty), mask=mask)
