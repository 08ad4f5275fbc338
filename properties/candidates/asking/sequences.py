"""Relations of sequences: with more padding, and in pieces."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch

from ....oracles.op.declaration import Tensor, is_float
from ...relations import Ask, BitRelation, Leaves, Results, RowAxes, is_integers
from ..inputs import WAYS
from ..rows import NoRowsError, as_call, fill_rows, formula_of, rows_of, symbols_of
from ..session import Session

#: Where a sequence is cut, its length, and that of rows that come in pieces.
_CUTS, _LENGTH, _ROWS = (1, 16, 37), 65, 131
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
        try:
            whole = fill_rows(session, axes, session.arguments, _LENGTH)
            whole = whole if keys is None else fill_rows(session, keys, as_call(session, whole), _LENGTH)
            outputs = formula_of(session)(whole) if keys is not axes else {}
        except NoRowsError:
            continue
        own = replace(axes, results={name: t.shape.index(_LENGTH) for name, t in outputs.items() if _LENGTH in t.shape})
        states = _states(own, whole, outputs) if keys is None else {}
        before = "the state behind these" if keys is None else f"all of {keys.name} before"
        if own.results and (keys or states):
            yield from _cut_once(own, keys, whole, states, f" with {before}", proposed=True)
    axes = rows_of(session)
    yield from _cut_once(axes, None, fill_rows(session, axes, session.arguments, _ROWS), {}, "")


def _cut_once(
    axes: RowAxes, keys: RowAxes | None, whole: Leaves, states: Mapping[str, int], words: str, proposed: bool = False
) -> Iterator[BitRelation]:
    n = axes.count(whole)
    for cut in _CUTS:
        both = [functools.partial(_in_pieces, axes, keys, whole, states, cuts) for cuts in ((0, n), (0, cut, n))]
        yield BitRelation(f"{n} at once, or {cut} and then the rest{words}", both, axes.name, proposed)


def _states(axes: RowAxes, whole: Leaves, outputs: Results) -> dict[str, int]:
    """Outputs that are states: of each the argument of its shape, which has no part of the sequence."""
    free = {tuple(x.shape): i for i, x in enumerate(whole) if i not in axes.arguments and is_float(x)}
    pairs = ((name, free.get(tuple(t.shape))) for name, t in outputs.items() if name not in axes.results)
    return {name: place for name, place in pairs if place is not None}


def _in_pieces(
    axes: RowAxes, keys: RowAxes | None, whole: Leaves, states: Mapping[str, int], cuts: Sequence[int], ask: Ask
) -> Results:
    """The results of a sequence in pieces, each with all keys so far, or with the state behind the one before."""
    parts, carried = list[Results](), dict[int, Tensor]()
    for begin, end in itertools.pairwise(cuts):
        piece = axes.take(whole, range(begin, end))
        piece = piece if keys is None else keys.take(piece, range(end))
        parts.append(ask([carried[i].to(x) if i in carried else x for i, x in enumerate(piece)]))
        carried = {place: parts[-1][name] for name, place in states.items()}
    try:
        joined = {n: torch.cat([part[n] for part in parts], d) for n, d in axes.results.items() if n in parts[0]}
    except (RuntimeError, IndexError) as err:
        raise NoRowsError("the results of pieces are no sequence") from err
    return joined | {name: parts[-1][name] for name in states}
