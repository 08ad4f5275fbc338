"""Rows in place of a large problem: the candidate computes all of it, and some rows are read and held.

What this is for: a bound takes some twenty times as long as what it bounds, and a judgement asks twenty questions. Of a
spec that keeps rows apart (`row_independence`) every row can be read by itself. So of large outputs each
question holds rows that are drawn when the candidate has answered, one of every stretch of them; and the questions that
differ in their inputs alone are asked in one call, each on rows of its own. Every finding says how many rows it is of.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...oracles.bound.terms import Terms
from ...oracles.op.declaration import is_float
from .arguments import CallArguments, Tensor
from .inputs import WAYS, Way, filled_tensor
from .row_independence import keeps_rows
from .specification import SpecError, Specification

#: From so many elements of arguments and outputs on a problem is large; of so many of them one question is read.
LARGE, READ = 2**21, 2**19
#: Elements that are drawn for one operand, which are then repeated; a prime, so that rows do not begin alike.
DRAW_SIZE = 2**20 + 7


@dataclass(frozen=True)
class ProblemCut:
    """The part of a problem that one question calls the candidate with, and the part that it compares.

    Attributes:
        call_arguments: of the call. spec_arguments: of the spec; they have only the rows that are compared.
        rows: the rows of the outputs that are compared; None if the call computes no others.
        share: the part of a large problem that is compared, in words; empty for all of it.
    """

    call_arguments: CallArguments
    spec_arguments: CallArguments
    rows: list[int] | None
    share: str


@dataclass(frozen=True)
class Part:
    """How a large problem is cut.

    Attributes:
        count: of its rows. size: of them, for one question.
        having: which of the tensors among the arguments have rows, along axis 0; all outputs do.
        shapes: of the outputs.
    """

    count: int
    size: int
    having: tuple[bool, ...]
    shapes: tuple[tuple[int, ...], ...]

    def rows(self, rng: Any, among: Sequence[int] = ()) -> list[int]:
        """Rows for one question: one of every stretch, of all or of those to choose among, and the ends.

        They are as many as the spec is known to keep apart, so of few to choose among some come again.
        """
        pool = among or range(self.count)
        edges = np.linspace(0, len(pool), min(self.size, len(pool)) + 1).astype(int)
        rows = [pool[int(rng.integers(low, high))] for low, high in itertools.pairwise(edges)]
        if len(rows) > 2:  # A kernel that is wrong in the tail of its tiles may be wrong in the last row alone.
            rows[0], rows[-1] = pool[0], pool[-1]
        return [rows[i % len(rows)] for i in range(self.size)]

    def of(self, arguments: CallArguments, rows: Sequence[int]) -> CallArguments:
        """The arguments with these rows alone."""
        index = torch.tensor(list(rows))
        pairs = zip(arguments.tensors, self.having, strict=True)
        return arguments.with_tensors([t[index.to(t.device)] if has else t for t, has in pairs])

    def describe(self, rows: Sequence[int]) -> str:
        return f"{len(set(rows))} of {self.count} rows"


def part_of(spec: Specification, arguments: CallArguments, terms: Terms, read: int = READ) -> Part | None:
    """How a problem is cut; None for one that is not large, or not known to keep its rows apart.

    Args:
        spec, arguments, terms: the problem. read: elements of arguments and outputs that one question is read of.

    Of a spec that cannot be traced, which is said where it is read, there is none either.
    """
    tensors, state = arguments.tensors, spec.state
    if spec.numpy or not tensors or not all(map(is_float, (*tensors, *state.values()))):
        return None
    try:
        traced = spec.traced_at(arguments, state)
    except SpecError:
        return None
    shapes = tuple(tuple(output.shape) for output in traced.outputs)
    elements = sum(t.numel() for t in tensors) + sum(math.prod(shape) for shape in shapes)
    count = shapes[0][0] if shapes and shapes[0] else 0
    if elements < LARGE or traced.written_inputs or count < 2 or any(shape[:1] != (count,) for shape in shapes):
        return None
    if not all(output.dtype.is_floating_point for output in traced.outputs):
        return None
    rows = min(max(read * count // elements, 1), count - 1)
    for having in _who_may_have_rows(tensors, count):
        part = Part(count, rows, having, shapes)
        at = functools.partial(with_rows, spec, arguments, part)
        flags = (*(False for _ in state), *having)
        if keeps_rows(at, flags, (count, rows), terms.contract(spec.dtype_of(arguments, state))):
            return part
    return None


def _who_may_have_rows(tensors: Sequence[Tensor], count: int) -> Iterator[tuple[bool, ...]]:
    """All tensors of the most axes that are so long along axis 0, or the first of them alone: of a square product."""
    may = [t.ndim if t.ndim and len(t) == count else 0 for t in tensors]
    most = max(may)
    if most:
        yield tuple(ndim == most for ndim in may)
        yield tuple(i == may.index(most) for i in range(len(may)))


def with_rows(spec: Specification, arguments: CallArguments, part: Part, rows: int) -> tuple[Any, Any]:
    """The spec with so many rows as a function of arrays, and their shapes."""
    few = arguments if rows == part.count else part.of(arguments, range(rows))
    return spec.traced_at(few, spec.state), [*(tuple(t.shape) for t in spec.state.values()), *few.shapes]


def draw_tensor(tensor: Tensor, way: Way, rng: Any) -> Tensor:
    """A tensor like another, filled in a way: of a large one a stretch, again and again."""
    values = filled_tensor(tensor.reshape(-1)[:DRAW_SIZE], way, rng)
    return values.repeat(-(-tensor.numel() // max(len(values), 1)))[: tensor.numel()].reshape(tensor.shape)


def packed(
    part: Part, arguments: CallArguments, codes: Sequence[str], rng: Any
) -> tuple[CallArguments, dict[str, list[int]]]:
    """Arguments whose rows are filled in several ways, in turn, and which rows are of which way.

    Args:
        part, arguments: the problem. codes: of the ways, at most as many as there are rows. rng: what draws.
    """
    rows = {code: list(range(i, part.count, len(codes))) for i, code in enumerate(codes)}
    tensors = []
    for tensor, has in zip(arguments.tensors, part.having, strict=True):
        if not has:
            # Integers, so that rows of integers have exact products with them.
            tensors.append(draw_tensor(tensor, WAYS["DATA:integers"], rng))
            continue
        filled = torch.empty_like(tensor, memory_format=torch.contiguous_format)
        for i, code in enumerate(codes):
            filled[i :: len(codes)] = draw_tensor(tensor[i :: len(codes)], WAYS[code], rng)
        tensors.append(filled)
    return arguments.with_tensors(tensors), rows
