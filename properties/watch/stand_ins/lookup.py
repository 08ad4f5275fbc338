"""Which function stands for which operation."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from . import (
    attention,
    collectives,
    convolutions,
    distances,
    embeddings,
    losses,
    moving,
    norms,
    optimizers,
    pooling,
    products,
    recurrent,
    rounding,
    sampling,
)
from .lists import each_of

StandIn = Callable[..., Any]

_FAMILIES = (
    attention, convolutions, distances, embeddings, losses, moving, norms, optimizers, pooling, products, recurrent,
    rounding, sampling,
)  # fmt: skip


@functools.cache
def _stand_ins() -> dict[Any, StandIn]:
    """Every function by its operation; an operation that the installed torch lacks has none."""
    named = {f"aten::{name}": f for family in _FAMILIES for name, f in family.STAND_INS.items()}
    quantized = {f"quantized::{name}": f for name, f in rounding.QUANTIZED.items()}
    return {**named, **quantized, **{f"_c10d_functional::{name}": f for name, f in collectives.STAND_INS.items()}}


def stand_in_of(op: torch._ops.OpOverload) -> StandIn | None:
    """The function that stands for an operation; None where torch's own can be traced and read.

    The function takes what the operation takes, writes what it writes, and gives what it gives, or only the first of
    its results: the others, such as the memory that a backward is handed, are no numbers of which something is known.
    """
    overload = op._schema.overload_name
    return _stand_ins().get(f"{op._schema.name}.{overload}" if overload else op._schema.name) or each_of(op)
