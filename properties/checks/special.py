"""SPECIAL: NaN, infinities, zeros, subnormals and the largest finite value, at one site of one argument.

A derivative is linear in its direction, so cotangents and tangents get such values, too: no value may be lost, or reach
a result that does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from ...oracles.judge.judge import Judge
from ...oracles.judge.tally import LARGE
from ...oracles.op.declaration import EXECUTED, Sample, Stream, Tensor, dtype_name
from ...oracles.op.paths import Problem
from ...oracles.op.transforms import Word
from ...oracles.programs.along import defer_script
from ...oracles.verdicts.violation import Code, Unsupported
from ...reference.formats import FORMATS

_MODES: tuple[Word, ...] = (("vjp",), ("jvp",))
#: How many special values are planted in each operand of a sample, and in each argument that the op writes.
VALUES = 3


def special_values(tensor: Tensor) -> tuple[float, ...]:
    """The special values of a tensor's format."""
    fmt = FORMATS[dtype_name(tensor.dtype)]
    return (
        *(math.inf, fmt.max, fmt.smallest_subnormal),
        *(-math.inf, -fmt.max, 0.0),
        *(math.nan, fmt.smallest_normal, -0.0),
    )


def check_special_values(judge: Judge, sample: Sample) -> None:
    """SPECIAL: forward and reverse mode with special values planted in each operand, and both modes with directions."""
    if not judge.op.promises.specials:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} does not promise special values to be in its domain")
    rng = sample.seeded(Stream.SPECIAL)
    problem = Problem(judge.op, sample.args)
    subnormal = judge.subject_name == EXECUTED
    # A large sample, which fills the blocks of kernels, gets subnormal numbers only: they show there what a special
    # value at one site does not.
    count = 0 if subnormal and judge.tally.part == LARGE else VALUES
    # An op without gradients has no differentiable operands, so its values are judged in all of its operands.
    for i in (*(problem.wrt if judge.op.differentiable else problem.fixed), *judge.op.mutated_positions(sample.args)):
        # In three successive samples each argument gets all nine values. The arguments of one sample begin with
        # different values, so that one sample has more than three of them.
        for special in _plant(sample.args[i], VALUES * (sample.turn + i), count, rng, subnormal):
            laced = sample.with_args([*sample.args[:i], special, *sample.args[i + 1 :]])
            judge.hold(laced, ())
            if judge.op.differentiable:
                judge.hold(laced, ("vjp",), "eager")
    if judge.op.differentiable:
        _judge_directions(judge, sample, min(count, 1 if judge.light else VALUES), rng)


def _judge_directions(judge: Judge, sample: Sample, count: int, rng: Any) -> None:
    """Judge both modes with `count` special values in turn in each cotangent, and in each tangent.

    A derivative is linear in its direction. So an infinity or a NaN in it must not be lost, nor reach a result that
    does not depend on it.
    """
    with torch.no_grad():
        primal = judge.primal(sample)
    for word in _MODES if "jvp" not in judge.op.promises.without else _MODES[:1]:
        path = judge.path(sample, word, primal, "eager")
        # Neighbouring directions get different values, and in nine successive samples each direction gets every value.
        for i, direction in enumerate(path.directions):
            for special in _plant(direction, 4 * sample.turn + 2 * i, count, rng, judge.subject_name == EXECUTED):
                laced = path.along(word, [*path.directions[:i], special, *path.directions[i + 1 :]])
                computed = judge.run(laced)
                name = f"{path.name} with a special value in direction {i}"
                expected = laced.expected(name, make_script=defer_script(laced))
                # Balls bound results of finite directions; only the exact reading gives those of NaN or infinities.
                judge.against(expected, computed, exactly=not (judge.light and expected.finite))


def _plant(tensor: Tensor, first: int, count: int, rng: Any, subnormal: bool) -> Iterator[Tensor]:
    """Copies of a tensor with one special value at one site; no copy of a tensor without elements.

    Args:
        tensor, rng: what is copied, and the generator of sites. first, count: the numbers of the special values.
        subnormal: whether there are two more copies, for instructions of PTX with `.ftz`. One has only subnormal
            numbers, because the loss of one would not show in a sum with a normal number. In the other the exponentials
            of differences are subnormal, and a few elements are large, so that exponentials without them overflow.
    """
    if not tensor.numel():
        return
    every = special_values(tensor)
    for number in range(first, first + count):
        copy = tensor.clone()
        site = np.unravel_index(int(rng.integers(copy.numel())), tuple(copy.shape))
        copy[tuple(map(int, site))] = torch.tensor(every[number % len(every)], dtype=tensor.dtype)
        yield copy
    if subnormal:
        smallest = FORMATS[dtype_name(tensor.dtype)].smallest_normal
        numbers = np.asarray(rng.uniform(-0.5, 0.5, tuple(tensor.shape)))
        yield torch.from_numpy(np.asarray(numbers * smallest)).to(tensor.dtype)
        few = np.where(rng.random(numbers.shape) < 1 / 16, 4.0, 1.0)
        yield torch.from_numpy(np.asarray(numbers * few * -math.log(smallest) * 1.15)).to(tensor.dtype)
