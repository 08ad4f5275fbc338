"""Requests for gradients of a candidate: of which operands, at which inputs, and in which memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from ..agreement import SpecBackward, StatefulCall, TorchEvaluations, as_traced, doubled, operands_of, torch_gradients
from ..arguments import CallArguments, State, Tensor, floating
from ..host.calls import Manner
from ..layouts import MemoryLayout
from ..specification import Specification


@dataclass(frozen=True)
class GradientRequest:
    """The gradients that a candidate must give.

    Attributes:
        arguments, state: where the spec's gradients are computed. cotangents: of the floating outputs.
        operands: as for `SpecBackward.gradients`. own: the gradients of the spec's own backward.
        marked: whether some inputs have `requires_grad`.
        outputs: of the candidate's call, after it; indices among them show the candidate's choices.
    """

    arguments: CallArguments
    state: State
    cotangents: list[Tensor]
    operands: list[int | str]
    own: SpecBackward
    marked: bool
    outputs: Sequence[Tensor] = ()

    @property
    def inputs(self) -> list[int]:
        return [operand for operand in self.operands if isinstance(operand, int)]

    @property
    def names(self) -> list[str]:
        return [operand for operand in self.operands if isinstance(operand, str)]

    def label(self, operand: int | str) -> str:
        if isinstance(operand, str):
            return operand
        floats = [i for i, t in enumerate(self.arguments.tensors) if t.dtype.is_floating_point]
        return self.arguments.label(floats[operand])

    def owes(self, operand: int | str) -> bool:
        """Whether a gradient that the candidate does not give counts as zeros."""
        return self.marked or isinstance(operand, str)

    def evaluations(self, spec: Specification, operands: Sequence[int | str]) -> TorchEvaluations:
        """torch's gradients of these operands, computed in several ways, which show whose fault an error is."""
        state = self.state
        inputs = floating(self.arguments.tensors)
        leaves = [state[operand] if isinstance(operand, str) else inputs[operand] for operand in operands]

        def of(function: StatefulCall, change: Callable[[Tensor], Tensor] = Tensor.detach) -> list[Tensor] | None:
            own_arguments, own_state = self.arguments.changed(change), {name: change(t) for name, t in state.items()}
            gradients = torch_gradients(
                function, own_arguments, own_state, operands, [change(g) for g in self.cotangents]
            )
            return None if isinstance(gradients, str) else _with_zeros(leaves, gradients.values())

        return TorchEvaluations(
            _with_zeros(leaves, (self.own.gradients[operand] for operand in operands)),
            lambda: of(spec.call_at),
            lambda: of(as_traced(spec, self.arguments, state)),
            lambda: of(spec.call_at, doubled),
            operands_of(spec, self.arguments, state),
            order=1,
        )

    def describe_refusals(self) -> str:
        """The operands of which torch gives no gradient, with the reasons."""
        return "; ".join(f"none of {self.label(operand)}: {why}" for operand, why in self.own.refusals.items())


def _with_zeros(leaves: Sequence[Tensor], gradients: Iterable[Tensor | None]) -> list[Tensor]:
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]


@dataclass(frozen=True)
class GradientPlace:
    """The state, memory and manner of a call for gradients.

    Attributes:
        state: parameters and buffers; None for those of the spec.
        operands, cotangents: their layouts; None for the layout of the arguments, and for contiguous cotangents.
        only: the only operand that requires a gradient; None if all operands do. manner: of the call.
        inner: whether the arguments are no leaves.
        one_as: which arguments are one tensor, in words; empty for none. other: whether it is unlike the given call.
    """

    state: State | None = None
    operands: MemoryLayout | None = None
    cotangents: MemoryLayout | None = None
    only: int | str | None = None
    manner: Manner = Manner.PLAIN
    inner: bool = False
    one_as: str = ""
    other: bool = False

    @property
    def is_unusual(self) -> bool:
        """Whether a candidate may refuse such a call."""
        return self.operands is not None or self.manner is Manner.COMPILED or self.other or bool(self.one_as)

    @property
    def text(self) -> str:
        """One line of a card; empty for the given place."""
        if self.only is not None:
            return "call       in which this operand alone requires a gradient, and each is a torch.nn.Parameter"
        if self.other:
            return "call       of other sizes, integers or options than the given one"
        if self.one_as:
            return f"layout     one tensor as {self.one_as}"
        layouts = {"operands": self.operands, "cotangents": self.cotangents}
        named = [f"{name} {layout}" for name, layout in layouts.items() if layout is not None]
        if named:
            return f"layout     {', '.join(named)}"
        if self.manner is Manner.COMPILED:
            return "call       under torch.compile"
        return (
            f"where      at other inputs and parameters{', no leaves' * self.inner}" if self.state is not None else ""
        )
