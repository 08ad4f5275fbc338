"""Strategies by which Hypothesis draws a function, and tensors for its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from opassay.oracles.op.declaration import Draft
from opassay.properties.declaring import drawing, strategies
from opassay.properties.declaring.choices import choose
from opassay.reference.dtypes import HALF_TYPES

from .formula import Term
from .spec import CALL_FORMS, CONTAINERS, LAST_ARGUMENTS, RULES, Spec

_REGIMES = ("benign", "benign", "ties", "small variance")  # exp of them overflows nowhere
_USES = (*("free",) * 5, "returned", *("written",) * 2, "step")
_NUMBERS = (1.0, 0.75, -1.25, 2.5)
_EXACT_NUMBERS = (1.0, -1.0, 2.0, 0.5)


@st.composite
def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """Arguments (text of a spec, *tensors): one to four tensors that broadcast together."""
    spec = draw(_specs(dtype, kind))
    outer, inner = draw(strategies.shapes(kind, 1, draw(strategies.axes_beside("axes of rows", 1, (1, 0, 2))), 12))
    whole = (*outer, *inner)
    alike = spec.rule == "whole"  # one call on the batch, whose first dim broadcasts only between equal shapes
    filled = {term.factors[0][0] for term in spec.terms if term.factors[0][1] == "filled"}
    shapes = [whole if alike or i in filled else draw(_broadcastable(whole)) for i in range(spec.arity)]
    if kind in ("empty", "large"):  # without a tensor of the whole shape, no tensor might be of the kind
        shapes[0] = whole
    regime = "integers" if kind == "integers" else draw(choose("regime", _REGIMES))

    def fill(rng: Any) -> tuple[Any, ...]:
        return spec.text(), *(drawing.rows(rng, regime, shape, dtype) for shape in shapes)

    return Draft(fill, regime, strategies.rows_and_row(outer, inner))


@st.composite
def _broadcastable(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape, or another shape that broadcasts to it."""
    how = draw(choose("shape of a tensor", ("whole", "last", "ones", "scalar")))
    if how == "last":
        return shape[-1:]
    if how == "ones":
        return tuple(1 if n != 0 and i % 2 == 0 else n for i, n in enumerate(shape))
    return () if how == "scalar" and 0 not in shape else shape


@st.composite
def _specs(draw: st.DrawFn, dtype: str, kind: str) -> Spec:
    """A function; shrinks towards one of one tensor and one output, with default fields."""
    exact, half = kind == "integers", dtype in HALF_TYPES
    arity = draw(choose("tensors", (1, 2, 3, 4)))
    uses = [draw(choose("use of a tensor", _USES)) for _ in range(arity)]
    # Every ordinary term is a product of free arguments, so at least one argument must be free.
    if "free" not in uses:
        uses[0] = "free"
    free = [i for i, use in enumerate(uses) if use == "free"]
    steps = [i for i, use in enumerate(uses) if use == "step"]
    written_terms = [draw(_draw_written_term(i, free, exact or half)) for i, use in enumerate(uses) if use == "written"]
    special = [(Term(((i, "same"),)), "identity") for i, use in enumerate(uses) if use == "returned"] + written_terms
    count = draw(choose("terms", (1, 1, 2, 3)))
    ordinary = [(draw(_terms(free, steps, exact)), "fresh") for _ in range(count)]
    if draw(choose("marked", (False, True))):
        ordinary.append((Term(((draw(st.sampled_from(free)), "step"),)), "marked"))
    pairs = draw(st.permutations(ordinary + special))
    # An argument that is returned has the slope 1, and one that is written over no longer has the value that its
    # derivative would need; so neither is saved.
    saved = [i for i, use in enumerate(uses) if use in ("free", "step")]
    extras = draw(choose("extras", (False, True)))
    last = draw(choose("told", (*LAST_ARGUMENTS, "nothing", "nothing")))
    # An output that is an argument itself shares its memory, which no slice of a vmap does.
    alone = all(use != "returned" for use in uses)
    return Spec(
        arity=arity,
        terms=tuple(term for term, _ in pairs),
        ways=tuple(way for _, way in pairs),
        container=draw(choose("container", CONTAINERS if len(pairs) == 1 and not extras else _several())),
        extras=extras,
        constants=frozenset(steps),
        backward_order=tuple(draw(st.permutations(saved))),
        forward_order=tuple(draw(st.permutations(saved))),
        # An output in a half type has been rounded to few bits, and a derivative that is computed from it would have
        # that error.
        saves_outputs=not half and draw(choose("saves_outputs", (False, True))),
        broadcasts=draw(choose("broadcasts", (False, True))),
        # A tangent of a filled argument must be written, so an undefined tangent has to be replaced by zeros.
        materializes=any(t.factors[0][1] == "filled" for t, _ in written_terms)
        or draw(choose("materializes", (False, True))),
        frugal=draw(choose("frugal", (False, True))),
        # A loop over slices rounds the gradient of a shared argument once per slice, and the sum once more.
        rule=draw(choose("rule", ("generated",) if half else _rules(pairs))),
        number_at=draw(choose("number_at", range(arity + 1))),
        last_dim=draw(choose("last_dim", (False, True))),
        last_argument=last,
        call_form=draw(choose("called", CALL_FORMS if last != "nothing" else CALL_FORMS[:1])),
        under_vmap=alone and draw(choose("under_vmap", (False, True))),
    )


def _several() -> tuple[str, ...]:
    return tuple(name for name in CONTAINERS if name != "one")


def _rules(pairs: Sequence[tuple[Term, str]]) -> tuple[str, ...]:
    """The vmap rules that fit: a loop cannot return a written argument, nor a call on the whole batch a sum."""
    if any(way == "dirty" for _, way in pairs):
        return ("generated",)
    return RULES[:2] if any(term.total for term, _ in pairs) else RULES


@st.composite
def _draw_written_term(draw: st.DrawFn, at: int, free: Sequence[int], plain: bool) -> tuple[Term, str]:
    """A term that is written over its argument, or over an argument that it does not read (`filled`)."""
    name = draw(choose("what is written", ("same", "filled") if plain else ("same", "filled", "exp", "tanh")))
    if name == "filled":
        return Term(((at, name), (draw(st.sampled_from(free)), "same")), 2.0), "dirty"
    return Term(((at, name),), 2.0 if name == "same" else 1.0), "dirty"


@st.composite
def _terms(draw: st.DrawFn, free: Sequence[int], steps: Sequence[int], exact: bool) -> Term:
    # The exponential and the hyperbolic tangent of integers are irrational, but for that of zero.
    names = ("same", "square") if exact else ("same", "square", "exp", "tanh")
    many = draw(st.sampled_from((1, 2, 2, 3)))
    again = draw(st.booleans())
    places = [draw(st.sampled_from(free)) for _ in range(many)] if again else draw(st.permutations(free))[:many]
    factors = [(i, draw(st.sampled_from(names))) for i in places]
    factors += [(i, "step") for i in steps if draw(st.booleans())]
    # A gradient is a sum with a term for every use of an argument. Every order of adding lies within the bound if each
    # term is a rounded product. A cotangent alone is no product, so then the number is not 1.
    alone = [name for _, name in factors] == ["same"]
    number = draw(st.sampled_from(_EXACT_NUMBERS if exact else _NUMBERS[1:] if alone else _NUMBERS))
    return Term(tuple(factors), number, draw(st.booleans()) and draw(st.booleans()))
