"""Gradients of inputs and parameters, where the candidate offers any."""

from __future__ import annotations

import functools

import torch

from ..arguments import Tensor
from ..candidates.calls import floating
from ..comparing import hold_all
from ..session import Asking, Finding, Gradients, Session, not_asked, raised, summed

#: What a candidate without gradients says: by its own exception, or by that of an operator registered without any, or
#: of an operation of torch that has none.
_NOT_OFFERED = ("NotImplementedError", "no autograd formula was registered", "derivative for aten::")


def gradients(session: Session) -> Finding:
    """GRAD: reverse mode, with cotangents that are drawn; the gradients of the spec come from its own text."""
    spec, arguments = session.spec, session.given
    run = spec.run(arguments, spec.state)
    outputs = floating(run.outputs)
    if run.written or run.changed:
        return not_asked("GRAD", "the spec writes buffers or arguments")
    inputs = floating(arguments.tensors)
    names = [name for name in session.shared if name in spec.parameters]
    if not outputs or not (inputs or names):
        return not_asked("GRAD", "no output, or no operand, is floating")
    rng = session.generator("GRAD")
    cotangents = [torch.from_numpy(rng.standard_normal(tuple(y.shape))).to(y.device, y.dtype) for y in outputs]
    if spec.numpy:  # The dtypes of its outputs are the candidate's.
        dtypes = [y.dtype for y in session.first().outputs]
        cotangents = [g.to(dtype) for g, dtype in zip(cotangents, dtypes, strict=True)]
    answer = session.call(arguments, gradients=True, wanted=names, cotangents=cotangents)
    if answer.raised:
        return raised("GRAD", answer.raised, any(words in answer.raised for words in _NOT_OFFERED))
    if not answer.offered:
        return not_asked("GRAD", "the candidate's outputs require no gradient")
    return _held_gradients(session, inputs, names, cotangents, answer.gradients)


def _held_gradients(
    session: Session, inputs: list[Tensor], names: list[str], cotangents: list[Tensor], got: list[Tensor | None]
) -> Finding:
    spec, arguments = session.spec, session.given
    floats = [*(n for n, t in spec.state.items() if t.dtype.is_floating_point), *(f"#{i}" for i in range(len(inputs)))]
    labels = [*(f"#{i}" for i in range(len(inputs))), *names]
    # A gradient that was not computed stands for zeros.
    leaves = [*inputs, *(spec.state[name] for name in names)]
    computed = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(got, leaves, strict=True)]
    wanted = [floats.index(label) for label in labels]
    read = spec.gradients(arguments, spec.state, session.terms, wanted, cotangents)
    titles = [f"gradient of {arguments.label(int(n[1:])) if n.startswith('#') else n}" for n in labels]
    found = hold_all(titles, computed, read, session.terms, None, arguments.finite, order=1)
    drawn = functools.partial(spec.drawn_gradients, arguments, spec.state, session.terms, wanted, cotangents)
    session.gradients.append(Gradients(tuple(titles), tuple(computed), tuple(found), drawn))
    return summed("GRAD", found)


ASKING: dict[str, Asking] = {"GRAD": gradients}
