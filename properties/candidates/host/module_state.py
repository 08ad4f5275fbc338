"""The parameters and buffers of a candidate, by name and as they are judged: complex ones by their parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from ....oracles.specs.calls import buffers_of
from ..arguments import State, Tensor
from ..operand_parts import name_of_whole, output_in_parts, state_in_parts, whole_of


class ModuleState:
    """What a candidate began with; of a function it is empty.

    Attributes:
        tensors: parameters and buffers themselves, by the names of their parts.
    """

    def __init__(self, candidate: Any) -> None:
        self._candidate, own = candidate, dict[str, Tensor]()
        if isinstance(candidate, torch.nn.Module):
            own = {**dict(candidate.named_parameters()), **buffers_of(candidate)}
        self.tensors = dict(zip(state_in_parts(own), own.values(), strict=True))
        self._replaced: list[tuple[torch.nn.Module, str, Tensor]] = []

    @property
    def parts(self) -> dict[str, Tensor]:
        """Their values, in the same memory where that may be."""
        return {name: output_in_parts(value)[0] for name, value in self.tensors.items()}

    def set(self, values: State) -> None:
        """Set values, in the same tensor objects that the candidate began with."""
        self._put_back()
        self._copy(self.tensors.keys() & values.keys(), values)

    def _put_back(self) -> None:
        """Put the tensor objects that the candidate began with in the places of others, by whomever these were made."""
        while self._replaced:
            setattr(*self._replaced.pop())
        for name, tensor in self.tensors.items():
            owner, _, leaf = name_of_whole(name).rpartition(".")
            if self._now(name) is not tensor:
                setattr(self._candidate.get_submodule(owner), leaf, tensor)

    def _copy(self, names: Iterable[str], values: State) -> None:
        with torch.no_grad():
            for name in names:
                self.tensors[name].copy_(whole_of(name, values[name]))

    def assign(self, values: State) -> None:
        """Put other tensor objects with these values in place of those that the candidate began with, until `set`.

        One that stands in several places, as tied weights do, is replaced in all of them.
        """
        self._put_back()
        names, left = {id(tensor): name for name, tensor in self.tensors.items()}, self.tensors.keys() & values.keys()
        for module in self._candidate.modules() if self.tensors else ():
            for leaf, was in [*module._parameters.items(), *module._buffers.items()]:
                name = names.get(id(was), "")
                if was is not None and name in values:
                    new = whole_of(name, values[name]).to(was.device, was.dtype, copy=True)
                    is_trained = isinstance(was, torch.nn.Parameter)
                    setattr(module, leaf, torch.nn.Parameter(new, was.requires_grad) if is_trained else new)
                    self._replaced.append((module, leaf, was))
                    left.discard(name)
        self._copy(left, values)  # of plain attributes, which no state dict has

    def parts_now(self, name: str) -> Tensor | None:
        """A parameter or buffer as it is now: a call may have put another tensor in its place. None if it is none."""
        value = self._now(name)
        return None if value is None else output_in_parts(value.detach())[0]

    def _now(self, name: str) -> Tensor | None:
        if name not in self.tensors:
            return None
        owner, _, leaf = name_of_whole(name).rpartition(".")
        value = getattr(self._candidate.get_submodule(owner), leaf, None)
        return value if isinstance(value, Tensor) else None
