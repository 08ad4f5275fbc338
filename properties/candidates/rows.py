"""The rows of a candidate's call: which axis they lie along, and batches of them."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from ...oracles.op.declaration import is_float
from ..relations import GRADIENT, WRITTEN, Leaves, RowAxes, is_integers
from .arguments import CallArguments, Tensor
from .domain.symbols import Axis, shapes_of, sizes_of
from .inputs import WAYS
from .row_calls import NoRowsError, as_call, candidate_of, formula_of, name_leaf, packing_in, why_apart
from .session import Session

#: Rows by which an axis is tried, how many of them are the few, and how much larger others are made.
_COUNT, _SOME, _LOUD = 6, 3, 256.0
#: Extents of long rows, of which the largest is taken that fits; elements of a long row, and of any call.
_LONG, _FEW, _MOST = (4099, 1031, 257), 2**14, 2**22


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
    every.sort(key=lambda each: (each.arguments.get(0) != 0, 0 not in each.arguments.values()))
    every = [packing.axes, *every] if (packing := packing_in(session)).of and not wanted else every
    declared = {word: f"{session.arguments.label(i)}.{d}" for (i, d), word in session.declared.names.items()}
    if wanted:
        names = [name for axes in every for name in axes.name.split(" = ")]
        every = [axes for axes in every if declared.get(wanted, wanted.replace(":", ".")) in axes.name.split(" = ")]
        need = ", ".join([*(name.replace(".", ":") for name in names), *declared])
        reasons += [] if every else [f"rows={wanted}: need one of {need}"]
    for axes in every:
        try:
            return _keep_apart(session, axes)
        except NoRowsError as err:
            reasons.append(f"{axes.name}: {err}")
    return [*reasons, "no other number of rows is taken"][0]


def _keep_apart(session: Session, axes: RowAxes) -> RowAxes:
    """The axes, with those of results; NoRowsError where what is right does not keep such rows apart."""
    ask, some, back = formula_of(session), range(_SOME), range(_COUNT)[::-1]
    base = fill_rows(session, axes, session.arguments, _COUNT)
    packing_in(session).learn(ask, base, axes.take(base, some))
    whole, few = ask(base), ask(axes.take(base, some))
    moved = {n: [d for d, size in enumerate(y.shape) if few[n].shape[d : d + 1] != (size,)] for n, y in whole.items()}
    extents = {(y.shape[d], few[n].shape[d]) for n, y in whole.items() for d in moved[n]}
    if any(len(each) > 1 for each in moved.values()) or extents != {(_COUNT, _SOME)}:
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
    packing, rng = packing_in(session), session.generator(f"INV rows {count}")
    leaves = packing.table(call.leaves) if axes.name == packing.name else call.leaves
    repeated = axes.take(leaves, [i % max(axes.count(leaves), 1) for i in range(count)])
    if packing.is_table(repeated):
        lengths = 1 + torch.from_numpy(rng.permutation(count)) * (packing.room(repeated) - 1) // count
        repeated = [lengths.to(x) if i in packing.rising else x for i, x in enumerate(repeated)]
    filled = session.filled(as_call(session, repeated), WAYS["FWD:signs"], rng)
    tensors = list(filled.tensors)
    for i, role in session.domain.integers.items():
        ends = role.kind == "lengths" and role.into and not role.sums_to
        if ends and _places(call)[i] in axes.arguments and tensors[i].ndim == 1:
            most = tensors[role.into[0][0]].shape[role.into[0][1]] - 1
            tensors[i] = (1 + torch.from_numpy(rng.permutation(count)) * most // max(count - 1, 1)).to(tensors[i])
    for each in (session.domain.declaration.settle(filled.with_tensors(tensors)), filled):
        with contextlib.suppress(NoRowsError):
            own = packing.like(repeated, each.leaves)
            formula_of(session)(axes.take(own, range(min(count, _SOME))))
            return own
    return repeated


def batches_of(session: Session, axes: RowAxes, count: int) -> Iterator[tuple[str, list[Any]]]:
    """So many rows, or as many as fit, as long as given, and longer along two other axes, with words for that."""
    domain, places, packing = session.domain.shapes, _places(session.arguments), packing_in(session)
    own, tokens = max(axes.count(session.arguments.leaves), 1), packing.of if axes.name == packing.name else {}
    rows = {(places.index(i), tokens.get(i, (d, 0))[0]) for i, d in axes.arguments.items()}
    others = [s for s in domain.symbols if rows.isdisjoint(s.axes) and s.unit is None]
    others.sort(key=lambda s: {i for i, _ in rows}.isdisjoint(i for i, _ in s.axes))
    calls = [("", session.arguments, 4 * _FEW if tokens else _MOST)]
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
        outputs = {name: y for name, y in ask(leaves).items() if is_float(y) and not name.startswith(WRITTEN)}
        if outputs and (axes is None or [*outputs] == [*axes.results][: len(outputs)]):
            cotangents = [torch.from_numpy(rng.standard_normal(tuple(y.shape))).to(y) for y in outputs.values()]
            return cotangents if any(name.startswith(GRADIENT) for name in ask(leaves, cotangents)) else []
    return []
