"""The rows of a candidate's call: which axis they lie along, batches of them, and whether a relation of them holds.

What is hard here: a formula may mix rows, and then no kernel keeps their bits. So where bits differ the spec is asked,
too, in float64 if it takes that. What it does not keep up to rounding is none of the formula, and nobody is accused of
it. Without a spec the candidate says so itself: what differs by more than rounding is another row's influence, or a
fault that nobody can tell from one.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...oracles.op.declaration import is_float
from ...oracles.specs.storage import format_of
from ..relations import (
    GRADIENT,
    Ask,
    BitDifference,
    BitRelation,
    Leaves,
    Results,
    RowAxes,
    count_signs,
    find_difference,
    is_integers,
)
from .arguments import CallArguments, Tensor
from .domain.symbols import Axis, shapes_of, sizes_of
from .finding import require_no_fault
from .host.calls import BackwardCall, CandidateCall, Manner, Sequel
from .inputs import WAYS
from .session import Session
from .specification import SpecError

#: Results of two orders of evaluation are nearer than 2 to the minus this of the largest one.
_ROUNDING = 16
#: Rows by which an axis is tried, how many of them are the few, and how much larger others are made.
_COUNT, _SOME, _LOUD = 6, 3, 256.0
#: Extents of long rows, of which the largest is taken that fits; elements of a long row, and of any call.
_LONG, _FEW, _MOST = (4099, 1031, 257), 2**14, 2**22


class NoRowsError(ValueError):
    """A function takes no such call, or no axis has rows that are known to be apart; the text says why."""


def candidate_of(session: Session) -> Ask:
    """The candidate as a function; NoRowsError where it raises."""

    def ask(leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results:
        call, manner = as_call(session, leaves), how.get("manner", Manner.STEADY)
        sequel = {"times": how.get("times", 1)}
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
        return _name_outputs(outputs) | {f"{GRADIENT}{name}": g for name, g in pairs if g is not None}

    return ask


def formula_of(session: Session) -> Ask:
    """What is right as a function, without gradients: the spec, in float64 where it takes that, or the candidate."""

    def ask(leaves: Leaves, cotangents: Sequence[Tensor] = (), **how: Any) -> Results:
        spec, call, refusals = session.spec, as_call(session, leaves), list[SpecError]()
        for widen in (lambda x: x.double() if is_float(x) else x, torch.Tensor.detach):
            try:
                state = {name: widen(t) for name, t in spec.state.items()}
                return _name_outputs(spec.outputs(call.changed(widen), state))
            except SpecError as err:
                refusals.append(err)
        raise NoRowsError(str(refusals[-1])) from refusals[-1]

    return candidate_of(session) if session.spec.itself else ask


def as_call(session: Session, leaves: Leaves) -> CallArguments:
    """The arguments of a session with other leaves, of which some may be defaults."""
    extra = dict(list(session.domain.defaults.items())[: len(leaves) - len(session.arguments.leaves)])
    call = session.arguments.with_defaults(extra) if extra else session.arguments
    return replace(call, leaves=tuple(leaves))


def name_leaf(arguments: CallArguments, place: int) -> str:
    return arguments.names[place] if arguments.names else f"input {place}"


def _name_outputs(outputs: Sequence[Tensor]) -> Results:
    return {f"out[{i}]" if len(outputs) > 1 else "out": y for i, y in enumerate(outputs)}


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


def symbols_of(session: Session) -> list[RowAxes]:
    """Axes of one extent as those of rows: of each symbol of the domain; without any, those in the same place."""
    arguments, symbols = session.arguments, session.domain.shapes.symbols
    every: list[list[Axis]] = [s.axes for s in symbols if {by for _, by in s.moves} == {1}]
    for d, n in enumerate(arguments.tensors[0].shape if arguments.tensors and not symbols else ()):
        every += [[(i, d) for i, t in enumerate(arguments.tensors) if t.shape[d : d + 1] == (n,)], [(0, d)]]
    shapes, result = shapes_of(arguments), list[RowAxes]()
    places, count = [*_places(arguments), *sizes_of(arguments)], len(arguments.tensors)
    for axes in every:
        own = {places[i]: d for i, d in axes if i < count}
        if own and len({shapes[i][d] for i, d in axes}) == 1 and len({i for i, _ in axes}) == len(axes):
            name = " = ".join(f"{name_leaf(arguments, i)}.{d}" for i, d in own.items())
            least = {i: 1 for i in own if is_integers(arguments.leaves[i])}
            result.append(RowAxes(name, own, [places[i] for i, _ in axes if i >= count], least=least))
    return result


def _places(arguments: CallArguments) -> list[int]:
    """Those of tensors among the leaves."""
    return [i for i, x in enumerate(arguments.leaves) if isinstance(x, Tensor)]


def rows_of(session: Session) -> RowAxes:
    """The axes of the rows of a session's call, with those of its results; NoRowsError where none are apart."""
    notes = session.records.rows
    notes.axes = notes.axes or _find_rows(session)
    if isinstance(notes.axes, RowAxes):
        return notes.axes
    raise NoRowsError(notes.axes)


def _find_rows(session: Session) -> RowAxes | str:
    """The axes of rows, or why there are none."""
    every, wanted, reasons = symbols_of(session), session.records.rows.wanted, list[str]()
    declared = {word: f"{session.arguments.label(i)}.{d}" for (i, d), word in session.declared.names.items()}
    if wanted:
        names = [name for axes in every for name in axes.name.split(" = ")]
        every = [axes for axes in every if declared.get(wanted, wanted.replace(":", ".")) in axes.name.split(" = ")]
        need = ", ".join([*(name.replace(".", ":") for name in names), *declared])
        reasons += [] if every else [f"rows={wanted}: need one of {need}"]
    for axes in sorted(every, key=lambda each: (each.arguments.get(0) != 0, 0 not in each.arguments.values())):
        try:
            return _keep_apart(session, axes)
        except NoRowsError as err:
            reasons.append(f"{axes.name}: {err}")
    return [*reasons, "no other number of rows is taken"][0]


def _keep_apart(session: Session, axes: RowAxes) -> RowAxes:
    """The axes, with those of results; NoRowsError where what is right does not keep such rows apart."""
    ask, some, back = formula_of(session), range(_SOME), range(_COUNT)[::-1]
    base = fill_rows(session, axes, session.arguments, _COUNT)
    whole, few = ask(base), ask(axes.take(base, some))
    moved = {n: [d for d, size in enumerate(y.shape) if few[n].shape[d : d + 1] != (size,)] for n, y in whole.items()}
    if any(len(each) > 1 for each in moved.values()) or not any(moved.values()):
        raise NoRowsError("no output has one row for each of them")
    own = replace(axes, results={name: each[0] for name, each in moved.items() if each})
    if not session.records.rows.wanted and next(iter(own.results.values())):
        raise NoRowsError("these are no rows of the output; rows=NAME:AXIS asks of them")
    loud = [(x * _LOUD).to(x.dtype) if is_float(x) and x.element_size() > 1 else x for x in base]
    others = {
        "alone": (some, few), "beside larger ones": (some, ask(own.mix(base, loud, some, is_float))),
        "in another order": (back, ask(own.take(base, back))),
    }  # fmt: skip
    for words, (rows, results) in others.items():
        if why := why_apart(own.cut(whole, rows), own.cut(results, range(len(rows)))):
            raise NoRowsError(f"a row depends on the others: {words} {why}")
    floats = {f"{GRADIENT}{name_leaf(session.arguments, i)}": d for i, d in axes.arguments.items() if is_float(base[i])}
    return replace(own, results={**own.results, **floats})


def fill_rows(session: Session, axes: RowAxes, call: CallArguments, count: int) -> list[Any]:
    """So many rows like those of a call, with other numbers where those are taken, and lengths from 1 to the most."""
    own, rng = max(axes.count(call.leaves), 1), session.generator(f"INV rows {count}")
    repeated = replace(call, leaves=tuple(axes.take(call.leaves, [i % own for i in range(count)])))
    filled = session.filled(repeated, WAYS["FWD:signs"], rng)
    tensors = list(filled.tensors)
    for i, role in session.domain.integers.items():
        ends = role.kind == "lengths" and role.into and not role.sums_to
        if ends and _places(call)[i] in axes.arguments and tensors[i].ndim == 1:
            most = tensors[role.into[0][0]].shape[role.into[0][1]] - 1
            tensors[i] = (1 + torch.from_numpy(rng.permutation(count)) * most // max(count - 1, 1)).to(tensors[i])
    for each in (session.domain.declaration.settle(filled.with_tensors(tensors)), filled):
        with contextlib.suppress(NoRowsError):
            formula_of(session)(axes.take(each.leaves, range(min(count, _SOME))))
            return list(each.leaves)
    return list(repeated.leaves)


def batches_of(session: Session, axes: RowAxes, count: int) -> Iterator[tuple[str, list[Any]]]:
    """So many rows, or as many as fit, as long as given, and longer along two other axes, with words for that."""
    domain, own = session.domain.shapes, max(axes.count(session.arguments.leaves), 1)
    rows = {(_places(session.arguments).index(i), d) for i, d in axes.arguments.items()}
    others = [s for s in domain.symbols if rows.isdisjoint(s.axes) and s.unit is None]
    others.sort(key=lambda s: {i for i, _ in rows}.isdisjoint(i for i, _ in s.axes))
    calls = [("", session.arguments, _MOST)]
    for symbol in others[:2]:
        shapes = [(extent, domain.resized({symbol: extent})) for extent in _LONG]
        fits = (each for each in shapes if each[1] != domain.start and session.domain.allows(each[1])
                and sum(map(math.prod, each[1])) // own <= _FEW)  # fmt: skip
        for n, longer in itertools.islice(fits, 1):
            calls.append((f", {n} long", session.domain.at(session.arguments, longer), 4 * _FEW))
    for words, call, most in calls:
        size = sum(call.leaves[i].numel() for i in axes.arguments) // own
        yield words, fill_rows(session, axes, call, min(count, max(most // max(size, 1), _COUNT)))


def draw_cotangents(session: Session, leaves: Leaves, axes: RowAxes | None = None) -> list[Tensor]:
    """Cotangents of a call; none where the candidate gives no gradients, or an output has not the rows of `axes`."""
    ask, rng = candidate_of(session), session.generator("INV cotangents")
    with contextlib.suppress(NoRowsError):
        outputs = {name: y for name, y in ask(leaves).items() if is_float(y)}
        if outputs and (axes is None or [*outputs] == [*axes.results][: len(outputs)]):
            cotangents = [torch.from_numpy(rng.standard_normal(tuple(y.shape))).to(y) for y in outputs.values()]
            return cotangents if any(name.startswith(GRADIENT) for name in ask(leaves, cotangents)) else []
    return []
