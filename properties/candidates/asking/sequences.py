"""Relations of sequences: with more padding, and in pieces."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import torch

from ....oracles.op.declaration import Tensor, is_float
from ...relations import WRITTEN, Ask, BitRelation, Leaves, Results, RowAxes, is_integers
from ..inputs import WAYS
from ..row_calls import NoRowsError, as_call, formula_of, name_leaf
from ..rows import fill_rows, rows_of, symbols_of
from ..session import Session

#: Where a sequence is cut, its lengths, and that of rows that come in pieces.
_CUTS, _LENGTHS, _ROWS = (1, 16, 37), (65, 33, 15, 7), 131
#: Elements of padding beside as many as there are, and what they hold.
_MORE, _FILLS = (1, 7, 1031), (0.0, 3.0, math.nan)


def with_padding(session: Session) -> Iterator[BitRelation]:
    """More of what is behind the end of a row, or where a mask is false, and with other numbers."""
    leaves, roles = session.arguments.leaves, session.domain.integers.values()
    places = [i for i, x in enumerate(leaves) if isinstance(x, Tensor)]
    ends = {(places[i], d) for role in roles if role.kind == "lengths" for i, d in role.into}
    ends |= {(i, d) for i in places if leaves[i].dtype == torch.bool for d in range(leaves[i].ndim)}
    base = session.filled(session.arguments, WAYS["FWD:signs"], session.generator("INV padding")).leaves
    for axes in symbols_of(session):
        n = axes.count(base)
        for more, fill in itertools.product((*_MORE, n), _FILLS) if not ends.isdisjoint(axes.arguments.items()) else ():
            longer = axes.take(base, [min(i, n - 1) for i in range(n + more)])
            for i, d in axes.arguments.items():
                if not is_integers(longer[i]):
                    longer[i].narrow(d, n, more).fill_(fill if is_float(longer[i]) else False)
            both = (functools.partial(_of_length, each, n, n + more) for each in (base, longer))
            yield BitRelation(f"{n}, or {more} more of padding that holds {fill:g}", [*both], axes.name, proposed=True)


def _of_length(leaves: Leaves, n: int, longer: int, ask: Ask) -> Results:
    """The results, of which axes of the longer extent end where those of the shorter one do."""
    results = ask(leaves).items()
    return {name: t[tuple(slice(n if extent == longer else None) for extent in t.shape)] for name, t in results}


def in_chunks(session: Session) -> Iterator[BitRelation]:
    """A sequence in pieces, with all keys so far or with the state behind the piece before; and rows in pieces."""
    symbols = symbols_of(session)
    for axes, keys in itertools.product(symbols, (None, *symbols)):
        # A cache may have no room for the longest.
        for length in _LENGTHS:
            try:
                whole = fill_rows(session, axes, session.arguments, length)
                whole = whole if keys is None else fill_rows(session, keys, as_call(session, whole), length)
                outputs = formula_of(session)(whole) if keys is not axes else {}
                break
            except NoRowsError:
                outputs = {}
        of_outputs = {n: t for n, t in outputs.items() if length in t.shape and not n.startswith(WRITTEN)}
        own = replace(axes, results={name: t.shape.index(length) for name, t in of_outputs.items()})
        states = _states(session, own, whole, outputs) if keys is None else {}
        if own.results and keys:
            yield from _cut_once(own, whole, f" with all of {keys.name} before", keys=keys)
        for place in (None, *_numbers(own, whole)) if own.results and states else ():
            where = "" if place is None else f", {name_leaf(session.arguments, place)} further on"
            yield from _cut_once(own, whole, f" with the state behind these{where}", states=states, number=place)
    axes = rows_of(session)
    yield from _cut_once(axes, fill_rows(session, axes, session.arguments, _ROWS), "", proposed=False)


def _cut_once(
    axes: RowAxes, whole: Leaves, words: str, *, proposed: bool = True, **pieces: Any
) -> Iterator[BitRelation]:
    n = axes.count(whole)
    for cut in sorted({min(cut, n - 1) for cut in _CUTS}):
        both = [functools.partial(_in_pieces, axes, whole, cuts, **pieces) for cuts in ((0, n), (0, cut, n))]
        yield BitRelation(f"{n} at once, or {cut} and then the rest{words}", both, axes.name, proposed)


def _states(session: Session, axes: RowAxes, whole: Leaves, outputs: Results) -> dict[str, int]:
    """Outputs that are states: of each the argument of its shape, which has no part of the sequence, or that it is."""
    free = {tuple(x.shape): i for i, x in enumerate(whole) if i not in axes.arguments and is_float(x)}
    pairs = {name: free.get(tuple(t.shape)) for name, t in outputs.items() if name not in axes.results}
    own = {f"{WRITTEN}{name_leaf(session.arguments, i)}": i for i in free.values()}
    return {name: own.get(name, place) for name, place in pairs.items() if place is not None}


def _numbers(axes: RowAxes, whole: Leaves) -> list[int]:
    """Places of whole numbers that may say where a piece begins."""
    free = [i for i in range(len(whole)) if i not in axes.arguments and i not in axes.sizes]
    return [i for i in free if type(whole[i]) is int or is_integers(whole[i])]


def _in_pieces(
    axes: RowAxes, whole: Leaves, cuts: Sequence[int], ask: Ask, *, keys: RowAxes | None = None,
    states: Mapping[str, int] = MappingProxyType({}), number: int | None = None,
) -> Results:  # fmt: skip
    """The results of a sequence in pieces, each with all keys so far, or with the state behind the one before.

    Args:
        axes, whole, cuts, ask: of the sequence, its call, where it is cut, and who is asked. keys: their axes.
        states: results that are states, and the places of them. number: of the one that says where a piece begins.
    """
    parts, carried = list[Results](), dict[int, Tensor]()
    for begin, end in itertools.pairwise(cuts):
        piece = axes.take(whole, range(begin, end))
        piece = piece if keys is None else keys.take(piece, range(end))
        piece = piece if number is None else [x + begin if i == number else x for i, x in enumerate(piece)]
        parts.append(ask([carried[i].to(x) if i in carried else x for i, x in enumerate(piece)]))
        carried = {place: parts[-1][name] for name, place in states.items()}
    try:
        joined = {n: torch.cat([part[n] for part in parts], d) for n, d in axes.results.items() if n in parts[0]}
    except (RuntimeError, IndexError) as err:
        raise NoRowsError("the results of pieces are no sequence") from err
    return joined | {name: parts[-1][name] for name in states}
