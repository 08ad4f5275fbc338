"""Laws by the names of arguments: relations between calls of an op that hold whatever its formula's numbers are.

A law makes several calls of a sample, each with some arguments changed, and says how the outputs of these calls are
related. What is hard here: a law that must hold bit for bit must not change how a call rounds. So a factor is a power
of two, and a law does not apply where a product or a sum of the inputs is not exact.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...oracles.op.declaration import Law
from .signature import Args, ArgumentsByName, Signature, call, taking

Tensor = torch.Tensor
Outputs = tuple[Tensor, ...]
Changes = ArgumentsByName

#: A number argument, such as eps, that is scaled below this counts as zero, and then the law does not apply.
NEGLIGIBLE = 1e-30
#: Tensors below this magnitude can be shifted exactly in every format.
SHIFTABLE = 2.0**40


@dataclass(frozen=True)
class Relation:
    """Any relation between calls, before it belongs to an op; `law` in a declaration.

    Attributes:
        name: the relation in a few words.
        calls: (arguments by name, rng) -> for every call the changed arguments, {} for the sample itself; None where
            the law does not apply.
        relate: (*outputs of each call, arguments by keyword alone) -> the two sides that must be equal, as tuples of
            tensors. Where the law is not exact, outputs are float64, and `relate` must be linear in them.
        exact: whether the sides must be equal bit for bit; else they may differ by the sum of the bounds of all calls.
        word: the steps "jvp" and "vjp", innermost first, of the derivative to call; all calls get equal directions.
    """

    name: str
    calls: Callable[..., Sequence[Changes] | None]
    relate: Callable[..., tuple[Any, Any]]
    exact: bool = field(default=False, kw_only=True)
    word: tuple[str, ...] = field(default=(), kw_only=True)

    def of(self, signature: Signature) -> Law:
        """The law of an op.

        Raises:
            ValueError: a parameter of `calls` or `relate` is no argument of the op.
        """
        what = f"law {self.name!r}"
        read = signature.reader(what, self.calls, "rng")

        def calls(args: Args, rng: Any) -> list[Args] | None:
            all_changes = read(args, rng=rng)
            return None if all_changes is None else [signature.changed(what, args, changes) for changes in all_changes]

        return Law(self.name, calls, signature.relation(what, self.relate), self.exact, self.word)


law = Relation


def unchanged(outputs: Outputs) -> Outputs:
    """The outputs themselves; as `relate` of `pair`: the second call must have the outputs of the first."""
    return outputs


def pair(
    name: str,
    change: Callable[..., Changes | None],
    relate: Callable[..., Sequence[Any]] = unchanged,
    *,
    exact: bool = False,
) -> Relation:
    """The relation of a sample and one change of it: f(changed) = relate(f(sample)).

    Args:
        name: the relation in a few words.
        change: (arguments by name, rng) -> the changed arguments; None where the law does not apply.
        relate: (outputs of the sample, arguments by keyword alone) -> the outputs that the changed call must have.
        exact: whether they must be equal bit for bit.
    """

    @functools.wraps(change)
    def calls(**named: Any) -> Sequence[Changes] | None:
        changes = change(**named)
        return None if changes is None else ({}, changes)

    @functools.wraps(relate)
    def relation(first: Outputs, second: Outputs, **named: Any) -> tuple[Any, Any]:
        return second, relate(first, **named)

    return Relation(name, calls, relation, exact=exact)


def scale(
    powers: Mapping[str, int],
    outputs: Sequence[int] = (0,),
    *,
    by: float | None = None,
    when: Callable[..., bool] | None = None,
) -> Relation:
    """Arguments times powers of one power of two: every rounding scales with them, so the law holds bit for bit.

    Args:
        powers: by name of an argument, tensor or number, the power of the factor with which it is multiplied.
        outputs: the same for each output; the last entry is for all further ones.
        by: the factor, a power of two; by default it is drawn, and then the outputs must not change.
        when: (arguments by name) -> whether the law applies.

    Raises:
        ValueError: the factor is no power of two, or the outputs are to change by a factor that is drawn.
    """
    if by is not None and math.frexp(by)[0] != 0.5:
        raise ValueError(f"by={by!r}: need a power of two, by which products are exact")
    if by is None and any(outputs):
        raise ValueError(f"outputs={tuple(outputs)}: need zeros where no factor is given as by=")

    def change(rng: Any, **named: Any) -> Changes | None:
        # A power of two changes no significand, so every rounding of the second call is that of the first, unless
        # something overflows or underflows on the way; `_scales_exactly` keeps far from both.
        factor = 2.0 ** int(rng.integers(-3, 4)) if by is None else by
        changes = {n: None if named[n] is None else named[n] * factor**power for n, power in powers.items()}
        is_exact = all(_scales_exactly(named[n], new, factor ** powers[n]) for n, new in changes.items())
        return changes if is_exact else None

    def relate(first: Outputs) -> Outputs:
        return tuple(y * (by or 1.0) ** _at(outputs, i) for i, y in enumerate(first))

    return pair(f"scale {' and '.join(powers)}", _change_arguments((*powers, "rng"), change, when), relate, exact=True)


def mirror(*names: str, outputs: Sequence[int] = (-1,), exact: bool = True) -> Relation:
    """Tensors that change sign: so do outputs.

    Args:
        names: of the tensors; one that is None stays.
        outputs: the sign of each output; the last entry is for all further ones.
        exact: as for `law`.
    """

    def change(**named: Any) -> Changes:
        return {name: None if x is None else -x for name, x in named.items()}

    def relate(first: Outputs) -> Outputs:
        return tuple(y if _at(outputs, i) == 1 else -y for i, y in enumerate(first))

    return pair(f"mirror {' and '.join(names)}", _change_arguments(names, change), relate, exact=exact)


def permute(
    axes: Mapping[str, int],
    outputs: Sequence[int | None] = (0,),
    *,
    exact: bool = False,
    when: Callable[..., bool] | None = None,
) -> Relation:
    """Tensors rolled by one along an axis each: outputs roll with them. Applies to tensors that have elements.

    Args:
        axes: by name of a tensor the axis along which it rolls; one that is None stays.
        outputs: for each output the axis along which it rolls, or None; the last entry is for all further ones.
        exact: as for `law`. when: (arguments by name) -> whether the law applies.
    """

    def change(**named: Any) -> Changes | None:
        tensors = {name: x for name, x in named.items() if x is not None}
        # A sample may have fewer axes than the law needs, and a rolled tensor without elements is the same tensor.
        if any(x.ndim <= axes[name] or not x.numel() for name, x in tensors.items()):
            return None
        return {name: x.roll(1, axes[name]) for name, x in tensors.items()}

    def relate(first: Outputs) -> Outputs:
        return tuple(y if (axis := _at(outputs, i)) is None else y.roll(1, axis) for i, y in enumerate(first))

    return pair(f"permutation of {', '.join(axes)}", _change_arguments(tuple(axes), change, when), relate, exact=exact)


def linear(name: str) -> Relation:
    """A tensor is doubled: so are the outputs."""

    def change(**named: Any) -> Changes | None:
        # To double a number is exact, unless it overflows.
        doubled = 2 * named[name]
        return {name: doubled} if torch.isfinite(doubled).all() else None

    return pair(f"linear in {name}", _change_arguments((name,), change), lambda first: tuple(2 * y for y in first))


def sums(
    name: str, to: float, axes: Callable[..., Any], *, when: Callable[..., bool], word: tuple[str, ...] = ()
) -> Relation:
    """The first output sums to a number along axes.

    Args:
        name, word: as for `law`. to: the number.
        axes: (arguments by name) -> an axis or several. when: (arguments by name) -> whether the law applies.
    """

    def relate(outputs: Outputs, **named: Any) -> tuple[Any, Any]:
        total = outputs[0].sum(call(axes, named))
        return (total,), (torch.full_like(total, to),)

    return Relation(name, _change_arguments((), lambda: ({},), when), taking((), relate, axes), word=word)


def shifted(tensor: Tensor, dims: tuple[int, ...], rng: Any) -> tuple[Tensor, Tensor] | None:
    """A tensor rounded to a grid, and the same plus one number for each row, which extends along `dims`; both exact.

    None where the shift would not be exact: the tensor is empty, infinite or NaN, or too large.
    """
    wide = tensor.double()
    if not tensor.numel() or not wide.abs().max() < SHIFTABLE:
        return None
    # bfloat16 has 8 bits, and is the only other dtype of the samples.
    precision = {torch.float64: 53, torch.float32: 24, torch.float16: 11}.get(tensor.dtype, 8)
    # A row of zeros has no logarithm, so the smallest magnitude that counts is 2^-10.
    top = wide.abs().amax(dims, keepdim=True).clamp(min=2.0**-10).log2().ceil()
    # Elements are at most 2^top and the shift is at most 3 * 2^top, so their sum is at most 2^(top + 2), which is
    # 2^(precision - 1) steps of this grid. So every sum is a number of the format.
    grid = torch.exp2(top - (precision - 3))
    coarse = (wide / grid).round() * grid
    moved = coarse + torch.from_numpy(rng.integers(-3, 4, top.shape).astype(np.float64)) * torch.exp2(top)
    one, other = coarse.to(tensor.dtype), moved.to(tensor.dtype)
    return (one, other) if torch.equal(one.double(), coarse) and torch.equal(other.double(), moved) else None


def plus_exactly(tensor: Tensor, number: float) -> Tensor | None:
    """The sum of a tensor and a number; None where an element of the sum is rounded."""
    moved, wide = tensor + number, tensor.double()
    total = moved.double()
    # The error of a sum in float64, by Knuth's TwoSum: a sum in float64 alone would always equal itself.
    part = total - wide
    error = (wide - (total - part)) + (number - part)
    return moved if not torch.count_nonzero(error) else None


def _at(values: Sequence[Any], index: int) -> Any:
    return values[min(index, len(values) - 1)]


def _change_arguments(
    names: Sequence[str], change: Callable[..., Any], when: Callable[..., bool] | None = None
) -> Callable[..., Any]:
    """`change` as a function of the arguments of these names and of those of `when`; None where `when` is false."""

    def change_some(**named: Any) -> Any:
        if when is not None and not call(when, named):
            return None
        return change(**{name: named[name] for name in names})

    return taking(names, change_some, when)


def _is_moderate(tensor: Tensor) -> bool:
    """Whether squares of its elements are far from underflow and overflow where they are accumulated."""
    size = tensor.double().abs()
    # The fourth root leaves room for a square, and for a sum or a product of squares on top of that. Half types
    # accumulate in float32, so for them its range counts.
    info, inside = torch.finfo(torch.float32 if tensor.dtype.itemsize == 2 else tensor.dtype), size[size > 0]
    return not inside.numel() or bool((inside.min() >= info.tiny**0.25) & (inside.max() <= info.max**0.25))


def _scales_exactly(old: Any, new: Any, factor: float) -> bool:
    """Whether an argument may be scaled by a law that holds bit for bit."""
    if old is None:
        return True
    if not isinstance(old, Tensor):
        # A number such as eps is added to squares, and one that vanishes beside them would make the law hold whatever
        # the op does with it.
        return bool(new >= NEGLIGIBLE)
    return _is_moderate(old) and torch.equal(new.double(), old.double() * factor)
