"""INV of a candidate: whether a row keeps its bits whatever is computed beside it, axis by axis.

Each axis is a list of relations. The card has the least case, and says whether another order of a sum explains it, and
whether it is a choice by size or follows the size.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from ....oracles.op.declaration import Tensor, is_float
from ....oracles.verdicts.verdict import Code
from ...relations import Ask, BitDifference, BitRelation, Leaves, Program, Results, find_difference, to_integers
from ..finding import Finding, not_asked, passing, wrong
from ..host.calls import Manner
from ..inputs import WAYS
from ..row_calls import NoRowsError, as_call, candidate_of, hold_relation, name_leaf, packing_in
from ..rows import batches_of, draw_cotangents, rows_of
from ..session import Asking, Session
from .sequences import in_chunks, with_padding

#: Numbers of rows: below and above those at which kernels change their ways; where rows are long; of gradients.
_SIZES, _OF_LONG, _OF_GRADIENTS = (1, 2, 5, 16, 33, 64, 129, 512, 1000, 4099), (1, 2, 8, 17, 64), (1, 5, 64, 513)
#: Seconds of a relation after which no larger one is asked, and of an axis after which nothing more is.
_SLOW, _TOTAL = 3.0, 25.0
#: Rows of a batch whose neighbours change, and calls in a row.
_ROWS, _TIMES = 36, 6
#: Values of an option that a formula ignores.
_OPTIONS = (1, 2, 3, 4, 8)


def _ask_axis(session: Session, axis: str) -> Finding:
    """The finding of an axis: of the first relation that does not hold."""
    code, start, judged, reasons, proposals = f"INV:{axis}", time.monotonic(), 0, list[str](), list[str]()
    session.records.rows.signs = 0
    try:
        for relation in _RELATIONS[axis](session):
            began = time.monotonic()
            result = hold_relation(session, relation, repeats=axis != "runs")
            if isinstance(result, BitDifference):
                return _describe(session, code, relation, result)
            judged += result if isinstance(result, int) else 0
            kind = proposals if relation.proposed else reasons
            kind += [f"{relation.words}: {result}"] if isinstance(result, str) else []
            if time.monotonic() - began > _SLOW or time.monotonic() - start > _TOTAL:
                reasons.insert(0, f"no time for more than {relation.words}")
                break
    except NoRowsError as err:
        reasons.insert(0, str(err))
    if not judged:
        return not_asked(code, f"not asked, because {[*reasons, *proposals, 'the signature shows nothing of it'][0]}")
    reasons += [f"{session.records.rows.signs} zeros have another sign"] if session.records.rows.signs else []
    return replace(passing(code, judged), elements=judged, left_out="; ".join(reasons[:2]))


def _describe(session: Session, code: str, relation: BitRelation, difference: BitDifference) -> Finding:
    """What is wrong, with the least case and what explains it."""
    ask, lines = candidate_of(session), list[str]()
    if relation.shrink is not None and difference.steady:
        relation, difference, *lines = relation.shrink(difference)

    def at_integers(leaves: Leaves, cotangents: Leaves = (), **how: Any) -> Results:
        return ask(to_integers(leaves), to_integers(cotangents), **how)

    order = "not known: small integers are refused"
    with contextlib.suppress(NoRowsError):
        pair = relation.run(at_integers)
        order = "not by sums of the operands alone: the bits of small integers differ, too"
        if find_difference(*pair) is None:
            order = "by another order of a sum: on small integers, where every order is exact, the bits agree"
    axis = f"axis       {code.partition(':')[2]}{f', along {relation.along}' * bool(relation.along)}"
    return wrong(code, Code.BITS, f"{relation.words}: {difference.words}", axis, *lines, f"explained  {order}")


def _in_batches(session: Session) -> Iterator[BitRelation]:
    """Some rows alone, and in a larger batch."""
    axes, ask = rows_of(session), candidate_of(session)
    for words, batch in batches_of(session, axes, _SIZES[-1]):
        yield from axes.of_sizes(batch, _OF_LONG if words else _SIZES, (), ask)
        if cotangents := draw_cotangents(session, batch, axes):
            yield from axes.of_sizes(batch, _OF_GRADIENTS, cotangents, ask)


def _positions(session: Session) -> Iterator[BitRelation]:
    """All rows of a batch, each some places on."""
    axes = rows_of(session)
    for count in (_ROWS, 131):
        for words, batch in batches_of(session, axes, count):
            n, cotangents = axes.count(batch), draw_cotangents(session, batch, axes) if count == _ROWS else []
            for by in sorted({1, n // 2, n - 1}):
                order = [(i + by) % n for i in range(n)]
                yield axes.in_order(batch, order, f"{words}, or each {by} places on", cotangents)


def _neighbours(session: Session) -> Iterator[BitRelation]:
    """Some rows beside others of all kinds of values and integers."""
    axes, rng = rows_of(session), session.generator("INV neighbours")
    for words, batch in batches_of(session, axes, _ROWS):
        fresh = session.filled(as_call(session, batch), WAYS["FWD:signs"], rng)
        filled = packing_in(session).like(batch, fresh.leaves)
        others = {f"of {x:g}": [torch.full_like(t, x) if is_float(t) else t for t in batch] for x in (0, 1e4, math.nan)}
        keep, cotangents = [axes.count(batch) // 3, axes.count(batch) // 2], draw_cotangents(session, batch, axes)
        for what, other in {"of other values": filled, **others}.items():
            yield axes.beside(batch, axes.mix(batch, other, keep, is_float), keep, what + words, cotangents)
        yield from axes.beside_longer(batch, words, 4)


def _orders(session: Session) -> Iterator[BitRelation]:
    """Rows in other orders."""
    axes = rows_of(session)
    for words, batch in batches_of(session, axes, 67):
        n = axes.count(batch)
        orders = dict(zip(("by their integers",), axes.sums(batch), strict=False))
        orders |= {"backwards": [*range(n)][::-1], "at random": session.generator("INV order").permutation(n).tolist()}
        yield from (axes.in_order(batch, order, f"{words}, or {how}", ()) for how, order in orders.items())


def _splits(session: Session) -> Iterator[BitRelation]:
    """Other values of whole numbers that the formula may ignore."""
    base = session.arguments.with_defaults(session.domain.defaults)
    cotangents = draw_cotangents(session, base.leaves) if any(type(leaf) is int for leaf in base.leaves) else []
    for place, leaf in enumerate(base.leaves):
        for value in _OPTIONS if type(leaf) is int else ():
            calls = (call_after(each.leaves, (), cotangents) for each in (base, base.with_leaf(place, value)))
            yield BitRelation(f"{name_leaf(base, place)}={leaf}, or {value}", [*calls], proposed=True)


def call_after(leaves: Leaves, before: Sequence[Leaves] = (), cotangents: Sequence[Tensor] = (), **how: Any) -> Program:
    """A call, made in some way, behind others, and its backward."""

    def run(ask: Ask) -> Results:
        for each in before:
            ask(each)
        return ask(leaves, cotangents, **how)

    return run


def _calls(session: Session) -> Iterator[tuple[str, Leaves]]:
    """The given call; and ones with many and with long rows, where these are known."""
    yield session.arguments.text, session.arguments.leaves
    try:
        axes = rows_of(session)
    except NoRowsError:
        return
    yield from ((f"{axes.count(batch)} rows{words}", batch) for words, batch in batches_of(session, axes, 600))


def _runs(session: Session) -> Iterator[BitRelation]:
    """Equal calls in a row, after others, and with warps in another order."""
    if not session.spec.itself and session.spec.is_random(session.arguments, session.spec.state):
        raise NoRowsError("random numbers are drawn")
    calls = dict(_calls(session))
    filled = session.filled(session.arguments, WAYS["FWD:signs"], session.generator("INV runs")).leaves
    for words, leaves in calls.items():
        yield BitRelation(
            f"{words}, or {_TIMES} times in a row", [call_after(leaves), call_after(leaves, times=_TIMES)]
        )
        pulled = draw_cotangents(session, leaves)
        one, later = call_after(leaves, (), pulled), call_after(leaves, [filled, *calls.values()], pulled)
        yield BitRelation(f"{words}, or after other calls", [one, later])
        if session.history.executed is not None:
            reordered = call_after(leaves, (), pulled, manner=Manner.REORDERED)
            yield BitRelation(f"{words}, or warps in another order", [one, reordered])


def _threads(session: Session) -> Iterator[BitRelation]:
    """Equal calls with other numbers of threads."""
    for words, leaves in _calls(session):
        pulled = draw_cotangents(session, leaves)
        both = (call_after(leaves, (), pulled, manner=manner) for manner in (Manner.ALONE, Manner.THREADS))
        yield BitRelation(f"{words}, with 1 thread, or 4", [*both])


def _shared(session: Session) -> Iterator[BitRelation]:
    """Gradients of what rows share: of equal rows in equal order, and what is declared of them besides."""
    axes, declared = rows_of(session), session.records.rows.shared
    for count in _OF_GRADIENTS[1:]:
        for words, batch in batches_of(session, axes, count):
            if not (cotangents := draw_cotangents(session, batch, axes)):
                raise NoRowsError("the candidate gives no gradients of what has rows")
            n = axes.count(batch)
            gradients = functools.partial(axes.shared, batch, count=n, cotangents=cotangents)
            others = {f"{k} more whose cotangents are 0": [[*range(n), *(i % n for i in range(k))]] for k in (1, 7, n)}
            if "any" in declared:
                others["backwards"] = [[*range(n)][::-1]]
                others["at random"] = [session.generator("INV shared").permutation(n).tolist()]
            if "single" in declared and count == _OF_GRADIENTS[2]:
                others["the sum of each alone"] = [[i] for i in range(n)]
            for how, calls in others.items():
                yield BitRelation(f"{n} rows{words}, or {how}", [gradients([[*range(n)]]), gradients(calls)], axes.name)


_RELATIONS: dict[str, Callable[[Session], Iterator[BitRelation]]] = {
    "rows": _in_batches, "position": _positions, "neighbours": _neighbours, "padding": with_padding,
    "chunks": in_chunks, "splits": _splits, "order": _orders, "runs": _runs, "threads": _threads,
    "shared": _shared,
}  # fmt: skip

ASKING: dict[str, Asking] = {f"INV:{axis}": functools.partial(_ask_axis, axis=axis) for axis in _RELATIONS}
