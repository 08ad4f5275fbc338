"""A call of torch's dispatcher, as it was recorded: operands before, results after, and where the program made it."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .stand_ins.lookup import stand_in_of

Tensor = torch.Tensor
_ATEN = torch.ops.aten

#: Operations that give memory that nobody has written, and those that say nothing of numbers.
_MEMORY = frozenset({_ATEN.empty, _ATEN.new_empty, _ATEN.empty_like, _ATEN.empty_strided, _ATEN.new_empty_strided})
_SILENT = frozenset({_ATEN._local_scalar_dense, _ATEN.is_same_size, _ATEN.resize_, _ATEN.set_, _ATEN.record_stream})
#: Operations that move or copy elements.
MOVES = frozenset(
    {_ATEN.clone, _ATEN.stack, _ATEN.cat, _ATEN.index, _ATEN.index_select, _ATEN.gather, _ATEN.embedding, _ATEN.repeat}
    | {_ATEN.flip, _ATEN.roll, _ATEN.constant_pad_nd, _ATEN.slice_backward, _ATEN.select_backward, _ATEN.lift_fresh}
    | {_ATEN.masked_fill, _ATEN.masked_fill_, _ATEN.tril, _ATEN.triu, _ATEN._unsafe_view, _ATEN._reshape_alias}
    | {_ATEN.split_with_sizes_copy, _ATEN.detach, _ATEN.alias, _ATEN.zero_, _ATEN.fill_, _ATEN.where}
)
#: How the names of operations on lists begin, which do the same at each place.
_LISTS = ("aten::_foreach_", "aten::_fused_")
_COPIES = frozenset({_ATEN._to_copy, _ATEN.copy_, _ATEN.copy})


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the program makes a call; the attributes are those of `CallPlace` of the same names."""

    module: str = ""
    line: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Switches:
    """What torch was told about arithmetic when a call was made.

    Attributes:
        products: "tf32" or "bf16" where products of matrices may round factors of float32 to it. convolutions: the
            same of convolutions.
        flush: whether subnormals become zero. partials: whether partial sums of half types may be stored in them.
    """

    products: str = ""
    convolutions: str = ""
    flush: bool = False
    partials: bool = False


@dataclass(eq=False, slots=True, weakref_slot=True)
class DispatcherCall:
    """One call.

    Attributes:
        op: the operation, or the region (`regions.Region`).
        leaves: the operands, tensors as copies of what they were before the call. structure: around them.
        results: copies: what the call wrote, then what it gave. adjoints: the derivative of the loss, or of the number
            that is followed, by each; None where none is known. tracked: which of the results have one by autograd.
        origin, switches: where, and how. number: of the call in the program. seconds: its own time.
        generator: the state of torch's generator before a compiled graph.
        covered: whether it was made within a region that is held as a whole.
    """

    op: Any
    leaves: tuple[Any, ...]
    structure: pytree.TreeSpec
    results: tuple[Tensor, ...]
    origin: Origin
    switches: Switches
    number: int
    generator: Tensor | None = None
    seconds: float = 0.0
    covered: bool = False
    adjoints: list[Tensor | None] = field(default_factory=list)
    tracked: list[bool] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The operation as torch names it: "aten::mm"."""
        return name_of(self.op)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors among the operands."""
        return tuple(leaf for leaf in self.leaves if isinstance(leaf, Tensor))

    @property
    def dtype(self) -> str:
        """Of the first floating result, else of the first result; "none" where there is none."""
        floating = [y for y in self.results if is_floating(y)] or list(self.results)
        return str(floating[0].dtype).removeprefix("torch.") if floating else "none"


#: The operation that gives a product and the mask that it drew.
DROPOUT = _ATEN.native_dropout.default


def drop_by_mask(x: Tensor, p: float, train: bool | None = True, *, mask: Tensor) -> tuple[Tensor, Tensor]:
    """What dropout gives where it drew this mask."""
    return x * mask * (1 / (1 - p) if train is not False and p < 1 else 1.0), mask


def name_of(op: Any) -> str:
    """The name of an operation without its overload, "aten::mm"; of a region its own."""
    return str(op._schema.name) if isinstance(op, torch._ops.OpOverload) else str(op.name)


def is_floating(value: Any) -> bool:
    """Whether a value is a tensor of floating or complex numbers."""
    return isinstance(value, Tensor) and (value.dtype.is_floating_point or value.dtype.is_complex)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors among the leaves of a value."""
    return (leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor))


@functools.cache
def _writes_of(op: torch._ops.OpOverload) -> tuple[tuple[int, str], ...]:
    """Position and name of each argument that the schema says is written."""
    arguments = enumerate(op._schema.arguments)
    return tuple((i, a.name) for i, a in arguments if a.alias_info is not None and a.alias_info.is_write)


def find_written(op: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Tensor]:
    """The operands that a call writes, in order."""
    if not isinstance(op, torch._ops.OpOverload):
        return []
    values = (kwargs.get(name, args[i] if i < len(args) else None) for i, name in _writes_of(op))
    return [tensor for value in values for tensor in tensors_in(value)]


def results_of(op: Any, args: Sequence[Any], kwargs: dict[str, Any], output: Any) -> tuple[Tensor, ...]:
    """What a call wrote, and then what else it gave."""
    writes = find_written(op, args, kwargs)
    known = {id(tensor) for tensor in writes}
    return (*writes, *(tensor for tensor in tensors_in(output) if id(tensor) not in known))


def kind_of(call: DispatcherCall) -> str:
    """What there is to hold: "computes", "casts", "moves", "integers", "region"; or "random", "memory", "silent"."""
    op = call.op
    if not isinstance(op, torch._ops.OpOverload):
        return "region"
    packet = op.overloadpacket
    if packet in _SILENT or all(y.numel() == 0 for y in call.results):
        return "silent"
    if packet in _MEMORY:
        return "memory"
    # What stands for an operation that may draw says what it gives where it does not, or refuses.
    if torch.Tag.nondeterministic_seeded in op.tags and op is not DROPOUT and stand_in_of(op) is None:
        return "random"
    if not any(map(is_floating, call.results)):
        return "integers"
    if packet in _COPIES:
        sources = call.tensors[0:1] if packet is _ATEN._to_copy else call.tensors[1:2]
        return "moves" if sources and sources[0].dtype == call.results[0].dtype else "casts"
    return "moves" if packet in MOVES else "computes"


def split_lists(call: DispatcherCall) -> Iterator[tuple[DispatcherCall, Sequence[int]]]:
    """An operation on lists as a call for each of their places, and which of its tensors each takes; else itself."""
    args, kwargs = pytree.tree_unflatten(list(call.leaves), call.structure)
    count = len(args[0]) if args and isinstance(args[0], (list, tuple)) else 0
    if count < 2 or not call.name.startswith(_LISTS) or len(call.results) % count:
        yield call, range(len(call.tensors))
        return
    numbers = itertools.count()
    positions = pytree.tree_map(lambda x: next(numbers) if isinstance(x, Tensor) else None, (args, kwargs))
    for i in range(count):
        leaves, structure = pytree.tree_flatten(_at((args, kwargs), i, count))
        own = [x for x in pytree.tree_leaves(_at(positions, i, count)) if x is not None]
        part = replace(call, leaves=tuple(leaves), structure=structure, results=call.results[i::count])
        part.adjoints, part.tracked = call.adjoints[i::count], call.tracked[i::count]
        yield part, own


def _at(arguments: Any, i: int, count: int) -> Any:
    """The arguments of the call for one place of lists."""

    def pick(value: Any) -> Any:
        return [value[i]] if isinstance(value, (list, tuple)) and len(value) == count else value

    args, kwargs = arguments
    return tuple(map(pick, args)), {name: pick(value) for name, value in kwargs.items()}
