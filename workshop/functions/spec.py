"""The description of a generated function: its formula, and how its author wrote it."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from typing import Any

from opassay.reference.algorithms import algorithm_of, algorithms

from . import formula as formulas
from .formula import Term

#: Containers of the outputs.
CONTAINERS = ("tuple", "one", "list", "dict", "nested")
RULES = ("generated", "slices", "whole")
LAST_ARGUMENTS = ("text", "tuple", "list", "nothing", "integers", "complex")
CALL_FORMS = ("by position", "by default", "by name")


@dataclass(frozen=True)
class Formulas:
    """What a custom function computes, and how its author wrote the derivatives.

    Attributes:
        arity: how many tensors it takes.
        terms: its formula, a term per floating output.
        ways: per term, "fresh", "identity" (the argument itself is returned), "dirty" (the argument is written and
            returned) or "marked" (marked as not differentiable; its derivatives are zero).
        container: of the outputs, one of `CONTAINERS`.
        extras: whether a number, None and a tensor of integers are among the outputs.
        constants: arguments whose gradient is None, because their derivatives are zero.
        backward_order, forward_order: the order in which arguments are saved for backward, and for forward.
        saves_outputs: whether derivatives of exp and tanh are taken from saved outputs.
        broadcasts: whether gradients are returned in the shape of the output where an argument was broadcast.
        materializes: whether undefined cotangents and tangents come as zeros; else they come as None.
        frugal: whether gradients that nobody needs are not computed.
    """

    arity: int
    terms: tuple[Term, ...]
    ways: tuple[str, ...]
    container: str = "tuple"
    extras: bool = False
    constants: frozenset[int] = frozenset()
    backward_order: tuple[int, ...] = ()
    forward_order: tuple[int, ...] = ()
    saves_outputs: bool = False
    broadcasts: bool = False
    materializes: bool = True
    frugal: bool = False


@dataclass(frozen=True)
class Spec(Formulas):
    """A custom function of tensors, with a number and something else among its arguments, and how it is called.

    Attributes:
        rule: of vmap: "generated", or written by the author: a loop over "slices", or one call on the "whole" batch.
        number_at: position of the number among the arguments.
        last_dim: whether the author's vmap rule puts the batch last.
        last_argument: a "text", a "tuple" or a "list" of numbers, as dims are, or a constant tensor of "integers",
            made in inference mode, or of "complex" numbers; "nothing" where the arguments are the tensors alone.
        call_form: how the last argument is passed, one of `CALL_FORMS`.
        under_vmap: whether the call is one slice of a vmap over a last axis of the first tensor. All slices share the
            other tensors, even a written one, unless it is filled from the first tensor.
        mistake: the name of a mistake in `mistakes`, which is made instead of this call.
    """

    rule: str = "generated"
    number_at: int = 0
    last_dim: bool = False
    last_argument: str = "text"
    call_form: str = "by position"
    under_vmap: bool = False
    mistake: str = ""

    @property
    def dirty(self) -> frozenset[int]:
        """Positions of the tensors that are written."""
        return frozenset(t.factors[0][0] for t, way in zip(self.terms, self.ways, strict=True) if way == "dirty")

    def restyle(self) -> Spec:
        """The same formula in another container, with other orders of saving and the generated vmap rule."""
        after = CONTAINERS[(CONTAINERS.index(self.container) + 1) % len(CONTAINERS)]
        # A function of several outputs cannot return one tensor alone.
        container = "tuple" if after == "one" else after
        return dataclasses.replace(
            self,
            container=container,
            backward_order=self.backward_order[::-1],
            forward_order=self.backward_order,
            rule="generated",
        )

    def text(self) -> str:
        """The fields that differ from their defaults, as JSON: an argument of a sample, and of a case file."""
        fields = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        # Defaults are left out so that a small function has a short text in a case file, and an old case file stays
        # valid where a field is added.
        differing = {f.name: fields[f.name] for f in dataclasses.fields(self) if fields[f.name] != f.default}
        return json.dumps(differing, default=_as_lists)


def _as_lists(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else [value.factors, value.number, value.total]


@functools.lru_cache(maxsize=1024)
def terms_of(text: str) -> tuple[Term, ...]:
    """The formula in a text of `Spec.text`: [[[[position, factor], ...], number, total], ...] under "terms".

    Raises:
        ValueError: the text has no formula.
    """
    try:
        rows = json.loads(text)["terms"]
        return tuple(Term(tuple((at, name) for at, name in factors), number, total) for factors, number, total in rows)
    except (KeyError, TypeError, ValueError) as err:
        raise ValueError(f"spec={text!r}: need the JSON text of a generated function ({err})") from err


@functools.lru_cache(maxsize=1024)
def spec_of(text: str) -> Spec:
    """The function of a text of `Spec.text`.

    Raises:
        ValueError: the text is that of no function.
    """
    terms = terms_of(text)
    try:
        fields = json.loads(text)
        # JSON has neither tuples nor sets, so both are lists in the text, and a `Spec` with lists could not be hashed.
        orders = {name: tuple(fields.get(name, ())) for name in ("ways", "backward_order", "forward_order")}
        constants = frozenset(fields.get("constants", ()))
        return Spec(**{**fields, **orders, "terms": terms, "constants": constants})
    except TypeError as err:
        raise ValueError(f"spec={text!r}: need the JSON text of a generated function ({err})") from err


def function(spec: str, *tensors: Any) -> tuple[Any, ...]:
    """The formula of the op `function`, of the text in a sample; `formula.function` takes terms instead."""
    return formulas.function(terms_of(spec), *tensors)


@algorithm_of(function)
def _otherwise(spec: str, *tensors: Any) -> tuple[Any, ...]:
    (algorithm,) = algorithms(formulas.function)
    outputs: tuple[Any, ...] = algorithm(terms_of(spec), *tensors)
    return outputs
