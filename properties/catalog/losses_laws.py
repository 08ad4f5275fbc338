"""Laws and refusals of the losses: relations between calls, and the mistakes that each must raise for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...oracles.op import Law, Refusal

Args = tuple[Any, ...]
Tensor = torch.Tensor


def total_weight(target: Tensor, weight: Tensor | None, ignore: int) -> float:
    """The sum of the weights of the targets that are not ignored, in float64."""
    counted = target.long()[target.long() != ignore]
    return float(counted.numel() if weight is None else weight.double()[counted].sum())


class Signature:
    """Where a loss has its reduction and ignore_index, and what it calls the reductions."""

    def __init__(self, reduction: int, ignore: int, names: tuple[Any, Any, Any]) -> None:
        self.reduction, self.ignore = reduction, ignore
        self.none, self.mean, self.sum = names

    def reduced(self, args: Args, reduction: Any) -> Args:
        """The call with another reduction."""
        return (*args[: self.reduction], reduction, *args[self.reduction + 1 :])

    def laws(self, exact_classes: bool) -> tuple[Law, ...]:
        """The laws of every loss; `exact_classes` where the order of the classes changes no bit."""
        return (
            Law("an ignored target is a deleted row", self._deleted_calls, self._deleted, False),
            Law("an ignored target is a deleted row", self._deleted_calls, self._deleted_gradient, False, ("vjp",)),
            Law("the mean is the sum over the sum of weights", self._mean_calls, self._mean, False),
            Law("the sum is the sum of all", self._sum_calls, lambda a, x, y: ((x[0],), (y[0].sum(),)), False),
            Law.pair("permutation of classes", self._permuted, lambda out: out, exact=exact_classes),
            Law("permutation of the batch", self._rolled_calls, self._rolled, False),
        )

    def _deleted_calls(self, args: Args, rng: Any) -> Sequence[Args] | None:
        x, t, *_ = args
        if x.ndim < 2 or x.shape[0] < 2 or args[self.reduction] == self.none or not t.numel():
            return None
        ignore = args[self.ignore]
        if t.dtype is torch.uint8 and not 0 <= ignore < 256:
            return None
        masked = t.clone()
        masked[0] = ignore
        return (x, masked, *args[2:]), (x[1:], t[1:], *args[2:])

    def _deleted(self, args: Args, masked: Any, deleted: Any) -> tuple[Any, Any]:
        return masked, deleted

    def _deleted_gradient(self, args: Args, masked: Any, deleted: Any) -> tuple[Any, Any]:
        row = torch.zeros_like(masked[0][:1])
        return masked, (torch.cat((row, deleted[0])), *deleted[1:])

    def _mean_calls(self, args: Args, rng: Any) -> Sequence[Args]:
        return self.reduced(args, self.mean), self.reduced(args, self.sum)

    def _mean(self, args: Args, mean: Any, total: Any) -> tuple[Any, Any]:
        return (mean[0] * total_weight(args[1], args[2], args[self.ignore]),), (total[0],)

    def _sum_calls(self, args: Args, rng: Any) -> Sequence[Args]:
        return self.reduced(args, self.sum), self.reduced(args, self.none)

    def _permuted(self, args: Args, rng: Any) -> Args | None:
        """Classes, weights and targets renamed; an ignored class keeps its name."""
        x, t, w, *rest = args
        axis = 0 if x.ndim == 1 else 1
        ignore, classes = args[self.ignore], x.shape[axis]
        order = rng.permutation(classes)
        if 0 <= ignore < classes:
            at = int((order == ignore).argmax())
            order[at], order[ignore] = order[ignore], ignore
        new = torch.from_numpy(order.argsort())
        long = t.long()
        known = (long != ignore) & (long < classes) & (long >= 0)
        renamed = torch.where(known, new[torch.where(known, long, 0)], long) if classes else long
        moved = torch.from_numpy(order)
        return x.index_select(axis, moved), renamed.to(t.dtype), None if w is None else w[moved], *rest

    def _rolled_calls(self, args: Args, rng: Any) -> Sequence[Args] | None:
        x, t, *rest = args
        return None if x.ndim < 2 or not x.shape[0] else (args, (x.roll(1, 0), t.roll(1, 0), *rest))

    def _rolled(self, args: Args, one: Any, other: Any) -> tuple[Any, Any]:
        first = one[0].roll(1, 0) if args[self.reduction] == self.none else one[0]
        return other, (first, *one[1:])


FUNCTIONAL = Signature(4, 3, ("none", "mean", "sum"))
NATIVE = Signature(3, 4, (0, 1, 2))
LAWS = FUNCTIONAL.laws(True)
NATIVE_LAWS = NATIVE.laws(True)


# ---------------------------------------------------------------------------------------------- refusals


def changed(position: int, change: Callable[[Any, Args], Any]) -> Callable[[Args], Args | None]:
    """Arguments with one of them changed; None where there is nothing to change."""

    def mutate(args: Args) -> Args | None:
        value = None if args[position] is None else change(args[position], args)
        return None if value is None else (*args[:position], value, *args[position + 1 :])

    return mutate


def refusals(x: int, ignore: int, batch_error: type[Exception]) -> tuple[Refusal, ...]:
    """What the losses have in common; target and weight follow the input."""

    def classes(args: Args) -> int:
        return int(args[x].shape[0 if args[x].ndim == 1 else 1])

    def beyond(t: Tensor, args: Args) -> Any:
        value = classes(args) + (classes(args) == args[ignore])
        return _with_one(t, value) if value < 256 or t.dtype is torch.int64 else None

    def below(t: Tensor, args: Args) -> Any:
        return _with_one(t, -1 - (args[ignore] == -1)) if t.dtype is torch.int64 else None

    longer: Callable[[Any, Args], Any] = lambda w, args: torch.ones(classes(args) + 1, dtype=w.dtype)  # noqa: E731
    other: Callable[[Any, Args], Any] = lambda t, args: t.new_zeros((args[x].shape[0] + 2, *t.shape[1:]))  # noqa: E731
    return (
        Refusal("target beyond the classes", changed(x + 1, beyond), IndexError, ("target",)),
        Refusal("negative target", changed(x + 1, below), IndexError, ("target",)),
        Refusal("target of another batch", changed(x + 1, other), batch_error, ("target",)),
        Refusal("target of int32", changed(x + 1, lambda t, a: t.int()), RuntimeError, ("target", "int32")),
        Refusal("weight of another length", changed(x + 2, longer), RuntimeError, ("weight",)),
        Refusal("integer input", changed(x, lambda t, a: t.long()), RuntimeError, ("int64",)),
        Refusal("input is not a tensor", changed(x, lambda t, a: t.tolist()), TypeError, ("need a Tensor",)),
        Refusal("target is not a tensor", changed(x + 1, lambda t, a: t.tolist()), TypeError, ("target",)),
    )


def _with_one(t: Tensor, value: int) -> Tensor | None:
    """`t` with its last element replaced."""
    if not t.numel():
        return None
    wrong = t.clone()
    wrong.view(-1)[-1] = value
    return wrong
