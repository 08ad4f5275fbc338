"""Gradients of inputs and parameters, where the candidate offers any."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

import torch

from ....oracles.terms import Terms
from ..arguments import Arguments, Tensor
from ..candidates.calls import floating
from ..comparing import hold_in_turn
from ..finding import Finding, not_asked, raised, summed
from ..parts import Part
from ..session import Asking, Gradients, Session
from ..specification import Reading

#: What a candidate without gradients says: by its own exception, or by that of an operator registered without any, or
#: of an operation of torch that has none.
_NOT_OFFERED = ("NotImplementedError", "no autograd formula was registered", "derivative for aten::")


def gradients(session: Session) -> Finding:
    """GRAD: reverse mode, with cotangents that are drawn; the gradients of the spec come from its own text."""
    spec, rng = session.spec, session.generator("GRAD")
    cut = session.cut_for("GRAD", session.given)
    part, arguments = None if cut.rows is None else session.part, cut.held
    run = spec.run(arguments, spec.state)
    outputs = floating(run.outputs)
    if run.written or run.changed:
        return not_asked("GRAD", "the spec writes buffers or arguments")
    inputs = floating(arguments.tensors)
    names = [name for name in session.shared if name in spec.parameters]
    if not outputs or not (inputs or names):
        return not_asked("GRAD", "no output, or no operand, is floating")
    cotangents = [torch.from_numpy(rng.standard_normal(tuple(y.shape))).to(y.device, y.dtype) for y in outputs]
    if spec.numpy:  # The dtypes of its outputs are the candidate's.
        dtypes = [y.dtype for y in session.first().outputs]
        if len(dtypes) != len(cotangents):
            return not_asked("GRAD", "the candidate's outputs are not as many as the spec's")
        cotangents = [g.to(dtype) for g, dtype in zip(cotangents, dtypes, strict=True)]
    # Of a large problem the other rows have no cotangent; so all gradients are those of the spec at these rows alone.
    rows = cut.rows or []
    given = cotangents if part is None else [_among_zeros(g, part, rows) for g in cotangents]
    having = [] if part is None else list(part.having)
    answer = session.call(
        cut.called, gradients=True, wanted=names, cotangents=given, rows=rows, having=having, fetched=part is not None
    )
    if answer.raised:
        return raised("GRAD", answer.raised, any(words in answer.raised for words in _NOT_OFFERED))
    if not answer.offered or not answer.gradients:
        return not_asked("GRAD", "the candidate's outputs require no gradient")
    found = _held_gradients(session, arguments, names, cotangents, answer.gradients)
    return replace(found, sampled=cut.told)


def _among_zeros(cotangent: Tensor, part: Part, rows: list[int]) -> Tensor:
    found = cotangent.new_zeros((part.count, *cotangent.shape[1:]))
    found[rows] = cotangent
    return found


def _held_gradients(
    session: Session, arguments: Arguments, names: list[str], cotangents: list[Tensor], got: list[Tensor | None]
) -> Finding:
    spec, inputs = session.spec, floating(arguments.tensors)
    floats = [*(n for n, t in spec.state.items() if t.dtype.is_floating_point), *(f"#{i}" for i in range(len(inputs)))]
    labels = [*(f"#{i}" for i in range(len(inputs))), *names]
    # A gradient that was not computed stands for zeros.
    leaves = [*inputs, *(spec.state[name] for name in names)]
    computed = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(got, leaves, strict=True)]
    wanted = [floats.index(label) for label in labels]
    titles = [f"gradient of {arguments.label(int(n[1:])) if n.startswith('#') else n}" for n in labels]

    def read(terms: Terms) -> Sequence[Reading]:
        return spec.gradients(arguments, spec.state, terms, wanted, cotangents)

    found = hold_in_turn(titles, computed, read, session.terms, None, arguments.finite, order=1)
    drawn = functools.partial(spec.drawn_gradients, arguments, spec.state, session.terms, wanted, cotangents)
    session.gradients.append(Gradients(tuple(titles), tuple(computed), tuple(found), drawn))
    return summed("GRAD", found)


ASKING: dict[str, Asking] = {"GRAD": gradients}
