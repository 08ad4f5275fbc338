"""The arguments of a sweep, cut into shards that can be measured anywhere and in any order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from opassay.reference.formats import FORMATS, Format

from .reading import is_exhaustive, shards_of

Bits = npt.NDArray[np.unsignedinteger[Any]]

DTYPES = tuple(FORMATS)
#: How many arguments are measured at once: their arrays fit in the processor's cache, and reuse their memory.
_AT_ONCE = 2**16
#: Mantissas for each exponent and sign in one shard of a format that is too large to be swept.
_MANTISSAS = 32
#: Exponents at which elementary functions neither overflow nor equal their first Taylor term.
_LIVELY = range(-40, 12)

_UNSIGNED: dict[int, type[np.unsignedinteger[Any]]] = {16: np.uint16, 32: np.uint32, 64: np.uint64}


def patterns_of_shard(dtype: str, shard: int) -> Iterator[Bits]:
    """The bit patterns of one shard, in parts that are measured at once.

    Formats of 16 and 32 bits: every pattern, NaNs too, in order. Formats of 64 bits: mantissas drawn for every exponent
    and sign, most of them for the exponents `_LIVELY`; the number of the shard is the seed.

    Raises:
        ValueError: there is no such shard.
    """
    fmt, shards = FORMATS[dtype], shards_of(dtype)
    if not 0 <= shard < shards:
        raise ValueError(f"sweep: got shard={shard}, need 0 to {shards - 1} for dtype={dtype}")
    unsigned = _UNSIGNED[fmt.bits]
    if not is_exhaustive(dtype):
        yield _draw_patterns(fmt, shard)
        return
    length = 2**fmt.bits // shards
    for start in range(shard * length, (shard + 1) * length, _AT_ONCE):
        stop = min(start + _AT_ONCE, (shard + 1) * length)
        yield np.arange(start, stop, dtype=np.uint64).astype(unsigned)


def neighbours(bits: Bits, fmt: Format, random: np.random.Generator, count: int) -> Bits:
    """Arguments near those in `bits`, at every distance: a random number of last mantissa bits is drawn anew."""
    middles = random.choice(bits, count).astype(np.uint64)
    last = random.integers(1, fmt.precision - 1, count, dtype=np.uint64)
    tails = random.integers(0, 2**63, count, dtype=np.uint64) & ((np.uint64(1) << last) - np.uint64(1))
    return (middles ^ tails).astype(_UNSIGNED[fmt.bits])


def _draw_patterns(fmt: Format, shard: int) -> Bits:
    random = np.random.default_rng(shard)
    exponents = np.arange(fmt.exponent_max - fmt.exponent_min + 2, dtype=np.uint64)  # 0 is that of the subnormals
    lively = np.array([exponent - fmt.exponent_min + 1 for exponent in _LIVELY], dtype=np.uint64)
    every = np.concatenate([np.repeat(exponents, _MANTISSAS), np.repeat(lively, 100 * _MANTISSAS)])
    mantissas = random.integers(0, 2 ** (fmt.precision - 1), len(every), dtype=np.uint64)
    positive = (every << np.uint64(fmt.precision - 1)) | mantissas
    return np.concatenate([positive, positive | np.uint64(1) << np.uint64(fmt.bits - 1)])
