"""The arguments of a call as leaves: what of them are tensors, and how other values are put in their places."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...oracles.op.copies import describe_argument
from .operand_parts import Repeats, in_parts, name_of_parts, name_of_whole, output_in_parts, whole_of, with_repeats

Tensor = torch.Tensor
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_IN_ORDER = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
#: Types of options: arguments that are no tensors.
_OPTIONS = (bool, int, float, str, type(None))
State = Mapping[str, Tensor]
#: The arguments of a call: in order, or by name; and how a user gives them.
Args = tuple[Any, ...] | dict[str, Any]
Inputs = Sequence[Any] | Mapping[str, Any]


def floating(tensors: Sequence[Any]) -> list[Tensor]:
    return [t for t in tensors if isinstance(t, Tensor) and t.dtype.is_floating_point]


def device_of(values: Iterable[Any]) -> str:
    """ "cuda" where a tensor among the values is there, else "cpu"."""
    return "cuda" if any(isinstance(value, Tensor) and value.is_cuda for value in values) else "cpu"


@dataclass(frozen=True)
class CallArguments:
    """The arguments of one call, in order or by name.

    Attributes:
        leaves: tensors, numbers, texts and None, in order; of complex tensors and of pairs their parts
            (`operand_parts.py`).
        structure: the tuples, lists and dictionaries around them; a dictionary where they have names.
        names: what messages call the leaves; empty where the parameters that they go to are not known.
    """

    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, args: Inputs) -> CallArguments:
        tree = pytree.tree_map(in_parts, dict(args) if isinstance(args, Mapping) else tuple(args))
        leaves, structure = pytree.tree_flatten(tree)
        return cls(tuple(leaves), structure)

    def with_names(self, function: Any) -> CallArguments:
        """The same, with names for the leaves by the parameters of the function that is called: "x", "cache['k']"."""
        args, in_order = self.args, [p.name for p in _parameters(function) if p.kind in _IN_ORDER]
        by_name = args if isinstance(args, dict) else dict(zip(in_order, args, strict=False))
        if len(by_name) < len(args):
            return self
        paths: Any = pytree.tree_flatten_with_path(by_name)[0]
        names = (name_of_parts(f"{first.key}{pytree.keystr(tuple(rest))}", leaf) for (first, *rest), leaf in paths)
        return replace(self, names=tuple(names))

    @property
    def args(self) -> Args:
        """As `call` hands them to a function."""
        arguments: Args = pytree.tree_unflatten(list(self.leaves), self.structure)
        return arguments

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, Tensor))

    @property
    def dtype(self) -> str:
        """The name of the dtype of the first floating tensor; "none" where there is none."""
        floating = (str(t.dtype).removeprefix("torch.") for t in self.tensors if t.is_floating_point())
        return next(floating, "none")

    @property
    def device(self) -> str:
        """ "cuda" where a tensor is there, else "cpu"."""
        return device_of(self.tensors)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of the tensors."""
        return [tuple(t.shape) for t in self.tensors]

    def is_like(self, other: CallArguments) -> bool:
        """Whether another call has tensors of the same shapes, and the same options."""
        one, two = ([tuple(x.shape) if isinstance(x, Tensor) else x for x in each.leaves] for each in (self, other))
        return one == two

    def with_tensors(self, tensors: Sequence[Any]) -> CallArguments:
        """The same with other values in the places of the tensors."""
        rest = iter(tensors)
        return replace(self, leaves=tuple(next(rest) if isinstance(x, Tensor) else x for x in self.leaves))

    def with_leaf(self, place: int, value: Any) -> CallArguments:
        """The same with another value of one leaf."""
        return replace(self, leaves=(*self.leaves[:place], value, *self.leaves[place + 1 :]))

    def changed(self, change: Callable[[Tensor], Tensor]) -> CallArguments:
        """The same with every tensor changed."""
        return self.with_tensors([change(t) for t in self.tensors])

    def with_one_for(self, groups: Sequence[Sequence[int]]) -> CallArguments:
        """The same, in which the tensors of a group, by their positions, are one: the first of them."""
        positions = [i for i, leaf in enumerate(self.leaves) if isinstance(leaf, Tensor)]
        firsts = {positions[i]: positions[group[0]] for group in groups for i in group}
        own = [i for i in range(len(self.leaves)) if firsts.get(i, i) == i]
        places = [own.index(firsts.get(i, i)) for i in range(len(self.leaves))]
        leaves, structure = pytree.tree_flatten(with_repeats([self.leaves[i] for i in own], places, self.structure))
        named = [[name for name, place in zip(self.names, places, strict=False) if place == i] for i in range(len(own))]
        return CallArguments(tuple(leaves), structure, tuple(map(" and ".join, named)) if self.names else ())

    @property
    def has_repeats(self) -> bool:
        """Whether one tensor stands at several places of the call."""
        return self.structure.type is Repeats

    def with_defaults(self, defaults: Mapping[str, Any]) -> CallArguments:
        """The same with further arguments behind them, by name where the others are."""
        args = self.args
        every = CallArguments.of({**args, **defaults} if isinstance(args, dict) else (*args, *defaults.values()))
        return replace(every, names=(*self.names, *defaults) if self.names else ())

    def copied(self) -> CallArguments:
        """The same values in memory of their own, without gradients."""
        return self.changed(lambda t: t.detach().clone())

    @property
    def finite(self) -> bool:
        """Whether no floating tensor has a NaN or an infinity."""
        return all(_is_finite(t) for t in self.tensors if t.dtype.is_floating_point)

    @property
    def infinite(self) -> bool:
        """Whether some floating tensor has an infinity."""
        return any(bool(_widened(t).isinf().any()) for t in self.tensors if t.dtype.is_floating_point)

    @property
    def text(self) -> str:
        """One line: the dtype and the shape of every tensor, the values of a short one, and other values."""
        texts = map(describe_argument, self.leaves)
        return "; ".join(map("{}: {}".format, self.names, texts)) if self.names else ", ".join(texts)

    def label(self, position: int) -> str:
        """What messages call the tensor at a position among the tensors."""
        if self.names:
            pairs = zip(self.names, self.leaves, strict=True)
            return [name for name, leaf in pairs if isinstance(leaf, Tensor)][position]
        return f"input {position}" if len(self.tensors) > 1 else "the input"


def call(function: Callable[..., Any], args: Args, destinations: Sequence[Tensor] = ()) -> Any:
    """What a function gives.

    Args:
        function: a candidate or a spec.
        args: its arguments; by name where it has all of these names, else in their order.
        destinations: what goes to the parameters that `lacking` names.
    """
    if not destinations and not isinstance(args, dict):
        return function(*args)
    in_order, named = _shared_out(parameters_of(function), args)
    return function(*in_order, **named, **dict(zip(lacking(parameters_of(function), args), destinations, strict=True)))


def call_with_state(module: torch.nn.Module, state: dict[str, Tensor], args: Args) -> Any:
    """What a module gives with other parameters and buffers; those that it replaces stand in `state` afterwards."""
    before = {name_of_whole(key): whole_of(key, parts) for key, parts in state.items()}
    whole = dict(before)
    result = torch.func.functional_call(module, whole, *(((), args) if isinstance(args, dict) else (args,)))
    for key, (name, tensor) in zip(list(state), before.items(), strict=True):
        if whole[name] is not tensor:
            state[key] = output_in_parts(whole[name])[0]
    return result


def parameters_of(function: Any) -> dict[str, bool]:
    """The parameters that have a name: whether a call must give them; none where Python cannot read them."""
    return {p.name: p.default is p.empty for p in _parameters(function) if p.kind in _BY_NAME}


def _parameters(function: Any) -> list[inspect.Parameter]:
    function = function.forward if isinstance(function, torch.nn.Module) else function
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def lacking(parameters: Mapping[str, bool], args: Args) -> list[str]:
    """Names of the parameters that must be given and are not among the arguments: destinations, it may be."""
    in_order, named = _shared_out(parameters, args)
    return [name for name in list(parameters)[len(in_order) :] if parameters[name] and name not in named]


def defaults_of(function: Any, args: Args) -> dict[str, Any]:
    """The parameters behind those that are given, with their defaults: numbers, words, flags, None."""
    in_order, named = _shared_out(parameters_of(function), args)
    kinds, defaults = _BY_NAME if isinstance(args, dict) else _IN_ORDER, dict[str, Any]()
    for p in (p for p in _parameters(function)[len(in_order) :] if p.name not in named):
        if p.kind not in kinds or p.name.startswith("_") or type(p.default) not in _OPTIONS:
            break
        defaults[p.name] = p.default
    return defaults


def takes_defaults(parameters: Mapping[str, bool], args: Args, names: Sequence[str]) -> bool:
    """Whether a function with these parameters takes further arguments with these names behind the given ones."""
    in_order, _ = _shared_out(parameters, args)
    every = list(parameters)[len(in_order) :]
    return set(names) <= set(every) if isinstance(args, dict) else every[: len(names)] == [*names]


def _shared_out(parameters: Mapping[str, bool], args: Args) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that are handed over in order, and those by name."""
    if not isinstance(args, dict):
        return args, {}
    # A function whose parameters nobody can read is likely to be an operator, which takes names.
    return ((), args) if not parameters or args.keys() <= parameters.keys() else (tuple(args.values()), {})


def copied_state(state: State) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


def _widened(tensor: Tensor) -> Tensor:
    """A tensor in a dtype that torch computes in, which eight bits are not."""
    return tensor.float() if tensor.element_size() == 1 else tensor


def _is_finite(tensor: Tensor) -> bool:
    """Whether a floating tensor has neither a NaN nor an infinity."""
    if not tensor.numel() or tensor.element_size() == 1:  # torch finds no extremes of nothing, nor in eight bits
        return bool(torch.isfinite(tensor.float()).all())
    # Both extremes of what holds a NaN are NaN. One walk finds them; a mask of all elements takes 15 times as long.
    return all(math.isfinite(extreme) for extreme in torch.aminmax(tensor.detach()))
