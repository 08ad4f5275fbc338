"""The arguments of an op by name.

To the oracles a call is a tuple in the order of the op's signature. A declaration uses names instead: its functions
get those arguments of which they have parameters, so `lambda input: (input.dtype,)` is a promise about `input`, at any
position of the signature. What is hard here: torch has different names for one argument in different ops; a declaration
may use any of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ...reference.missing import nearest_of
from .kinds import DeclarationError

Args = tuple[Any, ...]
#: Arguments by name. The name of `*args` has the tuple of all arguments in its place.
ArgumentsByName = Mapping[str, Any]

#: A name that torch gives to an argument in some ops, and the name that it gives to the same argument in others.
SYNONYMS = {
    "self": "input",
    "grad_out": "grad_output",
    "epsilon": "eps",
    "exponential_average_factor": "momentum",
    "group": "num_groups",
    "train": "training",
    "update": "training",
    "save_var": "save_invstd",
    "reserveSpace": "reserve",
}
_OF_ARGUMENTS = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """The arguments of an op, as its formula names them.

    Attributes:
        names: in order, of synonyms the usual one (`SYNONYMS`); the name of `*args` is the last.
    """

    def __init__(self, formula: Callable[..., Any]) -> None:
        parameters = inspect.signature(formula).parameters
        # A formula may have both names of a pair of synonyms, for two arguments. Then each of them keeps its own name.
        self.names = tuple(n if SYNONYMS.get(n) in parameters else SYNONYMS.get(n, n) for n in parameters)
        self._own = dict(zip(self.names, parameters, strict=True))
        self._variadic = any(p.kind is inspect.Parameter.VAR_POSITIONAL for p in parameters.values())
        pairs = zip(self.names, parameters.values(), strict=True)
        self._defaults = {name: p.default for name, p in pairs if p.default is not inspect.Parameter.empty}

    def usual(self, name: str) -> str:
        """The usual name of an argument: of synonyms the one in `names`."""
        return name if name in self.names else SYNONYMS.get(name, name)

    def own(self, name: str) -> str:
        """The name that the op itself has for an argument."""
        return self._own[self.usual(name)]

    def __contains__(self, name: str) -> bool:
        return self.usual(name) in self.names

    def require(self, what: str, names: Iterable[str]) -> None:
        """ValueError unless the op has arguments of all of these names; `what` is the field that uses them."""
        for name in names:
            if name not in self:
                near = nearest_of(name, self.names)
                raise ValueError(f"{what}: got argument {name!r}{near}, need one of {', '.join(self.names)}")

    def by_name(self, args: Args) -> dict[str, Any]:
        """The arguments of a call by name."""
        if not self._variadic:
            return dict(zip(self.names, args, strict=True))
        first = len(self.names) - 1
        return dict(zip(self.names, (*args[:first], tuple(args[first:])), strict=True))

    def args(self, what: str, named: ArgumentsByName) -> Args:
        """The arguments of a call in order; one that is not named has its default.

        Raises:
            ValueError: a name is that of no argument, or an argument without a default is not named.
        """
        self.require(what, named)
        values = self._defaults | {self.usual(name): value for name, value in named.items()}
        missing = [name for name in self.names if name not in values]
        if missing:
            raise ValueError(f"{what}: got no {missing[0]!r}, need a value for it: it has no default")
        # The arguments of `*args` are one tuple in `named`, and single arguments in a call.
        listed = tuple(values[name] for name in self.names)
        return (*listed[:-1], *listed[-1]) if self._variadic else listed

    def changed(self, what: str, args: Args, changes: ArgumentsByName) -> Args:
        """The arguments of a call with some of them changed.

        Raises:
            DeclarationError: a name is that of no argument.
        """
        try:
            return self.args(what, self.by_name(args) | {self.usual(name): value for name, value in changes.items()})
        except ValueError as err:
            raise DeclarationError(str(err)) from err

    def of_these(self, named: ArgumentsByName) -> dict[str, Any]:
        """The arguments, of a family of ops, that this op has."""
        return {name: value for name, value in named.items() if name in self}

    def reader(self, what: str, function: Callable[..., Any], *others: str) -> Callable[..., Any]:
        """A function of arguments by name as a function of (arguments in order, further values by keyword).

        Args:
            what: the field, for errors.
            function: gets the arguments that it has parameters for; all of them if it has a parameter `**named`.
            others: names of further values that it may have parameters for ("rng").

        Raises:
            ValueError: a parameter without a default is neither an argument nor one of the others.
        """
        parameters = inspect.signature(function).parameters.values()
        choose = self._chooser(what, parameters, _OF_ARGUMENTS, others)
        return lambda args, **rest: function(**choose(args, rest))

    def relation(self, what: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of outputs, and of arguments by keyword alone, as a function of (arguments in order, *outputs).

        Raises:
            ValueError: a keyword-only parameter without a default is no argument.
        """
        parameters = inspect.signature(function).parameters.values()
        choose = self._chooser(what, parameters, (inspect.Parameter.KEYWORD_ONLY,), ())
        return lambda args, *outputs: function(*outputs, **choose(args, {}))

    def _chooser(
        self, what: str, parameters: Iterable[inspect.Parameter], kinds: tuple[Any, ...], others: tuple[str, ...]
    ) -> Callable[[Args, ArgumentsByName], dict[str, Any]]:
        """A function: (arguments, further values) -> those that parameters of some kinds get, by name."""
        eligible = [p for p in parameters if p.kind in kinds]
        self.require(what, (p.name for p in eligible if p.default is inspect.Parameter.empty and p.name not in others))
        own = [(p.name, self.usual(p.name)) for p in eligible if p.name not in others and p.name in self]
        further = [p.name for p in eligible if p.name in others]
        takes_all = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters)

        def choose(args: Args, rest: ArgumentsByName) -> dict[str, Any]:
            named = self.by_name(args)
            # An argument that has a parameter of its own is removed, so that `**named` does not get it a second time.
            values = {name: named.pop(usual) for name, usual in own}
            return values | {name: rest[name] for name in further if name in rest} | (named if takes_all else {})

        return choose


def taking(
    names: Iterable[str], function: Callable[..., Any], also_of: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The function of `**named`, with a signature of named parameters, from which `reader` takes what it gets.

    Args:
        names: of its parameters. function: gets arguments of these names by keyword.
        also_of: a function whose parameters are added, with their defaults.
    """
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = {name: inspect.Parameter(name, keyword) for name in names}
    if also_of is not None:
        further = inspect.signature(also_of).parameters
        parameters = {name: p.replace(kind=keyword) for name, p in further.items()} | parameters
    function.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    return function


def call(function: Callable[..., Any], named: ArgumentsByName) -> Any:
    """Call a function with those of the arguments that it has parameters for."""
    return function(**{name: named[name] for name in inspect.signature(function).parameters if name in named})
