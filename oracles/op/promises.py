"""Two kinds of promises of an op: those of memory, and those of arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from ..bound.terms import Terms


@dataclass(frozen=True)
class MemoryPromises:
    """What an op promises of the memory of its outputs, and of what it keeps.

    Attributes:
        saved: (args, indices of arguments that require grad) -> bytes kept for backward, inputs included.
        aliases: (args) -> for every output that is not None, the position of the argument whose memory it shares, or
            None where its memory is its own; by default all outputs own theirs.
        identity: whether every output is its own argument: of a tensor a view that needs a gradient and has a tangent
            exactly where the argument does, with one node for all views in reverse mode; anything else as it is (WAYS).
        strides: (args) -> the strides of the first outputs that are not None; None where nothing is promised of them.
            The stride of an axis of one element is never used, and may be any number.
        contiguous: whether outputs, and gradients of an op that is no derivative itself, are contiguous whatever the
            strides of the operands (LAYOUT asks it of the production op).
        refuses_expanded: whether a call raises, and writes nothing, where an argument that it writes is expanded.
    """

    saved: Callable[[tuple[Any, ...], frozenset[int]], int] | None = None
    aliases: Callable[[tuple[Any, ...]], tuple[int | None, ...]] | None = None
    identity: bool = False
    strides: Callable[[tuple[Any, ...]], Sequence[tuple[int, ...]]] | None = None
    contiguous: bool = False
    refuses_expanded: bool = False


@dataclass(frozen=True)
class ArithmeticPromises:
    """How an op may compute its values, and how it divides its sums.

    Attributes:
        flush: whether an implementation may read subnormal numbers as zero, and return zero for them.
        algorithms: names of algorithms that an implementation may use besides those that always count: names that the
            formula declares, and `contract.EXP2`; an op refuses others. Each makes the bound wider where its error is.
        pieces: the extent of an axis, one of `strategies.SIZE_BANDS`, from which on the op works on operands of a half
            type in pieces (SIZE draws that extent in short profiles, too); 0 where it never does.
        steady: whether gradients of gradients have the same bits on any number of threads, too, while deterministic
            algorithms are on and all axes of an operand but one have one element (DET): then torch divides single sums
            among its threads.
        terms: all that an implementation may do, in place of `flush` and `algorithms`, where a user says it by terms.
    """

    flush: bool = False
    algorithms: frozenset[str] = frozenset()
    pieces: int = 0
    steady: bool = False
    terms: Terms | None = None


class PromiseKeywords(TypedDict, total=False):
    """The fields of both records as keywords; see `declaration.Keywords`."""

    saved: Callable[..., int] | None
    aliases: Callable[..., Sequence[str | int | None]] | None
    identity: bool
    strides: Callable[..., Sequence[tuple[int, ...]]] | None
    contiguous: bool
    refuses_expanded: bool
    flush: bool
    algorithms: frozenset[str]
    pieces: int
    steady: bool
    terms: Terms | None
