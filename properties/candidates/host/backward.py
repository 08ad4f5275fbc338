"""The backward of a call of a candidate: its gradients, and those of a second one through the same graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ....oracles.op.bits import same_results
from ....oracles.verdicts.violation import error_lines, error_name
from ..arguments import CallArguments, Tensor, floating
from ..layouts import place_each
from ..operand_parts import output_in_parts
from ..results import Result
from .calls import BackwardCall, Pulled


def pull(
    outputs: Sequence[Tensor], leaves: Sequence[Tensor], call: BackwardCall,
    apart: Callable[[], tuple[Sequence[Tensor], Sequence[Tensor]]],
) -> Pulled:  # fmt: skip
    """The gradients, and those of a second backward through the same graph.

    Args:
        outputs, leaves: of the call. call: says what is asked for.
        apart: makes a call at other values; gives its outputs and its leaves. It comes between the two where
            `call.apart`, so that what the call has saved must have stayed its own, and its gradients as they were.
    """
    pairs = zip(floating(outputs), place_each(call.cotangents, call.strides), strict=False)
    tracked = [(y, g) for y, g in pairs if y.requires_grad]
    if not tracked or not leaves:
        return Pulled()
    targets, weights = [y for y, _ in tracked], [g for _, g in tracked]
    marks = [*call.having, *(False for _ in call.wanted)] if call.rows else [False] * len(leaves)

    def take(keeps: bool) -> tuple[list[Any], Sequence[Any]]:
        gradients = torch.autograd.grad(targets, list(leaves), weights, retain_graph=keeps, allow_unused=True)
        return _copies(gradients, marks, call.rows), gradients

    try:
        first, gradients = take(True)
    except RuntimeError:  # a graph that torch.compile has made may refuse to be kept
        return Pulled(take(False)[0])
    if call.apart:
        _pull_apart(apart, weights)
    now = _copies(gradients, marks, call.rows)
    changed = [i for i, (was, value) in enumerate(zip(first, now, strict=True)) if not _equal(was, value)]
    try:
        second, _ = take(False)
    except Exception as err:
        return Pulled(first, spent=": ".join([error_name(err), *error_lines(err)[:1]]), changed=changed)
    return Pulled(first, [] if all(map(_equal, first, second)) else second, changed=changed)


def _copies(gradients: Sequence[Any], marks: Sequence[bool], rows: list[int]) -> list[Any]:
    """Copies of gradients, of those with a mark of some rows."""
    copies = [None if g is None else output_in_parts(g.detach())[0].clone() for g in gradients]
    return [g[rows] if has and g is not None else g for g, has in zip(copies, marks, strict=True)]


def _equal(one: Tensor | None, other: Tensor | None) -> bool:
    return one is other if one is None or other is None else same_results(one, other)


def _pull_apart(apart: Callable[[], tuple[Sequence[Tensor], Sequence[Tensor]]], weights: Sequence[Tensor]) -> None:
    """Make a call at other values, and its backward with other cotangents; what it raises is no matter here."""
    with contextlib.suppress(Exception):
        outputs, leaves = apart()
        pairs = [(y, -g) for y, g in zip([y for y in outputs if y.requires_grad], weights, strict=True)]
        torch.autograd.grad([y for y, _ in pairs], list(leaves), [g for _, g in pairs], allow_unused=True)


def call_apart(
    call_at: Callable[[CallArguments], Result], arguments: CallArguments, leaves: Sequence[Tensor]
) -> tuple[Sequence[Tensor], Sequence[Tensor]]:
    """The floating outputs of a call at other values of about the same size, and its leaves in place of `leaves`."""
    tensors = [
        t.detach().flatten().roll(1).reshape(t.shape) / 2 if t.is_floating_point() else t for t in arguments.tensors
    ]
    for new, was in zip(tensors, arguments.tensors, strict=True):
        new.requires_grad_(was.requires_grad)
    places = {id(t): i for i, t in enumerate(arguments.tensors)}
    own = [tensors[places[id(leaf)]] if id(leaf) in places else leaf for leaf in leaves]
    return floating(call_at(arguments.with_tensors(tensors)).tensors), own
