"""Arguments that follow from others, by a function of the spec's author: cosines and sines of one angle.

What this is for: numbers that are drawn for each tensor apart are no call of a spec that needs them to belong together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ....oracles.op.copies import describe_argument
from ....oracles.verdicts.violation import error_lines, error_name
from ..arguments import CallArguments, parameters_of
from ..host.module_files import GivenError


class DomainError(GivenError):
    """A declared domain that clashes with the spec or its inputs; the text says what it has, and what it needs."""


@dataclass(frozen=True)
class InputRule:
    """Tensors that follow from others, as cosines and sines do from one angle.

    Attributes:
        function: the author's: of arguments by their names; a dictionary of those that follow, for any values.
        places: of those that follow, among the tensors. sources: of those that it takes.
        names: of the leaves of a call.
    """

    function: Callable[..., Mapping[str, Tensor]]
    places: frozenset[int] = frozenset()
    sources: frozenset[int] = frozenset()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, function: Callable[..., Mapping[str, Tensor]], arguments: CallArguments) -> InputRule:
        """The one that a function is at a given call; DomainError where it is none."""
        names = arguments.names or tuple(f"input{i}" for i in range(len(arguments.leaves)))
        tensors = [name for name, leaf in zip(names, arguments.leaves, strict=True) if torch.is_tensor(leaf)]
        follow, takes = cls(function, names=names).values(arguments), parameters_of(function)
        places, sources = (frozenset(i for i, name in enumerate(tensors) if name in own) for own in (follow, takes))
        return cls(function, places, sources, names)

    def values(self, arguments: CallArguments) -> dict[str, Tensor]:
        """What follows from the arguments of a call, by name; DomainError where that is nothing like them."""
        named = dict(zip(self.names, arguments.leaves, strict=False))
        name = getattr(self.function, "__name__", "a function")
        try:
            with torch.no_grad():
                values = self.function(**{each: named[each] for each in parameters_of(self.function)})
        except Exception as err:  # of the author's function, whatever it raises
            raise DomainError(f"domain: {name} raises {error_name(err)}: {' '.join(error_lines(err))[:300]}") from err
        for each, value in values.items() if isinstance(values, Mapping) else [("", values)]:
            own = named.get(each)
            if not isinstance(own, Tensor) or not isinstance(value, Tensor) or own.shape != value.shape:
                got = f"{each or 'its result'}={describe_argument(value)}"
                need = describe_argument(own) if isinstance(own, Tensor) else f"some of {', '.join(named)}, by name"
                raise DomainError(f"domain: {name}: got {got}, need {need}")
        return dict(values)

    def settle(self, arguments: CallArguments) -> CallArguments:
        """The arguments, with those that follow."""
        values = self.values(arguments)
        leaves = (
            values[name].to(leaf.device, leaf.dtype).detach().requires_grad_(leaf.requires_grad) if name in values
            else leaf for name, leaf in zip(self.names, arguments.leaves, strict=False)
        )  # fmt: skip
        return replace(arguments, leaves=tuple(leaves))
