"""Gradients of one call of the subject, by autograd."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..op.declaration import Tensor
from .judge import Judge


def gradients(
    judge: Judge, outputs: Sequence[Tensor], leaves: Sequence[Tensor], cotangents: Sequence[Tensor], what: str = "vjp",
    retained: bool = False, graph: bool = False,
) -> list[Tensor | None]:  # fmt: skip
    """The gradients of leaves by autograd, None for a leaf without one; outputs that require no grad are left out.

    Args:
        judge: calls the subject. outputs, leaves: of one call of the subject.
        cotangents: one for each output. what: the name of the call in messages.
        retained: whether the graph is kept, so that it can be differentiated once more.
        graph: whether the gradients can be differentiated, too, which keeps the graph.
    """
    if not leaves:
        return []
    pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
    targets, target_cotangents = [y for y, _ in pairs], [g for _, g in pairs]
    options = {"allow_unused": True, "retain_graph": retained or graph, "create_graph": graph}
    return list(judge.call(lambda: torch.autograd.grad(targets, leaves, target_cotangents, **options), what=what))
