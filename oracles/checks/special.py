"""SPECIAL: NaN, infinities, zeros, subnormals and the largest finite value, at one site of one argument."""

from __future__ import annotations

import math

import torch

from ...reference.formats import FORMATS
from ..judge import Judge
from ..op import Sample, Stream, Tensor, dtype_name
from ..paths import Problem
from ..verdict import Code
from ..violation import Unsupported

#: So many of the special values are planted in each operand of a sample, and in each argument that the op writes.
VALUES = 3


def special_values(tensor: Tensor) -> tuple[float, ...]:
    """The special values of a tensor's format."""
    fmt = FORMATS[dtype_name(tensor.dtype)]
    return (
        *(math.inf, fmt.max, fmt.smallest_subnormal),
        *(-math.inf, -fmt.max, 0.0),
        *(math.nan, fmt.smallest_normal, -0.0),
    )


def specials(judge: Judge, sample: Sample) -> None:
    """SPECIAL: forward, and reverse mode, with special values planted in each operand."""
    if not judge.op.promises.specials:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} does not promise special values to be in its domain")
    rng = sample.seeded(Stream.SPECIAL)
    for i in (*Problem(judge.op, sample.args).wrt, *judge.op.written(sample.args)):
        tensor = sample.args[i]
        if not tensor.numel():
            continue
        # Three samples one after the other have all values in each of their arguments. Other arguments begin with
        # others, so that a sample has more than three of them.
        every = special_values(tensor)
        for value in (every[(VALUES * (sample.turn + i) + j) % len(every)] for j in range(VALUES)):
            planted = tensor.clone()
            planted.view(-1)[int(rng.integers(planted.numel()))] = torch.tensor(value, dtype=tensor.dtype)
            laced = sample.with_args([*sample.args[:i], planted, *sample.args[i + 1 :]])
            judge.hold(laced, ())
            judge.hold(laced, ("vjp",), "eager")
