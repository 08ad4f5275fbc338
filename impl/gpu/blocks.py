"""The tile of a tensor that one program of a kernel takes, and its warps, looked up by shapes alone.

Nothing here depends on the device, because the split of a sum must not. Nor does the tile of contiguous rows depend on
how many there are: such a row has the same bits in a batch of one and in a batch of a million. Of rows that lie side by
side the tile depends on their number, which is part of the shape of every sample.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

#: Elements of a program that keeps several rows at once.
_TILE = 4096
#: Elements of a row of which a program sees one piece at a time, because the row does not fit on the chip.
_PIECE = 4096


#: Rows side by side that are read together: fewer would leave most of each sector of memory unread.
DENSE = 16


class Tile(NamedTuple):
    """The elements that one program takes.

    Attributes:
        rows, block: rows, and elements of each at a time; powers of two.
        warps: of 32 threads.
        whole: whether a block holds a whole row; else a program goes over its rows in pieces.
    """

    rows: int
    block: int
    warps: int
    whole: bool


@functools.lru_cache(maxsize=8192)
def along_rows(length: int, most: int) -> Tile:
    """The tile for rows that are contiguous.

    Args:
        length: of a row. most: elements of the longest row that the kernel can keep in registers.
    """
    block = power_of_two(length)
    if block > most:
        return Tile(1, min(_PIECE, most), 8, False)
    rows = max(1, _TILE // max(block, 64)) if block <= 2048 else 1
    return Tile(rows, block, warps(rows * block), True)


@functools.lru_cache(maxsize=8192)
def across_rows(length: int, inner: int, most: int) -> Tile:
    """The tile for rows that lie side by side, `inner` of them: a program takes neighbours, so that loads are dense.

    Args:
        length: of a row, whose elements are `inner` apart. most: elements that the kernel can keep in registers.
    """
    rows, block = min(power_of_two(inner), 32), power_of_two(length)
    if rows * block > most:
        return Tile(rows, max(1, _PIECE // rows), 8, False)
    rows = min(power_of_two(inner), max(rows, _TILE // block))
    return Tile(rows, block, warps(rows * block), True)


def warps(elements: int) -> int:
    """The warps of a program of `elements` elements, so that up to 32768 of them are at most 32 per thread."""
    return 4 if elements <= 2048 else 8 if elements <= 8192 else 16 if elements <= 16384 else 32


def power_of_two(count: int) -> int:
    """The smallest power of two that is at least `count`, and at least 1."""
    return 1 << max(count - 1, 0).bit_length()


def ceil_div(count: int, size: int) -> int:
    """How many pieces of a size `count` elements make."""
    return -(-count // size)
