"""What gradients are asked of a candidate, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch

from ..agreement import SpecBackward, StatefulCall, TorchEvaluations, as_traced, doubled, operands_of, torch_gradients
from ..arguments import CallArguments, State, Tensor
from ..host.calls import Manner, floating
from ..layouts import MemoryLayout
from ..specification import Specification


@dataclass(frozen=True)
class GradientRequest:
    """What gradients are asked of.

    Attributes:
        arguments, state: of the spec, where its gradients are computed. cotangents: of its floating outputs.
        operands: as for `SpecBackward.gradients`. own: what the spec's own backward gives.
        marked: whether some inputs say that they require gradients.
        outputs: of the call, once it was made: indices among them say what the candidate chose.
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
        """Whether a gradient that is not given stands for zeros."""
        return self.marked or isinstance(operand, str)

    def evaluations(self, spec: Specification, operands: Sequence[int | str]) -> TorchEvaluations:
        """What torch computes as gradients of these operands, in the ways that tell whose fault an error is."""
        state = self.state
        inputs = floating(self.arguments.tensors)
        leaves = [state[operand] if isinstance(operand, str) else inputs[operand] for operand in operands]

        def of(called: StatefulCall, change: Callable[[Tensor], Tensor] = Tensor.detach) -> list[Tensor] | None:
            own_arguments, own_state = self.arguments.changed(change), {name: change(t) for name, t in state.items()}
            gradients = torch_gradients(
                called, own_arguments, own_state, operands, [change(g) for g in self.cotangents]
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
        """Which gradients torch gives none of."""
        return "; ".join(f"none of {self.label(operand)}: {why}" for operand, why in self.own.refusals.items())


def _with_zeros(leaves: Sequence[Tensor], gradients: Iterable[Tensor | None]) -> list[Tensor]:
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]


@dataclass(frozen=True)
class GradientPlace:
    """Where gradients are asked.

    Attributes:
        state: parameters and buffers; None for those of the spec.
        operands, cotangents: the layouts of both; None for that of the arguments, and for contiguous cotangents.
        only: the operand that alone requires a gradient; None where all do. manner: of the call.
    """

    state: State | None = None
    operands: MemoryLayout | None = None
    cotangents: MemoryLayout | None = None
    only: int | str | None = None
    manner: Manner = Manner.PLAIN

    @property
    def text(self) -> str:
        """One line of a card; empty for the given place."""
        if self.only is not None:
            return "call       in which this operand alone requires a gradient, and each is a torch.nn.Parameter"
        layouts = {"operands": self.operands, "cotangents": self.cotangents}
        named = [f"{name} {layout}" for name, layout in layouts.items() if layout is not None]
        if named:
            return f"layout     {', '.join(named)}"
        if self.manner is Manner.COMPILED:
            return "call       under torch.compile"
        return "where      at other inputs and parameters" if self.state is not None else ""
