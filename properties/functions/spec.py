"""What a generated function is: its formula, and how its author wrote it."""

from __future__ import annotations

import dataclasses
import functools
import json
from dataclasses import dataclass
from typing import Any

from ...reference import functions as formulas
from ...reference.algorithms import algorithm_of, algorithms
from ...reference.functions import Term

#: How the leaves of the outputs are put together.
CONTAINERS = ("tuple", "one", "list", "dict", "nested")
RULES = ("generated", "slices", "whole")
TOLD = ("text", "tuple", "list", "nothing", "integers", "complex")
CALLED = ("by position", "by default", "by name")


@dataclass(frozen=True)
class Spec:
    """A custom function of tensors, with a number and something else among its arguments.

    Attributes:
        arity: how many tensors it takes.
        terms: its formula, a term per floating output. What a term is written as is its `ways` entry.
        ways: per term, "fresh", "identity" (the argument itself is returned), "dirty" (the argument is written and
            returned) or "marked" (marked as not differentiable; its derivatives are zero).
        container: of the outputs, one of `CONTAINERS`.
        extras: whether a number, None and a tensor of integers are among the outputs.
        constants: arguments whose gradient is None, for their derivatives are zero.
        backward_order, forward_order: the order in which arguments are saved for backward, and for forward.
        saves_outputs: whether derivatives of exp and tanh are taken from saved outputs.
        broadcasts: whether gradients are returned in the shape of the output where an argument was broadcast.
        materializes: whether undefined cotangents and tangents come as zeros; else they come as None.
        frugal: whether gradients that nobody needs are not computed.
        rule: of vmap: "generated", or written by the author: a loop over "slices", or one call on the "whole" batch.
        number_at: position of the number among the arguments.
        last_dim: whether the author's vmap rule puts the batch last.
        told: what comes last among the arguments: a "text", a "tuple" or a "list" of numbers, as dims are, or a tensor
            of "integers", made in inference mode, or of "complex" numbers, both constant; "nothing" where the
            arguments are the tensors alone.
        called: how the last argument is given, one of `CALLED`.
        under_vmap: whether the call is one slice of a vmap, over a last axis of the first tensor; the others are
            shared, also one that is written, unless it is filled from the first.
        mistake: what somebody did wrong, one of those in `mistakes`; the function is not called then.
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
    rule: str = "generated"
    number_at: int = 0
    last_dim: bool = False
    told: str = "text"
    called: str = "by position"
    under_vmap: bool = False
    mistake: str = ""

    @property
    def dirty(self) -> frozenset[int]:
        """Positions of the tensors that are written."""
        return frozenset(t.factors[0][0] for t, way in zip(self.terms, self.ways, strict=True) if way == "dirty")

    def written_otherwise(self) -> Spec:
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
        """The function as JSON, without what is as in the default: an argument of a sample, and of a case file."""
        told = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        # Only what differs from the default is written, so that a small function has a short text in a case file, and
        # an old case file stays valid where a field is added.
        differing = {f.name: told[f.name] for f in dataclasses.fields(self) if told[f.name] != f.default}
        return json.dumps(differing, default=_as_lists)


def _as_lists(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else [value.factors, value.number, value.total]


@functools.lru_cache(maxsize=1024)
def terms_of(text: str) -> tuple[Term, ...]:
    """The formula in what `Spec.text` wrote: [[[[position, factor], ...], number, total], ...] under "terms".

    Raises:
        ValueError: there is none in the text.
    """
    try:
        told = json.loads(text)["terms"]
        return tuple(Term(tuple((at, name) for at, name in factors), number, total) for factors, number, total in told)
    except (KeyError, TypeError, ValueError) as err:
        raise ValueError(f"spec={text!r}: need the JSON text of a generated function ({err})") from err


@functools.lru_cache(maxsize=1024)
def spec_of(text: str) -> Spec:
    """The function that `Spec.text` wrote.

    Raises:
        ValueError: the text is not one of those.
    """
    terms = terms_of(text)
    try:
        told = json.loads(text)
        # JSON knows neither tuples nor sets, so both have come back as lists, which could not be compared or hashed
        # as a `Spec` must be.
        orders = {name: tuple(told.get(name, ())) for name in ("ways", "backward_order", "forward_order")}
        constants = frozenset(told.get("constants", ()))
        return Spec(**{**told, **orders, "terms": terms, "constants": constants})
    except TypeError as err:
        raise ValueError(f"spec={text!r}: need the JSON text of a generated function ({err})") from err


def function(spec: str, *tensors: Any) -> tuple[Any, ...]:
    """The formula of the op `function`: a sample gives it the text, which the reference knows nothing of."""
    return formulas.function(terms_of(spec), *tensors)


@algorithm_of(function)
def _otherwise(spec: str, *tensors: Any) -> tuple[Any, ...]:
    (algorithm,) = algorithms(formulas.function)
    outputs: tuple[Any, ...] = algorithm(terms_of(spec), *tensors)
    return outputs
