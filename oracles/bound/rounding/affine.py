"""Balls that keep what errors have in common: an affine form beside every ball of a formula.

What this is for. A ball forgets that the same error is in several numbers, so that what cancels in every evaluation
adds up: in normalisations one after another by a factor for each of them, until a ball is wide beyond any use. A form
z = c + Σ a_k e_k, with one e_k in [-1, 1] for each error that an operation made, keeps it (docs/design/affine_forms.md
has the proof).

What is hard here. Every radius of a form must cover what its ball covers: roundings, other algorithms of an operation,
accumulators that begin with a summand and loops that are evaluated as scans. So the error that an operation adds is
taken from the rule of balls, less what its slopes bring on, and never from a rule of its own. Of a scan no state exists
but those that are used: `state` is the form of one without the roundings of its chain, from which the chain goes
on, and to which each use adds all of them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ....reference.algorithms import Inapplicable
from ....reference.array import Array, Operands, Params
from ....reference.condition import Condition
from ..contract import Contract
from .ball import ACCUMULATED, CHAINED, Ball, magnitude_of
from .forms import LARGEST, AffineForm, Symbols, collect, merge_multiples
from .rules import joined, ways_of
from .slopes import Slope, slopes_of
from .spread import SLACK

#: Balls are read with forms where a radius is so many roundings of the largest result.
WIDE = 2.0**10
#: An element takes the radius of its form where that is so many times smaller than the radius of its ball.
WORTH = 2.0**3
#: A form that is so many times wider than its ball is forgotten.
_FORGOTTEN = 2.0
#: Of a sum that was read as a number.
_READ = -1
#: Of sums and states, one in the other, a form knows so many.
_MOST_SUMS = 64
#: Primitives that hand sums on, to which more may be added (`accumulators`).
_SAME_SUM = frozenset(ACCUMULATED)
#: Sums of coefficients and slopes, in roundings for each element of a result, besides those of the summands.
_STEPS = 12


@dataclass
class _Tape:
    """What the arrays of one reading share.

    Attributes:
        contract: of the evaluation. limits: how many symbols and coefficients there are.
        uses: of the roundings of a sum, by their symbols, its first use: `_READ`, or the first symbol of the result
            that an accumulator may have gone on to.
    """

    contract: Contract
    limits: Symbols
    uses: dict[tuple[int, int], int] = field(default_factory=dict)


class Affine(Array):
    """A ball and its affine form.

    Attributes:
        ball: the ball. form: None where no form is known, or nothing is but the radius.
        state: the form without the roundings of the chain that it is in, and what it leaves out; None of no chain.
        shadow: a ball of the magnitudes, which counts those roundings (`recurrences`).
    """

    __slots__ = ("ball", "form", "shadow", "state", "tape")

    def __init__(self, tape: _Tape, ball: Ball, form: AffineForm | None = None) -> None:
        self.tape, self.ball, self.form = tape, ball, form
        self.state: tuple[AffineForm | None, Any] | None = None
        self.shadow: Ball | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ball.shape

    def lift(self, value: Any) -> Affine:
        return Affine(self.tape, self.ball.lift(value))

    def comparable(self) -> Any:
        return self.ball.comparable()

    def compare(self, ufunc: np.ufunc, other: Array) -> Any:
        assert isinstance(other, Affine)
        answers = self.ball.compare(ufunc, other.ball)
        if isinstance(answers, Condition):
            answers.reading = self
        return answers

    def ends(self) -> tuple[Any, Any]:
        return self.ball.ends()

    def largest(self, axes: tuple[int, ...]) -> tuple[Any, Any]:
        return self.ball.largest(axes)

    def leave_out(self, zeros: Any) -> None:
        self.ball.leave_out(zeros)

    def may_store(self, dtype: str) -> bool:
        return self.ball.may_store(dtype)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Affine:
        xs = [x if isinstance(x, Affine) else self.lift(x) for x in operands]
        if primitive == "among":
            return _among(xs, params)
        xs = _with_states_that_exist(primitive, xs)
        balls = tuple(x.ball for x in xs)
        chains = [x.chain for x in balls]
        for x in balls:
            x.chain = None
        ball = balls[0].apply(primitive, balls, params)
        for x, chain in zip(balls, chains, strict=True):
            x.chain = chain
        for i, x in enumerate(balls):
            if ball is x:
                return xs[i]
        ball.common, ball.origin = (), None
        out, radius = Affine(self.tape, ball), ball.radii()
        if primitive in CHAINED and not any(x.special for x in balls):
            out.shadow = _count_chain(out, primitive, xs, params)
            CHAINED[primitive](primitive, ball, balls, params)
        if not ball.exact and self.tape.limits.has_room and all(map(_may_have_form, [ball, *balls])):
            _add_form(out, primitive, xs, params, radius)
        return out

    def settle_form(self) -> AffineForm | None:
        """The form, which is the ball's own radius in symbols of its own where there was none; None of exact values."""
        if self.form is None and not self.ball.exact:
            self.form = collect(self.tape.limits, self.shape, [], self.ball.radii())
        return self.form

    def is_in(self, other: Affine) -> bool:
        """Whether a sum or state that this array is was read to compute another one."""
        if self.form is None or other.form is None or other is self:
            return False
        ids, uses = other.form.ids, self.tape.uses
        sums = [symbols for symbols in self.form.sums if uses.get(symbols) == _READ]
        return any(np.diff(np.searchsorted(ids, symbols))[0] for symbols in sums)

    def _make_number(self) -> Affine:
        """The array as no sum and no state of a chain."""
        assert self.form is not None
        out = Affine(self.tape, self.ball.around(self.ball.centre), replace(self.form, sums=()))
        out.ball.nonnegative = self.ball.nonnegative
        return out

    def chain_state(self, form: AffineForm | None) -> tuple[AffineForm | None, Any]:
        """The form from which a chain goes on, where the array has a form, and what it leaves out."""
        return (form, 0.0) if self.state is None else self.state


def _may_have_form(ball: Ball) -> bool:
    """Whether nothing but numbers and finite radii is known of a ball, and its elements are not too many."""
    if ball.special or ball.stray is not None or not (ball.exact or ball.centre.size**2 <= LARGEST):
        return False
    finite = ball.bounded or bool(np.isfinite(ball.centre).all())
    return finite and (ball.exact or bool(np.isfinite(ball.radii()).all()))


def _with_states_that_exist(primitive: str, xs: list[Affine]) -> list[Affine]:
    """The operands, those that another one was computed from as numbers that exist.

    No accumulator goes on with a sum, and no scan leaves out a state, that was read to compute what it is joined with.
    """
    if len(xs) < 2 or primitive not in _SAME_SUM:
        return xs
    return [x._make_number() if any(map(x.is_in, xs)) else x for x in xs]


def _add_form(out: Affine, primitive: str, xs: Sequence[Affine], params: Params, radius: Any) -> None:
    """Give a result the form that its operands and its rule make, and the smaller radius of form and ball.

    Args:
        radius: that of the rule, before a chain has widened it.
    """
    limits, whole = out.tape.limits, out.ball.radii()
    every = slopes_of(primitive, out.ball, [x.ball for x in xs], params)
    if every is None:
        return
    slopes = [(slope, x) for slope, x in zip(every, xs, strict=True) if slope is not None]
    # What slopes bring on of the radii, and what they leave out.
    reach = sum((slope.sizes(x.ball.radii()) for slope, x in slopes), np.zeros(()))
    rest = sum((slope.rest for slope, _ in slopes), np.zeros(()))
    terms = max((slope.terms for slope, _ in slopes), default=0)
    added = np.maximum(radius - reach, 0.0) + 2.0 * rest + radius * ((_STEPS + terms) * SLACK)
    if not terms:  # Elements that are moved alone have no error.
        added = np.where(radius > reach, added, 0.0)
    first = limits.symbols
    forms = [_form_in(primitive, x, out, first) for _, x in slopes]
    form, own = _map_forms(out, [(slope, form) for (slope, _), form in zip(slopes, forms, strict=True)], added)
    chain = out.shadow
    if chain is not None and chain.chain.steps:
        # A chain goes on from the states without its roundings; what their slopes leave out goes by magnitudes.
        sources = [(slope, *x.chain_state(its)) for (slope, x), its in zip(slopes, forms, strict=True)]
        remainder = rest + _of_accumulators(primitive, xs, out, params) + radius * ((_STEPS + terms) * SLACK)
        state, off = _map_forms(out, [(slope, source) for slope, source, _ in sources], None)
        remainder = sum((slope.sizes(loose) for slope, _, loose in sources if np.any(loose)), remainder + off)
        out.state = state, remainder
        if np.any(chain.radii()):  # The terms may be made and added up in any order.
            added = np.broadcast_to(np.maximum(chain.radii(), own) + remainder, out.shape)
            form = collect(limits, out.shape, [state.part], added, whole * _FORGOTTEN, whole)
    if not np.isfinite(form.radius).all():
        out.state = None
        return
    if out.ball.summed is not None or out.state is not None:
        before = [symbols for its in forms if its is not None for symbols in its.sums]
        sums = ((first, limits.symbols), *(before if primitive in _SAME_SUM else ()))
        form = replace(form, sums=tuple(dict.fromkeys(sums)))
        if len(form.sums) > _MOST_SUMS:
            out.state = None
            return
    out.form = form
    narrower = form.radius < whole
    if narrower.any():
        out.ball.radius = np.where(narrower, form.radius, whole)


def _map_forms(out: Affine, pairs: Sequence[tuple[Slope, AffineForm | None]], added: Any) -> tuple[AffineForm, Any]:
    """The form that slopes make of forms, and the coefficients of its own symbols.

    Args:
        out: the result. added: what the operation adds; None for a form that has no symbols of its own.
    """
    limits, radius = out.tape.limits, out.ball.radii()
    known = [(slope, form) for slope, form in pairs if form is not None]
    off = sum((slope.off(form, limits) for slope, form in known), np.zeros(()))
    own = np.broadcast_to(off if added is None else added + off, out.shape)
    parts = [slope.part(form, limits) for slope, form in known]
    if len(known) == 1 and not known[0][0].terms and not own.any():
        slope, form = known[0]
        return AffineForm(parts[0], slope.sizes(form.radius)), own
    if added is None:
        return collect(limits, out.shape, parts, np.zeros(out.shape)), own
    return collect(limits, out.shape, parts, own, radius * _FORGOTTEN, radius), own


def _form_in(primitive: str, x: Affine, out: Affine, number: int) -> AffineForm | None:
    """The form of an operand as an operation has it.

    Where a sum is added to something, an accumulator may begin with that. Then the sum itself does not exist, and its
    roundings are not those that another operation sees, to which they are symbols of their own.

    Args:
        number: of the first symbol of the result, by which it is known.
    """
    form = x.settle_form()
    if form is None or not form.sums:
        return form
    uses, within = x.tape.uses, {first for first, _ in form.sums}
    joins = x.ball.summed is not None and primitive in ("add", "subtract", "sum")
    agreeing = within if joins else {_READ, *within}
    differ = any(symbols in uses and uses[symbols] not in agreeing for symbols in form.sums)
    if joins:
        for symbols in form.sums:
            uses.setdefault(symbols, number)
    elif primitive not in _SAME_SUM or primitive == "sum":
        uses.setdefault(form.sums[0], _READ)
    return form.renew_symbols(form.sums, x.tape.limits) if differ else form


def _of_accumulators(primitive: str, xs: Sequence[Affine], out: Affine, params: Params) -> Any:
    """What the rule of accumulators adds to the radius of a result."""
    if primitive not in ACCUMULATED or all(x.ball.summed is None for x in xs):
        return 0.0
    part = Ball(out.ball.centre, None, out.tape.contract)
    ACCUMULATED[primitive](primitive, part, [x.ball for x in xs], params)
    return part.radii()


def _count_chain(out: Affine, primitive: str, xs: Sequence[Affine], params: Params) -> Ball | None:
    """The roundings of the chain that a result is in, as the radius of a ball of magnitudes; None of no chain."""
    operands = []
    for x in xs:
        shadow = Ball(magnitude_of(x.ball.centre) + x.ball.radii(), None, out.tape.contract)
        shadow.chain = None if x.shadow is None else x.shadow.chain
        operands.append(shadow)
    result = Ball(magnitude_of(out.ball.centre) + out.ball.radii(), None, out.tape.contract)
    CHAINED[primitive](primitive, result, operands, params)
    if result.chain is None:
        return None
    return result


def _among(xs: Sequence[Affine], params: Params) -> Affine:
    """A result that one of several algorithms gives."""
    tape = xs[0].tape
    first, *others = ways_of(params["ways"], tape.contract)
    may = tape.limits.has_room and all(_may_have_form(x.ball) for x in xs)
    forms = [x.settle_form() for x in xs] if may else []
    read: list[Affine] = [first.formula(*xs)]
    for way in others:
        try:
            read.append(way.formula(*xs))
        except Inapplicable:
            continue
    if len(read) == 1:
        return read[0]
    ids = np.unique(np.concatenate([np.zeros(0, np.int64), *(form.ids for form in forms if form is not None)]))
    return _join_ways(read, ids, may)


def _join_ways(read: Sequence[Affine], shared: Any, may: bool) -> Affine:
    """What holds the results of several algorithms.

    An evaluation goes one of the ways, so the errors of the others are zero in it, and all may stand beside each other.
    Those of single elements are one symbol, as large as in any way.

    Args:
        read: the results. shared: the symbols of the operands, which every way has. may: whether those have forms.
    """
    ball, tape = functools.reduce(joined, [x.ball for x in read]), read[0].tape
    out = Affine(tape, ball)
    if ball.exact or not may or not all(map(_may_have_form, [ball, *(x.ball for x in read)])):
        return out
    limits, centre, parts = tape.limits, read[0].ball.centre, []
    single, first = np.zeros(out.shape), None
    for x in read:
        form = x.settle_form()
        apart = np.abs(np.asarray(x.ball.centre - centre, dtype=np.float64))
        if form is not None:
            part, own = form.split(shared)
            ways, off = merge_multiples(own, limits)
            first = part if first is None else first
            away = collect(limits, out.shape, [part, (first[0], -first[1])], np.zeros(out.shape))
            parts.append((limits.number(ways.shape[-1]), ways))
            apart = apart + off + away.radius * (1.0 + limits.eps)
        single = np.maximum(single, apart * (1.0 + _STEPS * SLACK))
    parts = [*parts, *([] if first is None else [first])]
    form = collect(limits, out.shape, parts, single, ball.radii() * _FORGOTTEN, ball.radii())
    if np.isfinite(form.radius).all():
        out.form = form
        ball.radius = np.minimum(ball.radii(), form.radius)
    return out


def narrow(
    read: tuple[Any, ...], function: Callable[..., Any], values: Sequence[Any], contract: Contract
) -> tuple[Any, ...]:
    """The balls of a formula, with the radii of affine forms where those are many times smaller.

    Args:
        read: what the formula gives of balls. function, values: the formula, and its balls or integers.
        contract: of the evaluation.
    """
    # A gradient that is written in another way, as that of softmax, may be less accurate than the form of the spec's.
    if contract.lattice or contract.order or not all(isinstance(each, Ball) for each in read):
        return read
    if max((x.centre.size for x in (*read, *values) if isinstance(x, Ball)), default=0) ** 2 > LARGEST:
        return read
    if not any(_is_wide(each, contract) for each in read):
        return read
    tape = _Tape(contract, Symbols(contract))
    outputs = function(*(Affine(tape, x) if isinstance(x, Ball) else x for x in values))
    again = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    if not all(isinstance(each, Affine) for each in again):
        return read
    return tuple(_take_narrower(each, other.ball) for each, other in zip(read, again, strict=True))


def _is_wide(read: Ball, contract: Contract) -> bool:
    """Whether some radius is large beside the roundings of the largest result."""
    unit = contract.stores.unit_roundoff if contract.may_store(contract.stores) else contract.roundoff
    size = np.abs(np.asarray(read.centre, dtype=np.float64))
    finite = np.isfinite(size)
    if read.exact or not finite.any():
        return False
    return bool(np.any(read.radii()[finite] > WIDE * unit * float(size[finite].max()) + contract.underflow))


def _take_narrower(read: Ball, other: Ball) -> Ball:
    radius, less = read.radii(), other.radii()
    better = np.isfinite(less) & (less * WORTH <= radius) & np.isfinite(other.centre) & np.isfinite(read.centre)
    if not better.any():
        return read
    centre = np.where(better, other.centre, read.centre)
    out = Ball(centre, np.where(better, less, radius), read.contract, read.special, read.nonnegative)
    out.stray, out.beyond = read.stray, read.beyond
    return out
