"""Which tensors travel together, and where an axis is cut: computed from sizes, without touching a tensor."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

#: Bytes of a bucket, as in torch.nn.parallel.comm.
BUCKET = 10 * 2**20


@dataclass(frozen=True)
class Piece:
    """A tensor to be moved: its bytes, and the kind that all tensors of its bucket must have."""

    size: int
    kind: Hashable


def chunks(length: int, parts: int) -> list[int]:
    """Sizes of the chunks of an axis, as `torch.chunk` cuts it: equal but for the last, and fewer than `parts` where
    the axis is short; all of them empty where the axis is."""
    if length == 0:
        return [0] * parts
    size = -(-length // parts)
    whole, rest = divmod(length, size)
    return [size] * whole + ([rest] if rest else [])


def buckets(pieces: Sequence[Piece], limit: int = BUCKET) -> list[list[int]]:
    """Indices of the pieces that travel together: of one kind, in order, at most `limit` bytes; a larger one alone."""
    groups: list[list[int]] = []
    filling: dict[Hashable, tuple[list[int], int]] = {}
    for i, piece in enumerate(pieces):
        # A kind has one open bucket at a time. A piece that does not fit closes it for good, because a later and
        # smaller piece in an older bucket would change the order.
        bucket, filled = filling.get(piece.kind, ([], 0))
        if not bucket or filled + piece.size > limit:
            bucket, filled = [], 0
            groups.append(bucket)
        bucket.append(i)
        filling[piece.kind] = bucket, filled + piece.size
    return groups
