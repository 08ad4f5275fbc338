"""Balls that keep what errors have in common: an affine form beside every ball of a text that repeats a step.

What this is for. A ball forgets that the same error is in several numbers, so that what cancels in every evaluation
adds up: in normalisations one after another by a factor for each of them, until a ball is wide beyond any use. A form
z = c + Σ a_k e_k, with one e_k in [-1, 1] for each error of a state between two steps, keeps it
(docs/design/affine_forms.md has the proof).

What is hard here. A kernel may compute a step in other ways than the text has it: a variance about another number, a
sum that begins with what is added to it. The ball of a step holds those, and a form of all its roundings would not. So
within a step the errors that it makes add up as in a ball, and are symbols only from the next step on (`repetition.py`
says where one begins), or where they are in a factor of several elements.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ....reference.algorithms import Inapplicable
from ....reference.array import Array, Operands, Params
from ....reference.condition import is_open
from ..contract import Contract
from .applications import Application, describe_kind
from .ball import RULES, Ball
from .choices import joined, ways_of, without_relations
from .forms import ONE, STEPS, AffineForm, combine_forms, padded, sum_of_magnitudes
from .logarithms import combine_relative, is_positive, linear_form, may_be_relative, radius_of, relative_form
from .repetition import find_states
from .slopes import slopes_of
from .spread import SLACK

#: Balls are read with forms where a radius is so many roundings of the largest result, or such a share of it.
WIDE, SHARE = 2.0**10, 2.0**-4
#: An element takes the radius of its form where that is so many times smaller than the radius of its ball.
WORTH = 2.0**3
#: Coefficients that one array has at most, for their memory, and that a reading computes, for their time.
LARGEST, MOST_WORK = 2.0**22, 4.0e8


@dataclass
class Tape:
    """What the arrays of one reading share.

    Attributes:
        contract: of the evaluation. states: the numbers of the states, by the primitive before which they are read.
        steps: that were applied so far. results: of them, by number; where states are known, those alone.
        symbols: how many there are. depth: of the choices among algorithms that are being read.
        open: whether a comparison may have two answers. work: coefficients that were computed.
    """

    contract: Contract
    states: dict[int, tuple[int, ...]] = field(default_factory=dict)
    steps: list[Application] = field(default_factory=list)
    results: dict[int, Affine] = field(default_factory=dict)
    symbols: int = ONE + 1
    depth: int = 0
    open: bool = False
    work: float = 0.0

    def begin_step(self) -> None:
        """Make states of the results that are some before the next primitive."""
        for name in self.states.get(len(self.steps), ()):
            # A number that exists: no scan leaves it out. A sum that goes on with it still has all of its roundings.
            self.results[name].ball.chain = None
            self.results[name].fix_number(is_state=True)

    def end_step(self, primitive: str, out: Affine, xs: Sequence[Affine], params: Params) -> None:
        """Number the result of a primitive, and note what it was made of."""
        if out.number is None:
            out.number = len(self.steps)
        if not self.states or any(out.number in names for names in self.states.values()):
            self.results[out.number] = out
        kind = describe_kind(primitive, [out.shape, *(x.shape for x in xs)], params)
        names = tuple(None if x.ball.exact else x.number for x in xs)
        self.steps.append(Application(primitive, kind, names, out.number, out.ball.exact))


class Affine(Array):
    """A ball and its affine form.

    Attributes:
        ball: the ball. form: None where nothing is known but the radius. number: of the result.
        depth: of the choices among algorithms in which it was made.
    """

    __slots__ = ("ball", "depth", "form", "number", "tape")

    def __init__(self, tape: Tape, ball: Ball, form: AffineForm | None = None) -> None:
        self.tape, self.ball, self.form, self.depth = tape, ball, form, tape.depth
        self.number: int | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.ball.shape

    @property
    def contract(self) -> Contract:
        return self.tape.contract

    def lift(self, value: Any) -> Affine:
        return Affine(self.tape, self.ball.lift(value))

    def comparable(self) -> Any:
        self.tape.open |= not self.ball.exact
        return self.ball.comparable()

    def compare(self, ufunc: np.ufunc, other: Array) -> Any:
        assert isinstance(other, Affine)
        answers = self.ball.compare(ufunc, other.ball)
        if is_open(answers):
            self.tape.open, answers.reading = True, self
        return answers

    def ends(self) -> tuple[Any, Any]:
        self.tape.open |= not self.ball.exact
        return self.ball.ends()

    def largest(self, axes: tuple[int, ...]) -> tuple[Any, Any]:
        self.tape.open |= not self.ball.exact
        return self.ball.largest(axes)

    @property
    def special(self) -> bool:
        return self.ball.special

    def leave_out(self, zeros: Any) -> None:
        self.ball.leave_out(zeros)

    def may_store(self, dtype: str) -> bool:
        return self.ball.may_store(dtype)

    def apply(self, primitive: str, operands: Operands, params: Params) -> Affine:
        tape = self.tape
        xs = [x if isinstance(x, Affine) else self.lift(x) for x in operands]
        if not tape.depth:
            tape.begin_step()
        if primitive == "among":
            out = _among(tape, xs, params)
        else:
            ball = xs[0].ball.apply(primitive, tuple(x.ball for x in xs), params)
            same = [x for x in xs if ball is x.ball]
            out = same[0] if same else _with_form(Affine(tape, ball), primitive, xs, params)
        if not tape.depth:
            tape.end_step(primitive, out, xs, params)
        return out

    def settle_form(self) -> AffineForm:
        """The form; without symbols where nothing is known but the radius."""
        if self.form is None:
            return AffineForm(np.zeros((*self.shape, 0)), self.ball.radii())
        return linear_form(self.ball, self.form)

    def fix_number(self, is_state: bool = False) -> None:
        """Make symbols of the errors that were made in the array, which is a number that exists in an evaluation."""
        tape, form = self.tape, self.form or self.settle_form()
        if not _may_have_form(self.ball):
            return
        if is_state and is_positive(self.ball):
            form = relative_form(self.ball, form)
        own = np.flatnonzero(form.loose)
        symbols = tape.symbols + len(own)
        if not len(own) or form.loose.size * symbols > LARGEST:
            return
        terms = np.zeros((form.loose.size, symbols))
        terms[:, : form.terms.shape[-1]] = form.terms.reshape(form.loose.size, -1)
        terms[own, np.arange(tape.symbols, symbols)] = form.loose.reshape(-1)[own]
        tape.symbols, tape.work = symbols, tape.work + terms.size
        self.form = AffineForm(terms.reshape(*self.shape, symbols), np.zeros(self.shape), form.relative)


def _may_have_form(ball: Ball) -> bool:
    """Whether nothing but numbers and finite radii is known of a ball, and no scan may leave it out."""
    if ball.special or ball.stray is not None or ball.inserted is not None:
        return False
    scanned = ball.chain is not None and ball.chain.steps > 1
    return not scanned and bool(np.isfinite(ball.centre).all()) and bool(np.isfinite(ball.radii()).all())


def _with_form(out: Affine, primitive: str, xs: Sequence[Affine], params: Params) -> Affine:
    """A result with the form that its operands and its rule make, and the smaller radius of form and ball."""
    tape, ball = out.tape, out.ball
    for x in xs if tape.states else ():
        # A way of an algorithm makes no numbers of what it was given: those would be numbers of the other ways, too.
        if x.depth == tape.depth and _is_factor(primitive, x, out):
            x.fix_number()
    if not tape.states or ball.exact or all(x.form is None for x in xs) or tape.work > MOST_WORK:
        return out
    ball.common, ball.origin = (), None
    if _may_be_scan(primitive, xs) or not all(map(_may_have_form, [ball, *(x.ball for x in xs)])):
        return out
    exact = (Ball(x.ball.centre, None, ball.contract, nonnegative=x.ball.nonnegative) for x in xs)
    least = RULES[primitive](ball.contract, *exact, **params).radii()
    # What common errors have taken from the radius is no part of the rule.
    whole = RULES[primitive](ball.contract, *(x.ball for x in xs), **params).radii()
    balls, forms = [x.ball for x in xs], [None if x.ball.exact else x.form or x.settle_form() for x in xs]
    if may_be_relative(primitive, balls, forms, params):
        form = combine_relative(primitive, ball, balls, forms, params, least, np.maximum(ball.radii() - whole, 0.0))
    else:
        every = slopes_of(primitive, ball, balls, params)
        if every is None:
            return out
        slopes = [(slope, x.settle_form(), x.ball.radii()) for slope, x in zip(every, xs, strict=True) if slope]
        is_square = primitive == "square" or (primitive == "multiply" and xs[0] is xs[1])
        lean = np.square(balls[0].radii()) if is_square else 0.0
        form = combine_forms(slopes, np.maximum(ball.radii(), whole), least, _stretch_of(primitive, xs), lean)
    if not np.isfinite(form.loose).all():
        return out
    tape.work += form.terms.size
    out.form = form
    ball.radius = np.minimum(ball.radii(), radius_of(ball, form))
    return out


def _is_factor(primitive: str, x: Affine, out: Affine) -> bool:
    """Whether an operand is a factor of several elements, which is one number in an evaluation (`common_errors.py`)."""
    of, to = int(x.ball.centre.size), int(out.ball.centre.size)
    return to > 1 if primitive == "matmul" else primitive in ("multiply", "divide") and of < to


def _may_be_scan(primitive: str, xs: Sequence[Affine]) -> bool:
    """Whether a product is of two chains, which a scan makes in orders of its own."""
    chains = [x.ball.chain for x in xs]
    return primitive == "multiply" and all(chain is not None and chain.steps > 0 for chain in chains)


def _stretch_of(primitive: str, xs: Sequence[Affine]) -> Any:
    """How much farther than its linear part a quotient may be, as a share: 1 / (1 - r / |c|) - 1 of the divisor.

    With q = c_a / c_b, a / b - q is (Δa - q Δb) / b, and its linear part is (Δa - q Δb) / c_b.
    """
    if primitive != "divide" or xs[1].ball.exact:
        return 0.0
    radius = xs[1].ball.radii()
    return radius / (np.abs(np.asarray(xs[1].ball.centre, dtype=np.float64)) - radius)


def _among(tape: Tape, xs: Sequence[Affine], params: Params) -> Affine:
    """A result that one of several algorithms gives: the form of the first, and how far the others may be from it."""
    # Among the operands of a quotient, or a norm, those of fewer elements are factors.
    most = max(x.ball.centre.size for x in xs)
    for x in xs if tape.states else ():
        if x.ball.centre.size < most:
            x.fix_number()
    tape.depth, before = tape.depth + 1, tape.symbols
    first, *others = ways_of(params["ways"], tape.contract)
    results: list[Affine] = [first.formula(*xs)]
    for way in others:
        try:
            results.append(way.formula(*xs))
        except Inapplicable:
            continue
    tape.depth -= 1
    if len(results) == 1:
        return results[0]
    out = Affine(tape, functools.reduce(joined, [x.ball for x in results]))
    if params.get("several"):
        return Affine(tape, without_relations(out.ball))
    forms = [None if x.form is None else x.settle_form() for x in results]
    if out.ball.exact or not _may_have_form(out.ball) or any(form is None for form in forms):
        return out
    # An evaluation goes one of the ways: the numbers that only others have are without errors in it.
    centre, terms, loose = out.ball.centre, np.zeros((*out.shape, tape.symbols)), np.zeros(out.shape)
    for i, (x, form) in enumerate(zip(results, forms, strict=True)):
        assert form is not None
        shared = padded(form.terms, tape.symbols)
        terms[..., before if i else 0 :] += shared[..., before if i else 0 :]
        apart = np.abs(np.asarray(x.ball.centre - centre, dtype=np.float64))
        apart += sum_of_magnitudes(shared[..., :before] - terms[..., :before])
        loose = np.maximum(loose, form.loose + apart * (1.0 + STEPS * SLACK) + form.size * SLACK)
    out.form = AffineForm(terms, loose)
    out.ball.radius = np.minimum(out.ball.radii(), out.form.reach)
    return out


def narrow(
    read: tuple[Any, ...], function: Callable[..., Any], values: Sequence[Any], contract: Contract,
    steps: Sequence[Application],
) -> tuple[Any, ...]:  # fmt: skip
    """The balls of a formula, with the radii of affine forms where those are many times smaller.

    Args:
        read: what the formula gives of balls. function, values: the formula, and its balls or integers.
        contract: of the evaluation. steps: what the formula applies.
    """
    if contract.lattice or contract.roundings != 1.0 or not all(isinstance(each, Ball) for each in read):
        return read
    if not any(_is_wide(each, contract) for each in read):
        return read
    states = find_states(steps)
    shapes = {each.out: each.kind[1] for each in steps} | {-1 - i: each.shape for i, each in enumerate(values)}
    sizes = [math.prod(shapes[name]) for names in states.values() for name in names]
    # Factors and operands of products have about as many symbols as states: with more, the time would be for nothing.
    if not states or 2 * sum(sizes) * max(sizes) > LARGEST:
        return read
    tape = Tape(contract, states)
    again = read_with_forms(tape, function, values)
    # A comparison that wide balls leave open may be settled by forms: a length that is clamped at 1e-12, for one.
    if tape.open or not all(isinstance(each, Affine) for each in again) or find_states(tape.steps) != states:
        return read
    return tuple(_take_narrower(each, other.ball) for each, other in zip(read, again, strict=True))


def read_with_forms(tape: Tape, function: Callable[..., Any], values: Sequence[Any]) -> tuple[Any, ...]:
    """What a formula gives of balls with forms; inputs have the numbers -1, -2 and so on.

    Args:
        tape: of the reading. function, values: the formula, and its balls or integers.
    """
    inputs = [Affine(tape, x) if isinstance(x, Ball) else x for x in values]
    for i, each in enumerate(inputs):
        if isinstance(each, Affine):
            each.number = -1 - i
            tape.results[-1 - i] = each
    outputs = function(*inputs)
    return tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)


def _is_wide(read: Ball, contract: Contract) -> bool:
    """Whether some radius is large beside the roundings of the largest result."""
    if read.exact or not read.centre.size:
        return False
    unit = contract.stores.unit_roundoff if contract.may_store(contract.stores) else contract.roundoff
    size, radii = np.abs(np.asarray(read.centre, dtype=np.float64)), read.radii()
    if not np.isfinite(np.max(size)):
        finite = np.isfinite(size)
        size, radii = size[finite], radii[finite]
    most = min(WIDE * unit, SHARE) * float(np.max(size, initial=0.0)) + contract.underflow
    return bool(np.fmax.reduce(radii, axis=None, initial=0.0) > most)


def _take_narrower(read: Ball, other: Ball) -> Ball:
    radius, less = read.radii(), other.radii()
    better = np.isfinite(less) & (less * WORTH <= radius) & np.isfinite(other.centre) & np.isfinite(read.centre)
    if not better.any():
        return read
    centre = np.where(better, other.centre, read.centre)
    out = Ball(centre, np.where(better, less, radius), read.contract, read.special, read.nonnegative)
    out.stray, out.beyond = read.stray, read.beyond
    return out
