"""Formats of few bits as torch has them: which dtypes, and what a cast gives for numbers that they have no code for."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ...reference.array import cast, store
from ...reference.dtypes import EVERY_FORMAT, STORAGE_FORMATS, Format, dtype_name, format_of_cast

#: Two numbers of e2m1 in a byte, which have neither arithmetic nor casts in torch: they are read as bytes.
PAIRS = torch.float4_e2m1fn_x2
#: Dtypes of torch whose numbers are only stored; of two numbers in one byte there is no cast.
STORAGE_DTYPES = frozenset(getattr(torch, name) for name in STORAGE_FORMATS if hasattr(torch, name))

#: Logarithms of 1 + exp(-x), or of numbers that may be that.
_LOGARITHMS = {"log", "log1p", "softplus", "log_sigmoid_forward", "logaddexp", "soft_margin_loss"}
_LOGARITHMS |= {"binary_cross_entropy_with_logits"}
_CENTRED = {"var", "var_mean", "std", "std_mean", "native_layer_norm", "native_group_norm", "native_batch_norm"}
_CENTRED |= {"_native_batch_norm_legit", "_native_batch_norm_legit_functional", "_batch_norm_with_update"}
#: Comparisons with a number.
_COMPARISONS = {getattr(torch.ops.aten, name).Scalar for name in ("gt", "ge", "lt", "le")}


@functools.cache
def format_of(dtype: torch.dtype) -> Format:
    """The format of a floating dtype. Whether its casts saturate is asked of torch, whose versions differ.

    Raises:
        KeyError: the dtype has no format in `EVERY_FORMAT`.
    """
    fmt = EVERY_FORMAT[dtype_name(dtype)]
    if fmt.computes:
        return fmt
    return format_of_cast(fmt.name, torch.tensor(2.0**126).to(dtype).item() == fmt.max)


def is_floating(dtype: torch.dtype) -> bool:
    """Whether a dtype is one of floating numbers that are read as such: pairs of them are bytes."""
    return dtype.is_floating_point and dtype != PAIRS


def is_computed_in(dtype: torch.dtype) -> bool:
    """Whether ops compute in a floating dtype, so that numbers of it have derivatives."""
    return dtype not in STORAGE_DTYPES


def formats_in(graph: torch.fx.GraphModule) -> list[Format]:
    """The formats of few bits that occur in a graph, in the order of their names."""
    leaves = pytree.tree_leaves([node.meta.get("val") for node in graph.graph.nodes])
    dtypes = {leaf.dtype for leaf in leaves if isinstance(leaf, torch.Tensor)} & STORAGE_DTYPES
    return sorted(map(format_of, dtypes), key=lambda fmt: fmt.name)


def rounds_to_integers(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph rounds to integers, as quantisation to integers does."""
    return any(node.target is torch.ops.aten.round.default for node in graph.graph.nodes)


def takes_logarithms(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph has logarithms of single elements, as losses of logits have."""
    return any(getattr(node.target, "_opname", "") in _LOGARITHMS for node in graph.graph.nodes)


def subtracts_means(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph has variances or norms of what a mean is subtracted from, or subtracts a mean itself."""
    names = {node: getattr(node.target, "_opname", "") for node in graph.graph.nodes}
    subtracted = [node.args[1] for node, name in names.items() if name == "sub"]
    return any(name in _CENTRED for name in names.values()) or any(names.get(each, "") == "mean" for each in subtracted)


def thresholds_in(graph: torch.fx.GraphModule) -> list[float]:
    """The numbers with which a graph compares, in order: a quantisation to codes that is written by comparisons has the
    middles of its grid there.
    """
    compared = [node.args[1] for node in graph.graph.nodes if node.target in _COMPARISONS]
    return sorted({float(number) for number in compared if isinstance(number, (int, float))})


def by_way_of_float32(x: Any, source: torch.dtype | None) -> Any:
    """What torch casts to few bits: of a tensor in float64 its numbers in float32.

    Args:
        x: an array of a reading. source: its dtype in the spec.
    """
    return store(x, "float32") if source == torch.float64 else x


def cast_to(x: Any, dtype: torch.dtype) -> Any:
    """An array of a reading as numbers of a dtype of few bits."""
    fmt = format_of(dtype)
    return cast(x, fmt.name, fmt.saturates)
