"""Ops whose outputs are their own arguments: what autograd knows of each output is what it knows of the argument.

What this is for: an identity is called for the sake of its place in the graph, so its values say nothing of most of its
mistakes. Hooks sit on its node, and have to see the gradients of all outputs at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_bits
from ....oracles.op.declaration import Sample, Tensor
from ....oracles.verdicts.verdict import Code

WHERE = "as an identity"


def identity(judge: Judge, sample: Sample) -> None:
    """Every set of arguments that need a gradient, with and without tangents; nothing of an op that promises none."""
    if not judge.op.promises.identity:
        return
    given = [t for t in sample.args if isinstance(t, Tensor)]
    with torch.no_grad():
        plain = judge.primal(sample)
    directions = judge.path(sample, ("jvp",), plain, "eager").directions
    for needs in itertools.product((True, False), repeat=len(given)):
        operands = [t.detach().requires_grad_(need) for t, need in zip(given, needs, strict=True)]
        outputs = _outputs_for(judge, operands)
        _require_needs(judge, outputs, needs)
        _one_node(judge, outputs)
        _writable(judge, _outputs_for(judge, [t.detach().clone().requires_grad_(t.requires_grad) for t in operands]))
        with torch.no_grad():
            _require_needs(judge, _outputs_for(judge, operands), [False] * len(given))
        for moved in itertools.product((True, False), repeat=len(given)):
            _tangents(judge, operands, [t if move else None for t, move in zip(directions, moved, strict=True)])


def _outputs_for(judge: Judge, operands: Sequence[Tensor]) -> list[Tensor]:
    """The outputs for tensors, with what is no floating tensor behind them; Violation unless that comes back, too."""
    index = torch.arange(3)
    others = (None, 7, "text", index)
    found = judge.call(judge.subject, *operands, *others, what=WHERE)
    outputs, rest = list(found[: len(operands)]), tuple(found[len(operands) :])
    if rest[:-1] != others[:-1] or not torch.equal(rest[-1], index) or rest[-1] is index or rest[-1].requires_grad:
        raise judge.broken(Code.VALUE, f"got {rest} for {others}, need the same, the tensor as a view", where=WHERE)
    judge.tally.count(len(others))
    return outputs


def _require_needs(judge: Judge, outputs: Sequence[Tensor], needs: Sequence[bool]) -> None:
    got = [y.requires_grad for y in outputs]
    if got != list(needs):
        raise judge.broken(Code.ATTRIBUTE, f"got outputs with requires_grad={got}, need {list(needs)}", where=WHERE)
    judge.tally.count(len(got))


def _one_node(judge: Judge, outputs: Sequence[Tensor]) -> None:
    """The outputs that need a gradient have one node, and a hook on it sees all gradients; zeros where one is missing.

    Args:
        outputs: of one call.
    """
    tracked = [y for y in outputs if y.requires_grad]
    nodes = {y.grad_fn for y in tracked}
    if len(nodes) > 1:
        raise judge.broken(Code.ATTRIBUTE, f"the outputs have {len(nodes)} nodes, need one for all", where=WHERE)
    for node in nodes:
        assert node is not None
        seen: list[Sequence[Any]] = []

        def noted(gradients: Sequence[Any], _: Any, seen: list[Sequence[Any]] = seen) -> None:
            seen.append(gradients)

        with node.register_hook(noted):
            judge.call(torch.autograd.backward, tracked[0], torch.ones_like(tracked[0]), what=f"backward {WHERE}")
        (gradients,) = seen
        for y, gradient in zip(outputs, gradients, strict=False):
            must = torch.ones_like(y) if y is tracked[0] else torch.zeros_like(y)
            if y.requires_grad and (gradient is None or not same_bits(gradient, must.detach())):
                wrong = f"a hook on the node sees {gradient}, need {must}"
                raise judge.broken(Code.VALUE, wrong, where=WHERE)
        judge.tally.count(len(tracked))


def _writable(judge: Judge, outputs: Sequence[Tensor]) -> None:
    """Outputs that need no gradient may be written with what needs one, as any view of a tensor that needs none."""
    for y in outputs:
        if not y.requires_grad:
            one = torch.ones((), dtype=y.dtype, device=y.device, requires_grad=True)
            judge.call(y.mul_, one, what=f"a write to an output {WHERE}")
            judge.tally.count(1)


def _tangents(judge: Judge, operands: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> None:
    """Outputs have the tangents of their arguments; where one has none, none, or zeros if it needs a gradient.

    Args:
        operands: some of which may need a gradient. tangents: one for each of them, or None.
    """
    with forward_ad.dual_level():
        given = [x if t is None else forward_ad.make_dual(x, t) for x, t in zip(operands, tangents, strict=True)]
        found = [forward_ad.unpack_dual(y).tangent for y in _outputs_for(judge, given)]
    for x, got, need in zip(operands, found, tangents, strict=True):
        right = need is None if got is None else same_bits(got, torch.zeros_like(got) if need is None else need)
        if not right or (got is not None and need is None and not x.requires_grad):
            raise judge.broken(Code.VALUE, f"an output has tangent={got}, need {need}", where=WHERE)
    judge.tally.count(len(found))
