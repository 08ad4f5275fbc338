"""Gradients of inputs and parameters, where the candidate offers any.

A candidate owes the gradients of what requires them: parameters that the spec trains, and the inputs that require a
gradient. Where no input says so all floating ones are asked, and one that the candidate gives no gradient of may be
data (the cosines of a rotation, a mask, a target) or a gradient that is lost: that is a weakness of the verdict.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from ....oracles.bound.terms import Terms
from ....oracles.op.declaration import to_array
from ..agreement import TorchEvaluations, as_traced, doubled, fault, told_of_torch
from ..arguments import CallArguments, Tensor
from ..backward import Called, SpecBackward, backward, tried
from ..comparing import hold_in_turn
from ..evidence import Gradients
from ..finding import Finding, not_asked, raised, summed
from ..host.calls import floating
from ..one_order import operands_of
from ..row_sample import Part
from ..session import Asking, Session
from ..specification import Reading, Specification

#: What a candidate without gradients says: by its own exception, or by that of an operator registered without any, or
#: of an operation of torch that has none.
_NOT_OFFERED = ("NotImplementedError", "no autograd formula was registered", "derivative for aten::")
#: Why gradients are not held where the spec has another backward than its text: a straight-through estimator, say.
_OTHER_BACKWARD = "the spec's own backward is not the derivative of its text, so gradients were not held"


@dataclass(frozen=True)
class _GradientRequest:
    """What gradients are asked of.

    Attributes:
        arguments: of the spec, where its gradients are computed. cotangents: of its floating outputs.
        operands: as for `SpecBackward.gradients`. own: what the spec's own backward gives.
        marked: whether some inputs say that they require gradients.
    """

    arguments: CallArguments
    cotangents: list[Tensor]
    operands: list[int | str]
    own: SpecBackward
    marked: bool

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
        state = spec.state
        inputs = floating(self.arguments.tensors)
        leaves = [state[operand] if isinstance(operand, str) else inputs[operand] for operand in operands]

        def of(called: Called, change: Callable[[Tensor], Tensor] = Tensor.detach) -> list[Tensor] | None:
            own_arguments, own_state = self.arguments.changed(change), {name: change(t) for name, t in state.items()}
            gradients = tried(called, own_arguments, own_state, operands, [change(g) for g in self.cotangents])
            return None if isinstance(gradients, str) else _with_zeros(leaves, gradients.values())

        return TorchEvaluations(
            _with_zeros(leaves, (self.own.gradients[operand] for operand in operands)),
            lambda: of(spec.called),
            lambda: of(as_traced(spec, self.arguments, state)),
            lambda: of(spec.called, doubled),
            operands_of(spec, self.arguments, state),
            order=1,
        )

    def told(self) -> str:
        """Which gradients torch gives none of."""
        return "; ".join(f"none of {self.label(operand)}: {why}" for operand, why in self.own.refused.items())


def _with_zeros(leaves: Sequence[Tensor], gradients: Iterable[Tensor | None]) -> list[Tensor]:
    return [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]


def gradients(session: Session) -> Finding:
    """GRAD: reverse mode, with cotangents that are drawn; the gradients of the spec come from its own text."""
    return gradients_at(session, session.given, "GRAD")


def gradients_at(session: Session, at: CallArguments, drawn: str) -> Finding:
    """GRAD at some arguments, with cotangents of the generator of a name."""
    spec, rng = session.spec, session.generator(drawn)
    cut = session.cut_for("GRAD", at)
    part, arguments = None if cut.rows is None else session.part, cut.held
    run = spec.run(arguments, spec.state)
    outputs = floating(run.outputs)
    # A buffer that is written needs no gradient; what does must not be written where autograd is to go through it.
    writes = zip(run.written, run.names[len(run.outputs) :], strict=True)
    moving = [name for place, name in writes if isinstance(place, int) or place in spec.parameters]
    if moving:
        return not_asked("GRAD", f"the spec writes {moving[0].removeprefix('written ')}")
    inputs = floating(arguments.tensors)
    marked = any(t.requires_grad for t in inputs)
    operands: list[int | str] = [i for i, t in enumerate(inputs) if t.requires_grad or not marked]
    operands += [name for name in session.shared if name in spec.parameters]
    if not outputs or not operands:
        return not_asked("GRAD", "no output, or no operand, is floating")
    cotangents = [torch.from_numpy(rng.standard_normal(tuple(y.shape))).to(y.device, y.dtype) for y in outputs]
    if spec.numpy:  # The dtypes of its outputs are the candidate's.
        dtypes = [y.dtype for y in session.first().outputs]
        if len(dtypes) != len(cotangents):
            return not_asked("GRAD", "the candidate's outputs are not as many as the spec's")
        cotangents = [g.to(dtype) for g, dtype in zip(cotangents, dtypes, strict=True)]
        own = SpecBackward({operand: torch.ones(()) for operand in operands})
    else:
        own = backward(spec, arguments, spec.state, operands, cotangents)
    owed = [operand for operand in operands if operand not in own.refused]
    request = _GradientRequest(arguments, cotangents, owed, own, marked)
    if not owed:
        return not_asked("GRAD", f"torch gives no gradients of the spec: {next(iter(own.refused.values()))}")
    # Of a large problem the other rows have no cotangent; so all gradients are those of the spec at these rows alone.
    rows = cut.rows or []
    padded = cotangents if part is None else [_among_zeros(g, part, rows) for g in cotangents]
    having = [] if part is None else [part.having[i] for i in request.inputs]
    answer = session.call(
        cut.called, gradients=True, moving=request.inputs, wanted=request.names, cotangents=padded, rows=rows,
        having=having, fetched=part is not None,
    )  # fmt: skip
    if answer.raised:
        return raised("GRAD", answer.raised, any(words in answer.raised for words in _NOT_OFFERED))
    if not answer.offered or not answer.gradients:
        if marked:
            session.lost.append("inputs require gradients, and no output of the candidate does")
        return not_asked("GRAD", "the candidate's outputs require no gradient")
    return replace(_held_gradients(session, request, answer.gradients), sampled=cut.told, left_out=request.told())


def _among_zeros(cotangent: Tensor, part: Part, rows: list[int]) -> Tensor:
    whole = cotangent.new_zeros((part.count, *cotangent.shape[1:]))
    whole[rows] = cotangent
    return whole


def _held_gradients(session: Session, asked: _GradientRequest, got: list[Tensor | None]) -> Finding:
    spec, arguments = session.spec, asked.arguments
    inputs = floating(arguments.tensors)
    names = [name for name, value in spec.state.items() if value.dtype.is_floating_point]
    titles, computed, positions, operands = [], list[Tensor](), [], list[int | str]()
    for operand, gradient in zip(asked.operands, got, strict=True):
        if gradient is None and not _is_missed(session, asked, operand):
            continue
        # A gradient that was not computed stands for zeros.
        leaf = spec.state[operand] if isinstance(operand, str) else inputs[operand]
        titles.append(f"gradient of {asked.label(operand)}{' (none, so zeros)' if gradient is None else ''}")
        operands.append(operand)
        computed.append(torch.zeros_like(leaf) if gradient is None else gradient)
        positions.append(names.index(operand) if isinstance(operand, str) else len(names) + operand)
    if not positions:
        return not_asked("GRAD", "no gradient is missed, and the candidate gives none")

    def read(terms: Terms) -> Sequence[Reading]:
        return spec.gradients(arguments, spec.state, terms, positions, asked.cotangents)

    facts = operands_of(spec, arguments, spec.state)
    outcomes = hold_in_turn(titles, computed, read, session.terms, None, facts, order=1)
    if not spec.numpy and any(each.wrong is not None for each in outcomes):
        own = asked.evaluations(spec, operands)
        if fault(own, read(session.terms), session.terms) is not None:
            session.lost.append(_OTHER_BACKWARD)
            return not_asked("GRAD", _OTHER_BACKWARD)
        outcomes = told_of_torch(outcomes, own.own, session.terms, facts, 1)
    evaluate = functools.partial(
        spec.drawn_gradients, arguments, spec.state, session.terms, positions, asked.cotangents
    )
    arrays = tuple(map(to_array, asked.cotangents))
    session.gradients.append(Gradients(tuple(titles), tuple(computed), tuple(outcomes), evaluate, arrays))
    return summed("GRAD", outcomes, arguments)


def _is_missed(session: Session, asked: _GradientRequest, operand: int | str) -> bool:
    """Whether a gradient that the candidate does not give is wrong; a weakness is noted where that is not known."""
    own = asked.own.gradients[operand]
    if own is None or not bool(own.count_nonzero()):
        return False
    if not asked.owes(operand):
        session.lost.append(
            f"the candidate gives no gradient of {asked.label(operand)}; give the inputs requires_grad=True that need"
            " one, and it is missed or not"
        )
    return asked.owes(operand)


ASKING: dict[str, Asking] = {"GRAD": gradients}
