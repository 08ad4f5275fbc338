"""The backward of a call of a candidate: its gradients, and those of a second one through the same graph."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ....oracles.op.bits import same_results
from ....oracles.verdicts.violation import error_lines, error_name
from ..arguments import Tensor
from ..layouts import place
from ..operand_parts import output_in_parts
from .calls import BackwardCall, Pulled, floating


def pull(outputs: Sequence[Tensor], leaves: Sequence[Tensor], call: BackwardCall) -> Pulled:
    """The gradients, and those of a second backward through the same graph."""
    cotangents = call.cotangents
    if call.strides:
        cotangents = [place(g, strides) for g, strides in zip(cotangents, call.strides, strict=True)]
    pairs = zip(floating(outputs), cotangents, strict=False)
    tracked = [(y, g) for y, g in pairs if y.requires_grad]
    if not tracked or not leaves:
        return Pulled()
    targets, weights = [y for y, _ in tracked], [g for _, g in tracked]
    marks = [*call.having, *(False for _ in call.wanted)] if call.rows else [False] * len(leaves)

    def take(keeps: bool) -> list[Any]:
        gradients = torch.autograd.grad(targets, list(leaves), weights, retain_graph=keeps, allow_unused=True)
        copies = [None if g is None else output_in_parts(g.detach())[0].clone() for g in gradients]
        return [g[call.rows] if has and g is not None else g for g, has in zip(copies, marks, strict=True)]

    try:
        first = take(True)
    except RuntimeError:  # a graph that torch.compile has made may refuse to be kept
        return Pulled(take(False))
    try:
        second = take(False)
    except Exception as err:
        return Pulled(first, spent=": ".join([error_name(err), *error_lines(err)[:1]]))
    same = all((a is None and b is None) or same_results(a, b) for a, b in zip(first, second, strict=True))
    return Pulled(first, [] if same else second)
