"""The candidate, and what is right, as functions of the leaves of a call; and whether a relation of both holds.

What is hard here: a formula may mix rows, and then no kernel keeps their bits. So where bits differ the spec is asked,
too, in float64 if it takes that. What it does not keep up to rounding is none of the formula, and nobody is accused of
it. Without a spec the candidate says so itself: what differs by more than rounding is another row's influence, or a
fault that nobody can tell from one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ...oracles.op.bits import same_bits
from ...oracles.op.declaration import is_float
from ...oracles.specs.storage import format_of
from ..relations import (
    GRADIENT,
    WRITTEN,
    Ask,
    BitDifference,
    BitRelation,
    Leaves,
    Results,
    count_signs,
    find_difference,
)
from .arguments import CallArguments, Tensor
from .finding import require_no_fault
from .host.calls import BackwardCall, CandidateCall, Manner, Sequel, Writes
from .ragged import Packing, packing_of
from .session import Session
from .specification import SpecError

#: Results of two orders of evaluation are nearer than 2 to the minus this of the largest one.
_ROUNDING = 16


class NoRowsError(ValueError):
    """A function takes no such call, or no axis has rows that are known to be apart; the text says why."""


def candidate_of(session: Session) -> Ask:
    """The candidate as a function; NoRowsError where it raises."""

    def ask(leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results:
        call, manner = as_call(session, leaves), how.get("manner", Manner.STEADY)
        every = [*range(len(call.tensors))]
        sequel = {"times": how.get("times", 1), "writes": Writes(session.shared, every, after=True)}
        names = [name for name in session.shared if name in session.spec.parameters]
        floats = [name_leaf(call, i) for i, x in enumerate(leaves) if is_float(x)]
        pulled = BackwardCall([*range(len(floats))], names, list(cotangents)) if cotangents else None
        if session.spec.itself:
            session.history.calls += 1
            own = CandidateCall.of(call, manner=manner, backward=pulled, sequel=Sequel(**sequel))
            answer = session.candidate.ask(own)
            session.history.executed = require_no_fault(answer.executed)
        else:
            answer = session.call(call, manner=manner, backward=pulled, **sequel)
        if answer.raised:
            raise NoRowsError(answer.raised.partition("\n")[0])
        outputs = answer.repeat.different if sequel["times"] > 1 else answer.outputs
        pairs = zip([*floats, *names], answer.pulled.gradients, strict=False)
        results = _name_outputs(outputs) | _name_writes(call, answer.writes.after)
        return results | {f"{GRADIENT}{name}": g for name, g in pairs if g is not None}

    return packing_in(session).wrap(ask)


def formula_of(session: Session) -> Ask:
    """What is right as a function, without gradients: the spec, in float64 where it takes that, or the candidate."""

    def ask(leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results:
        spec, call, refusals = session.spec, as_call(session, leaves), list[SpecError]()
        for widen in (lambda x: x.double() if is_float(x) else x, torch.Tensor.detach):
            try:
                state = {name: widen(t) for name, t in spec.state.items()}
                result, after, _ = spec.result_at(wide := call.changed(widen), state)
                return _name_outputs(result.tensors) | _name_writes(wide, after.tensors)
            except SpecError as err:
                refusals.append(err)
        raise NoRowsError(str(refusals[-1])) from refusals[-1]

    return candidate_of(session) if session.spec.itself else packing_in(session).wrap(ask)


def packing_in(session: Session) -> Packing:
    """How a session's calls have sequences."""
    notes = session.records.rows
    notes.packing = notes.packing or packing_of(session.arguments, session.domain)
    return notes.packing  # type: ignore[no-any-return]


def as_call(session: Session, leaves: Leaves) -> CallArguments:
    """The arguments of a session with other leaves, of which some may be defaults, or with those of a table."""
    leaves = packing_in(session).call(leaves)
    extra = dict(list(session.domain.defaults.items())[: len(leaves) - len(session.arguments.leaves)])
    call = session.arguments.with_defaults(extra) if extra else session.arguments
    return replace(call, leaves=tuple(leaves))


def name_leaf(arguments: CallArguments, place: int) -> str:
    return arguments.names[place] if arguments.names else f"input {place}"


def _name_outputs(outputs: Sequence[Tensor]) -> Results:
    return {f"out[{i}]" if len(outputs) > 1 else "out": y for i, y in enumerate(outputs)}


def _name_writes(call: CallArguments, after: Sequence[Tensor]) -> Results:
    """The arguments that a call has changed, as they are behind it."""
    places = [i for i, x in enumerate(call.leaves) if isinstance(x, Tensor)]
    pairs = zip(places, call.tensors, after, strict=False)
    return {f"{WRITTEN}{name_leaf(call, i)}": now for i, was, now in pairs if not same_bits(was.detach(), now)}


def why_apart(one: Results, other: Results) -> str:
    """How results of a formula differ by more than rounding; empty where they do not."""
    for name, a in one.items():
        b = other.get(name, a)
        if a.shape != b.shape or (not is_float(a) and not torch.equal(a, b)):
            return f"its {name} is another one"
        if is_float(a):
            bits = min(format_of(a.dtype).precision // 2, _ROUNDING)
            a, b = a.double(), b.double()
            size = a[a.isfinite()].abs().max() if bool(a.isfinite().any()) else torch.zeros(())
            far = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs()).nan_to_num(math.inf)
            if bool((far > size * 2.0**-bits).any()):
                return f"its {name} differs by {float(far.max() / size):.2g} of the largest"
    return ""


def hold_relation(session: Session, relation: BitRelation, *, repeats: bool) -> BitDifference | str | int:
    """What differs for the candidate; why the relation says nothing of it; or how many elements have equal bits.

    `repeats`: whether the first program is run again where bits differ, which may be those of runs.
    """
    ask, formula = candidate_of(session), formula_of(session)
    try:
        if relation.proposed and (why := why_apart(*relation.run(formula))):
            return why
        one, other = relation.run(ask)
        if (difference := find_difference(one, other)) is None:
            session.records.rows.signs += count_signs(one, other)
            return sum(t.numel() for t in one.values())
        if repeats and (why := why_apart(*relation.run(formula))):
            return f"what is right depends on it: {why}"
        if repeats and find_difference(one, relation.programs[0](ask)) is not None:
            return difference._replace(words=f"{difference.words}, as from run to run", steady=False)
    except NoRowsError as err:
        return f"refused: {err}"
    return difference
