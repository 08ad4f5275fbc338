"""Algorithms of a formula: other texts that are equal in exact arithmetic and round differently.

What an implementation may return is bounded by the largest error over a formula's algorithms. Those without a name
always count. One with a name counts only where a declaration allows that name (`algorithms` of `declare`): it is what
good implementations do, but its error is larger somewhere, so an op without it is judged more sharply.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypeVar

from .missing import nearest_of

Formula = Callable[..., Any]
_F = TypeVar("_F", bound=Formula)


#: Name of algorithms that store their intermediates; they count where the contract lets any intermediate be stored.
STORED = "stored"


class Inapplicable(Exception):
    """Raised by an algorithm that says nothing new of the arguments that it is called with."""


class Algorithm(NamedTuple):
    """A formula's other text, and its name, "" where it has none."""

    formula: Formula
    name: str


class Reverse:
    """The formula of an algorithm that differs in reverse mode alone: its cotangents are written down, not derived.

    Attributes:
        cotangents: of every argument: its cotangent as a function of all arguments and of the cotangent of the result.
    """

    def __init__(self, *cotangents: Formula) -> None:
        self.cotangents = cotangents

    def __call__(self, *args: Any) -> Any:
        raise Inapplicable


class Declared(NamedTuple):
    """The algorithms that were declared for a formula.

    They belong to that function alone: `functools.wraps` copies the attribute to a wrapper, which may be another one.
    """

    formula: Formula
    algorithms: tuple[Algorithm, ...]


def algorithm_of(formula: Formula, name: str = "") -> Callable[[Formula], Formula]:
    """Declare another algorithm for a formula: equal in exact arithmetic, evaluated in another order.

    An algorithm that says nothing new of the arguments that it is called with raises `Inapplicable`.
    """

    def declare(algorithm: Formula) -> Formula:
        declare_all(formula, (*declared(formula), Algorithm(algorithm, name)))
        return algorithm

    return declare


def also(name: str = "", **changes: Any) -> Callable[[_F], _F]:
    """Declare a formula with other values of its keyword-only parameters as another algorithm of it.

    Those parameters are no arguments of the op, so the formula's signature hides them.
    """

    def declare(formula: _F) -> _F:
        signature = inspect.signature(formula)
        own = [p for p in signature.parameters.values() if p.kind is not inspect.Parameter.KEYWORD_ONLY]
        surface: Any = formula
        surface.__signature__ = signature.replace(parameters=own)
        algorithm_of(formula, name)(functools.partial(formula, **changes))
        return formula

    return declare


def declared(formula: Formula) -> tuple[Algorithm, ...]:
    """All other algorithms of a formula."""
    declaration: Declared | None = getattr(formula, "algorithms", None)
    return declaration.algorithms if declaration is not None and declaration.formula is formula else ()


def declare_all(formula: Formula, others: tuple[Algorithm, ...]) -> None:
    """Declare these, and no others, as the other algorithms of a formula."""
    formula.algorithms = Declared(formula, others)  # type: ignore[attr-defined]


def reordered(
    name: str, formula: Formula, parameters: str = "", outputs: Callable[[Any], Any] = lambda results: results,
    **others: Any,
) -> Any:  # fmt: skip
    """The same formula, with all its algorithms, as that of another op, whose signature is another one.

    Args:
        name: of the op. formula: what it means.
        parameters: of the op, in its order, those of the formula by default: `epsilon=eps` for one that the formula
            calls otherwise, and `reserve=` for one that it does not have.
        outputs: (results of the formula) -> those of the op. others: what the formula takes and the op does not.
    """
    words = parameters.split() or list(inspect.signature(formula).parameters)
    pairs = [(word.partition("=")[0], word.rpartition("=")[2]) for word in words]

    def as_op(text: Formula) -> Any:
        def same(*args: Any) -> Any:
            named = {own: value for (_, own), value in zip(pairs, args, strict=True) if own}
            return outputs(text(**named, **others))

        return same

    op, kind = as_op(formula), inspect.Parameter.POSITIONAL_OR_KEYWORD
    op.__name__, op.__module__, op.__doc__ = name, formula.__module__, formula.__doc__
    op.__signature__ = inspect.Signature([inspect.Parameter(each, kind) for each, _ in pairs])
    declare_all(op, tuple(Algorithm(as_op(other), label) for other, label in declared(formula)))
    return op


def algorithms(formula: Formula, allowed: Collection[str] = ()) -> tuple[Formula, ...]:
    """The other algorithms of a formula that count where those names are allowed."""
    return tuple(each.formula for each in declared(formula) if not each.name or each.name in allowed)


def names_of(formula: Formula) -> tuple[str, ...]:
    """The names of a formula's algorithms, each once."""
    return tuple(dict.fromkeys(each.name for each in declared(formula) if each.name))


def require_names(names: Collection[str], formula: Formula, others: Collection[str] = ()) -> None:
    """Raise ValueError unless each name is that of an algorithm of the formula, or one of the `others`.

    Args:
        names: those that a declaration allows.
    """
    valid_names = (*names_of(formula), *others)
    if isinstance(names, str):
        raise ValueError(f"algorithms={names!r}: need a set of names of {', '.join(valid_names)}")
    for name in sorted(set(names) - set(valid_names)):
        near = nearest_of(name, valid_names)
        raise ValueError(f"algorithms: got {name!r}{near}, need names of {', '.join(valid_names)}")


@functools.lru_cache(maxsize=256)
def parameters_of(formula: Formula) -> tuple[tuple[str, ...], bool]:
    """Names of a formula's arguments, and whether the last one is `*args`."""
    parameters = inspect.signature(formula).parameters
    return tuple(parameters), any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
