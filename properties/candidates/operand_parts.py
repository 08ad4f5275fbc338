"""Tensors that are judged as what they are made of: complex numbers by their parts, pairs of four-bit numbers by bytes.

Everything that draws, lays out and compares tensors knows real numbers and integers. So a complex argument stands
among the arguments of a call as its real and imaginary parts, along one more axis of length 2, and a tensor of pairs as
bytes; the structure of the arguments says so, and whoever calls a function by it hands over the tensor itself.
Parameters and buffers have names, and so it is the name of one that says whether its parts stand there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

Tensor = torch.Tensor
#: How a result of either kind is written in its form, around the * of a tensor; and arguments with a mark of torch,
#: by which memory has the conjugates or the negatives of their elements.
COMPLEX, PAIRED = "complex(*)", "pairs(*)"
_CONJUGATE, _NEGATIVE = "conjugate", "negative"

#: What messages call the parts of a tensor of a name.
_NAMES = {
    COMPLEX: "view_as_real({})", PAIRED: "bytes of {}", _CONJUGATE: "view_as_real({}.conj())", _NEGATIVE: "-{}",
}  # fmt: skip
_WHOLE = re.compile(r"view_as_real\((.*)\)\Z|bytes of (.*)\Z", re.DOTALL)
_FORMS = re.compile(r"complex\(\*\)|pairs\(\*\)|\*")
_COMPLEX_DTYPES = (torch.complex64, torch.complex128)
_PAIRS = torch.float4_e2m1fn_x2


class _Complex:
    """A complex argument; `parts` has its real and imaginary parts along the last axis."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts


class _Conjugate(_Complex):
    """One with the mark of a conjugate; `parts` are those of the numbers in memory."""


class _Negative(_Complex):
    """An argument with the mark of a negative; `parts` are the numbers in memory."""


class _Pairs:
    """An argument of pairs of four-bit numbers; `parts` are its bytes."""

    def __init__(self, parts: Any) -> None:
        self.parts = parts


class Repeats:
    """Arguments some of which are one: each of these stands among the parts once."""

    def __init__(self, parts: list[Any], places: list[int], structure: str) -> None:
        self.parts, self.places, self.structure = parts, places, structure


def with_repeats(leaves: list[Any], places: list[int], structure: pytree.TreeSpec) -> Any:
    """A node for the arguments of a structure, in which each has the place of its leaf among the leaves."""
    return Repeats(leaves, places, pytree.treespec_dumps(structure))


def _complex_of(parts: Any) -> Any:
    """The complex numbers of parts, in the same memory where torch has a view of it; it refuses another last axis."""
    if not isinstance(parts, Tensor):
        return parts
    *outer, inner = parts.stride()
    if parts.shape[-1] != 2 or (inner == 1 and not any(stride % 2 for stride in (*outer, parts.storage_offset()))):
        return torch.view_as_complex(parts)
    return torch.complex(parts[..., 0], parts[..., 1])


def _pairs_of(parts: Any) -> Any:
    return parts.view(_PAIRS) if isinstance(parts, Tensor) else parts


def _conjugate_of(parts: Any) -> Any:
    return _complex_of(parts).conj() if isinstance(parts, Tensor) else parts


def _negative_of(parts: Any) -> Any:
    return torch._neg_view(parts) if isinstance(parts, Tensor) else parts


_KINDS = {COMPLEX: _Complex, _CONJUGATE: _Conjugate, _NEGATIVE: _Negative, PAIRED: _Pairs}
_WHOLES = {_Complex: _complex_of, _Conjugate: _conjugate_of, _Negative: _negative_of, _Pairs: _pairs_of}
for _kind, _whole in _WHOLES.items():
    pytree.register_pytree_node(
        _kind,
        lambda x: ([x.parts], None),
        functools.partial(lambda whole, parts, context: whole(*parts), _whole),
        serialized_type_name=f"opassay.{_kind.__name__}",
    )
pytree.register_pytree_node(
    Repeats,
    lambda x: (x.parts, [x.places, x.structure]),
    lambda parts, context: pytree.tree_unflatten([[*parts][i] for i in context[0]], pytree.treespec_loads(context[1])),
    serialized_type_name="opassay._Repeats",
)


def in_parts(leaf: Any) -> Any:
    """An argument as the arguments of a call have it: a node of their tree where it is judged by its parts."""
    kind = _kind_of(leaf)
    if kind is None:
        return leaf
    # What lies in memory of a marked tensor is what its own mark makes plain.
    plain = {_CONJUGATE: torch.conj, _NEGATIVE: torch._neg_view}.get(kind, Tensor.detach)(leaf.detach())
    parts = plain if kind == _NEGATIVE else _parts_of(plain)
    return _KINDS[kind](parts.requires_grad_(leaf.requires_grad and parts.is_floating_point()))


def output_in_parts(output: Any) -> tuple[Any, str]:
    """A tensor of a result as it is judged, and how the form of the result writes it."""
    kind = _kind_of(output)
    if kind in (None, _NEGATIVE):
        return output if kind is None else output.resolve_neg(), "*"
    return _parts_of(output), PAIRED if kind == PAIRED else COMPLEX


def forms_in(form: str) -> list[str]:
    """How the form of a result writes each of its tensors, in order."""
    return [match.group() for match in _FORMS.finditer(form)]


def shape_and_dtype(parts: Tensor, form: str) -> tuple[list[int], str]:
    """Of a tensor of a result before it was taken apart."""
    shape, dtype = list(parts.shape), str(parts.dtype).removeprefix("torch.")
    if form == COMPLEX:
        return shape[:-1], {"float32": "complex64", "float64": "complex128"}[dtype]
    return shape, "float4_e2m1fn_x2" if form == PAIRED else dtype


def has_parts(structure: pytree.TreeSpec) -> bool:
    """Whether an argument of a call is judged by its parts, or several are one."""
    return structure.type in (*_WHOLES, Repeats) or any(map(has_parts, structure.children()))


def name_of_parts(name: str, leaf: Any) -> str:
    """What messages call the parts of an argument of a name."""
    return _NAMES.get(_kind_of(leaf) or "", "{}").format(name)


def state_in_parts(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters and buffers by name, as they are judged: with the names and the values of their parts."""
    return {name_of_parts(name, t): output_in_parts(t)[0] for name, t in state.items()}


def name_of_whole(name: str) -> str:
    """What a module calls a parameter or buffer, of the name of its parts."""
    return _WHOLE.sub(r"\1\2", name)


def whole_of(name: str, parts: Tensor) -> Tensor:
    """A parameter or buffer of parts of a name, in the same memory if that may be."""
    kind = _WHOLE.match(name)
    return parts if kind is None else _pairs_of(parts) if kind[1] is None else _complex_of(parts)


def _kind_of(value: Any) -> str | None:
    if not isinstance(value, Tensor) or value.layout != torch.strided or value.is_nested or value.is_meta:
        return None
    if type(value).__torch_function__ not in (Tensor.__torch_function__, torch._C._disabled_torch_function_impl):
        return None  # A class of its own, which is judged as that.
    if value.dtype in _COMPLEX_DTYPES:
        return _CONJUGATE if value.is_conj() else COMPLEX
    return PAIRED if value.dtype == _PAIRS else _NEGATIVE if value.is_neg() else None


def _parts_of(value: Tensor) -> Tensor:
    return torch.view_as_real(value.resolve_neg().resolve_conj()) if value.is_complex() else value.view(torch.uint8)
