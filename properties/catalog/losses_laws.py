"""Laws and refusals of the losses: relations between calls, and the mistakes that each must raise for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..declaring import laws, refusals
from ..declaring.laws import Relation
from ..declaring.signature import ArgumentsByName

Tensor = torch.Tensor


def total_weight(target: Tensor, weight: Tensor | None, ignore_index: int) -> float:
    """The sum of the weights of the targets that are not ignored, in float64."""
    counted = target.long()[target.long() != ignore_index]
    return float(counted.numel() if weight is None else weight.double()[counted].sum())


def class_axis(input: Tensor) -> int:
    """The axis of the classes: of a single row, the first."""
    return 0 if input.ndim == 1 else 1


@dataclass(frozen=True)
class Reductions:
    """The names, or the numbers, by which a loss is told its reduction."""

    none: Any
    mean: Any
    sum: Any

    def laws(self, exact_classes: bool) -> tuple[Relation, ...]:
        """The laws of every loss; `exact_classes` where the order of the classes changes no bit."""
        deleted = "an ignored target is a deleted row"
        return (
            laws.law(deleted, self._deleted_calls, lambda masked, deleted: (masked, deleted)),
            laws.law(deleted, self._deleted_calls, _with_a_row_of_zeros, word=("vjp",)),
            laws.law("the mean is the sum over the sum of weights", self._mean_and_sum, _mean_times_weights),
            laws.law(
                "the sum is the sum of all", self._sum_and_all, lambda total, each: ((total[0],), (each[0].sum(),))
            ),
            laws.pair("permutation of classes", _permuted, exact=exact_classes),
            laws.pair("permutation of the batch", _rolled, self._roll),
        )

    def _deleted_calls(
        self, input: Tensor, target: Tensor, ignore_index: int, reduction: Any
    ) -> Sequence[ArgumentsByName] | None:
        """The first target ignored, and its row deleted; None where there is no row to spare."""
        if input.ndim < 2 or len(input) < 2 or reduction == self.none or not target.numel():
            return None
        # The mark of an ignored target has to fit into the target's dtype.
        if target.dtype is torch.uint8 and not 0 <= ignore_index < 256:
            return None
        masked = target.clone()
        masked[0] = ignore_index
        return {"target": masked}, {"input": input[1:], "target": target[1:]}

    def _mean_and_sum(self) -> Sequence[ArgumentsByName]:
        return {"reduction": self.mean}, {"reduction": self.sum}

    def _sum_and_all(self) -> Sequence[ArgumentsByName]:
        return {"reduction": self.sum}, {"reduction": self.none}

    def _roll(self, first: Any, *, reduction: Any) -> Any:
        return (first[0].roll(1, 0) if reduction == self.none else first[0], *first[1:])


def _with_a_row_of_zeros(masked: Any, deleted: Any) -> tuple[Any, Any]:
    return masked, (torch.cat((torch.zeros_like(masked[0][:1]), deleted[0])), *deleted[1:])


def _target_with_a_dim(input: Tensor, target: Tensor) -> ArgumentsByName | None:
    return {"target": target.reshape(1)} if input.ndim == 1 else None


def _mean_times_weights(
    mean: Any, total: Any, *, target: Tensor, weight: Tensor | None, ignore_index: int
) -> tuple[Any, Any]:
    """The mean times the sum of weights, and the sum, which are equal."""
    return (mean[0] * total_weight(target, weight, ignore_index),), (total[0],)


def _permuted(input: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, rng: Any) -> ArgumentsByName:
    """Classes, weights and targets renamed; an ignored class keeps its name."""
    axis = class_axis(input)
    classes = input.shape[axis]
    order = rng.permutation(classes)
    if 0 <= ignore_index < classes:
        at = int((order == ignore_index).argmax())
        # The ignored class is put back to its own place by a swap, because `ignore_index` is no input that is renamed
        # with the classes.
        order[at], order[ignore_index] = order[ignore_index], ignore_index
    new, moved, long = torch.from_numpy(order.argsort()), torch.from_numpy(order), target.long()
    valid = (long != ignore_index) & (long < classes) & (long >= 0)
    renamed = torch.where(valid, new[torch.where(valid, long, 0)], long) if classes else long
    return {
        "input": input.index_select(axis, moved),
        "target": renamed.to(target.dtype),
        "weight": None if weight is None else weight[moved],
    }


def _rolled(input: Tensor, target: Tensor) -> ArgumentsByName | None:
    return None if input.ndim < 2 or not len(input) else {"input": input.roll(1, 0), "target": target.roll(1, 0)}


def _beyond(input: Tensor, target: Tensor, ignore_index: int) -> ArgumentsByName | None:
    classes = input.shape[class_axis(input)]
    # The first number beyond the classes may be the one that is ignored, which is no mistake; then the next one is
    # taken.
    value = classes + (classes == ignore_index)
    return _with_one(target, value) if value < 256 or target.dtype is torch.int64 else None


def _below(target: Tensor, ignore_index: int) -> ArgumentsByName | None:
    return _with_one(target, -1 - (ignore_index == -1)) if target.dtype is torch.int64 else None


def _with_one(target: Tensor, value: int) -> ArgumentsByName | None:
    """The target with its last element replaced."""
    if not target.numel():
        return None
    wrong = target.clone()
    wrong.view(-1)[-1] = value
    return {"target": wrong}


def _of_another_batch(input: Tensor, target: Tensor) -> ArgumentsByName:
    return {"target": target.new_zeros((len(input) + 2, *target.shape[1:]))}


def refusals_of(batch_error: type[Exception]) -> tuple[refusals.Mistake, ...]:
    """The mistakes that all losses refuse; `batch_error` is raised for a target of another batch."""
    return (
        refusals.Mistake("target beyond the classes", _beyond, IndexError, ("target", "at 1 of "), in_elements=True),
        refusals.Mistake("negative target", _below, IndexError, ("target", "at 1 of "), in_elements=True),
        refusals.refusal("target of another batch", _of_another_batch, batch_error, "target"),
        refusals.its_type("ignore_index", "ignore_index"),
        refusals.wrong("target", "target of int32", lambda target: target.int(), RuntimeError, "target", "int32"),
        refusals.shape("weight"),
        refusals.integer("input", "int64"),
        refusals.not_a_tensor("input", "need a Tensor"),
        refusals.not_a_tensor("target"),
        refusals.not_a_tensor("weight"),
        refusals.another_dtype("weight"),
        refusals.elsewhere("target", "device"),
        refusals.elsewhere("weight", "weight", "device"),
    )


#: Mistakes that a backward op refuses besides those of all losses.
OF_A_GRADIENT = (
    refusals.another_dtype("grad_output"), refusals.another_dtype("total_weight"), refusals.shape("total_weight"),
    refusals.elsewhere("grad_output", "device"),
)  # fmt: skip
#: A law of the negative log likelihood; torch takes no such target for cross entropy with smoothing.
TARGET_WITH_A_DIM = laws.pair("the target of a single row may have a dim", _target_with_a_dim, exact=True)
#: A mistake that the public functions refuse; each op of ATen's signature takes a fixed number of dims.
NO_CLASSES = refusals.wrong("input", "input of no dims", lambda tensor: tensor.sum(), ValueError, "input")
#: As torch has it, RuntimeError and no ValueError, because the batch fits.
FEWER_POSITIONS = refusals.wrong(
    "target", "target of fewer dims",
    lambda target: target.select(-1, 0) if target.dim() > 1 and target.shape[-1] else None, RuntimeError, "target",
)  # fmt: skip
UNKNOWN_REDUCTION = refusals.value("reduction", "average", ValueError, "reduction", "average")
