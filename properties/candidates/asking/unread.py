"""POISON: memory that nobody wrote reads as NaN, and so does every element of the inputs that no output depends on.

What this is for: slots of a page that no token has, masked rows, and what is behind a length may hold anything. A
kernel that multiplies them by 0 gives NaN where they do, which random NaNs show by luck alone.

What is hard here: a gradient of 0 says nothing by itself, because of a negative number relu has one as well. So it has
to be 0 at several numbers and at their negatives, one of which passes any comparison; and the spec has to give the
same bits with NaN, and with numbers, in these elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ....oracles.op.bits import same_results
from ..agreement import backward
from ..arguments import CallArguments, State, Tensor, floating
from ..finding import FailingCall, Finding, raised
from ..host.calls import Manner
from ..session import Asking, Session
from ..specification import SpecError

#: How many numbers an element must have a gradient of 0 at, from small to large ones.
_DRAWS = 9
#: Which elements of operands, by the name of a parameter or buffer, or the position of a tensor argument.
Elements = Mapping[str | int, Tensor]


def poison(session: Session) -> Finding:
    """POISON: with memory that was not written, and then with what the spec does not read."""
    # A tail that is not written may occur at the given size only, so the call has all of a large problem.
    finding = session.values("POISON", session.arguments, manner=Manner.POISONED)
    unread = {} if session.part is not None or finding.is_wrong else _unread(session)
    if not unread:
        return finding
    arguments, state = _filled(session, unread, dict.fromkeys(unread, torch.tensor(torch.nan)))
    answer = session.call(
        arguments, state, Manner.POISONED, writes=session.writes_at(session.arguments, session.spec.state)
    )
    if answer.raised:
        other = raised("POISON", answer.raised)
    else:
        other = session.hold("POISON", session.arguments, session.spec.state, session.native, answer)
    if other.wrong is None or not other.is_wrong:
        return replace(finding, judged=finding.judged + other.judged, elements=finding.elements + other.elements)
    places = ", ".join(place if isinstance(place, str) else arguments.label(place) for place in unread)
    other = replace(
        other, wrong=other.wrong.with_lines(f"inputs     NaN in all of {places} that the spec does not read")
    )
    names = None if answer.raised else session.native.names[: len(session.native.outputs)]
    return session.attach_call(FailingCall(arguments, state, None, Manner.POISONED), other, names)


def _unread(session: Session) -> Elements:
    """The elements of floating operands on which nothing depends that the spec gives or writes."""
    spec, inputs = session.spec, session.arguments
    if spec.numpy or spec.is_random(inputs, spec.state):
        return {}
    writes, rng = spec.find_writes(inputs, spec.state), session.generator("POISON")
    operands: dict[str | int, Tensor] = {name: spec.state[name] for name in session.shared}
    operands |= dict(enumerate(inputs.tensors))
    unread = {
        place: torch.ones(t.shape, dtype=torch.bool, device=t.device)
        for place, t in operands.items()
        if t.dtype.is_floating_point and place not in writes
    }
    cotangents = [torch.from_numpy(rng.standard_normal(tuple(y.shape))).to(y) for y in floating(session.native.outputs)]
    floats = [i for i, t in enumerate(inputs.tensors) if t.dtype.is_floating_point]
    values: dict[str | int, Tensor] = {}
    for draw in range(_DRAWS if cotangents else 0):
        if not unread:
            break
        names = {place: place if isinstance(place, str) else floats.index(place) for place in unread}
        arguments, state = _filled(session, unread, values)
        wide = arguments.changed(_widened), {name: _widened(t) for name, t in state.items()}
        own = backward(spec, *wide, list(names.values()), cotangents)
        for place, name in names.items():
            gradient = own.gradients.get(name)
            unread[place] &= name not in own.refusals and (True if gradient is None else gradient == 0)
        unread = {place: elements for place, elements in unread.items() if bool(elements.any())}
        other_sign = {place: -values[place] for place in unread} if draw % 2 else None
        values = other_sign or _draw(unread, 4.0 ** (draw - 2), rng)
    others = [dict.fromkeys(unread, torch.tensor(torch.nan)), _draw(unread, 2.0**10, rng), _draw(unread, 1.0, rng)]
    alone = {place: each for place, each in unread.items() if _is_unread(session, {place: each}, others)}
    return alone if cotangents and _is_unread(session, alone, others) else {}


def _is_unread(session: Session, elements: Elements, values: Sequence[Elements]) -> bool:
    """Whether the spec gives and writes what it does at the given inputs, whatever values some elements have."""
    native = session.native
    try:
        runs = [session.spec.run(*_filled(session, elements, each)) for each in values if elements]
    except SpecError:
        return False
    return bool(elements) and all(
        all(map(same_results, (*run.outputs, *run.values), (*native.outputs, *native.values))) for run in runs
    )


def _draw(elements: Elements, size: float, rng: Any) -> dict[str | int, Tensor]:
    """Numbers of a size for operands, of both signs."""
    return {place: torch.as_tensor(size * rng.standard_normal(tuple(each.shape))) for place, each in elements.items()}


def _filled(session: Session, elements: Elements, values: Elements) -> tuple[CallArguments, State]:
    """The given arguments, and the state of the spec, with values in some of their elements."""

    def fill(place: str | int, tensor: Tensor) -> Tensor:
        if place not in elements or place not in values:
            return tensor
        wide = _widened(tensor)
        return torch.where(elements[place], values[place].to(wide), wide).to(tensor.dtype)

    inputs, state = session.arguments, session.spec.state
    tensors = [fill(i, t) for i, t in enumerate(inputs.tensors)]
    return inputs.with_tensors(tensors), {name: fill(name, t) for name, t in state.items()}


def _widened(tensor: Tensor) -> Tensor:
    """A tensor in a dtype that torch computes in; no gradient is taken of eight bits."""
    return tensor.detach().float() if tensor.dtype.is_floating_point and tensor.itemsize == 1 else tensor.detach()


ASKING: dict[str, Asking] = {"POISON": poison}
