"""Refusals by the names of arguments: documented invalid input, made from a valid call by one change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch

from ...oracles.op.declaration import Refusal
from .signature import Args, ArgumentsByName, Signature, call, taking


@dataclass(frozen=True)
class Mistake:
    """A refusal before it belongs to an op.

    Attributes:
        name: the mistake in a few words.
        change: (arguments by name) -> the changed arguments of a valid call; None where this mistake cannot be made.
        error: the type that must be raised. mentions: words that its text must have.
        argument: if there are no mentions, the argument whose name in the op the text must have.
        short, in_elements: as for `Refusal`. besides: mistakes that go with this one wherever it is declared.
    """

    name: str
    change: Callable[..., ArgumentsByName | None]
    error: type[Exception]
    mentions: tuple[str, ...]
    argument: str = ""
    short: bool = False
    in_elements: bool = False
    besides: tuple[Mistake, ...] = ()

    def of(self, signature: Signature) -> Refusal:
        """The refusal of an op.

        Raises:
            ValueError: a parameter of `change` is no argument of the op.
        """
        what = f"refusal {self.name!r}"
        read = signature.reader(what, self.change)

        def mutate(args: Args) -> Args | None:
            changes = read(args)
            return None if changes is None else signature.changed(what, args, changes)

        # An op may have an argument by another name than the declaration. A user reads the op's own name, so the
        # error has to have that one in it.
        mentions = self.mentions or ((signature.own(self.argument),) if self.argument else ())
        return Refusal(self.name, mutate, self.error, mentions, self.short, self.in_elements)


def refusal(
    name: str, change: Callable[..., ArgumentsByName | None], error: type[Exception], *mentions: str
) -> Mistake:
    """Any mistake; the arguments are the attributes of `Mistake`."""
    return Mistake(name, change, error, mentions)


def wrong(
    argument: str, name: str, change: Callable[[Any], Any], error: type[Exception], *mentions: str, **others: Any
) -> Mistake:
    """One argument changed by a function of its value; not made where the value, or the wrong value, is None.

    Args:
        argument: its name. name: the mistake in a few words.
        change: (value) -> the wrong value.
        error: the type that must be raised. mentions: words that its text must have; by default the argument's name.
        others: values of other arguments, by which this is the only mistake of the call.
    """

    def changes(**named: Any) -> ArgumentsByName | None:
        value = named[argument]
        new = None if value is None else change(value)
        return None if new is None else {argument: new, **others}

    return Mistake(name, taking((argument,), changes), error, mentions, argument)


def not_a_tensor(argument: str, *mentions: str) -> Mistake:
    """A list instead of a tensor: TypeError."""
    return wrong(argument, f"{argument} is not a tensor", lambda tensor: tensor.tolist(), TypeError, *mentions)


def integer(argument: str, *mentions: str, **others: Any) -> Mistake:
    """A tensor of int64 instead of a floating one: RuntimeError."""

    def integers(tensor: torch.Tensor) -> torch.Tensor:
        # The dtype alone must be wrong. Zeros are valid integers whatever the tensor had, while NaN has no integer.
        return torch.zeros_like(tensor, dtype=torch.int64)

    return wrong(argument, f"integer {argument}", integers, RuntimeError, *mentions, **others)


def not_an_int(argument: str, *mentions: str) -> Mistake:
    """The right number as a float, which is equal to it: TypeError."""
    return wrong(argument, f"{argument} is a float", float, TypeError, *mentions)


def its_type(argument: str, *mentions: str) -> Mistake:
    """The type of the right value, such as `float`, instead of the value: TypeError."""
    return wrong(argument, f"{argument} is a type", type, TypeError, *mentions)


def shape(argument: str, *mentions: str) -> Mistake:
    """A tensor with one row more than it should have: RuntimeError. Of a tensor without dims, a vector of two.

    A tensor of one element, which would be broadcast, is a mistake besides.
    """

    def longer(tensor: torch.Tensor) -> torch.Tensor:
        rows, *rest = tensor.shape or (1,)
        return tensor.new_ones((rows + 1, *rest))

    def single(tensor: torch.Tensor) -> torch.Tensor | None:
        return tensor.new_ones((1,) * tensor.ndim) if tensor.numel() > 1 else None

    one = replace(wrong(argument, f"{argument} of one element", single, RuntimeError, *mentions), short=True)
    return replace(wrong(argument, f"{argument} of another shape", longer, RuntimeError, *mentions), besides=(one,))


def another_dtype(argument: str, *mentions: str) -> Mistake:
    """A tensor of float64, or of float32 where the right one is of float64: RuntimeError."""

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(torch.float32 if tensor.dtype is torch.float64 else torch.float64)

    return wrong(argument, f"{argument} of another dtype", converted, RuntimeError, *mentions)


def elsewhere(argument: str, *mentions: str) -> Mistake:
    """A tensor on a device where the others are not, the device "meta": RuntimeError."""
    return wrong(argument, f"{argument} on another device", lambda tensor: tensor.to("meta"), RuntimeError, *mentions)


#: Mistakes in calls of a backward op, whose arguments include outputs of the forward op.
STATISTICS = (
    shape("grad_out"), another_dtype("grad_out"), shape("mean"), another_dtype("rstd"), elsewhere("mean", "device"),
    not_a_tensor("grad_out"), not_a_tensor("mean"),
    wrong("output_mask", "output_mask of two", lambda mask: mask[:2], RuntimeError),
)  # fmt: skip


def missing(
    argument: str, *mentions: str, when: Callable[..., bool] | None = None, error: type[Exception] = RuntimeError
) -> Mistake:
    """None instead of an argument that is needed.

    Args:
        argument: its name. mentions: words that the error's text must have; by default that name.
        when: (arguments by name) -> whether the argument is needed; by default always.
        error: the type that must be raised.
    """

    def changes(**named: Any) -> ArgumentsByName | None:
        needed = when is None or call(when, named)
        return {argument: None} if needed and named[argument] is not None else None

    return Mistake(f"no {argument}", taking((argument,), changes, when), error, mentions, argument)


def value(argument: str, wrong_value: Any, error: type[Exception], *mentions: str) -> Mistake:
    """One wrong value, whatever the right one is."""
    return wrong(argument, f"{argument}={wrong_value!r}", lambda right: wrong_value, error, *mentions)


#: Mistakes in the argument `eps`.
EPS = (value("eps", "1e-5", TypeError), its_type("eps"))
