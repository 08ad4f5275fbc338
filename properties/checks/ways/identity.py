"""Ops that return their arguments: each output has the `requires_grad` and the tangent of its argument.

What this is for: an identity is called for its node in autograd's graph, so most of its mistakes do not show in values.
Hooks are registered on the node, and must see the gradients of all outputs at once.
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


def check_identity(judge: Judge, sample: Sample) -> None:
    """Judge an op that promises to be an identity, for every subset of tensors that require grad or have tangents."""
    if not judge.op.promises.memory.identity:
        return
    tensors = [t for t in sample.args if isinstance(t, Tensor)]
    with torch.no_grad():
        plain = judge.primal(sample)
    directions = judge.path(sample, ("jvp",), plain, "eager").directions
    for needs in itertools.product((True, False), repeat=len(tensors)):
        operands = [t.detach().requires_grad_(need) for t, need in zip(tensors, needs, strict=True)]
        outputs = _outputs_for(judge, operands)
        _require_needs(judge, outputs, needs)
        _one_node(judge, outputs)
        _writable(judge, _outputs_for(judge, [t.detach().clone().requires_grad_(t.requires_grad) for t in operands]))
        with torch.no_grad():
            _require_needs(judge, _outputs_for(judge, operands), [False] * len(tensors))
        for moved in itertools.product((True, False), repeat=len(tensors)):
            _tangents(judge, operands, [t if move else None for t, move in zip(directions, moved, strict=True)])


def _outputs_for(judge: Judge, operands: Sequence[Tensor]) -> list[Tensor]:
    """The outputs for the operands, which are followed by a None, an int, a str and a tensor of integers.

    Violation unless these four are returned as well: the tensor as a view, which does not require grad.
    """
    index = torch.arange(3)
    others = (None, 7, "text", index)
    results = judge.call(judge.subject, *operands, *others, what=WHERE)
    outputs, rest = list(results[: len(operands)]), tuple(results[len(operands) :])
    if rest[:-1] != others[:-1] or not torch.equal(rest[-1], index) or rest[-1] is index or rest[-1].requires_grad:
        raise judge.violation(Code.VALUE, f"got {rest} for {others}, need the same, the tensor as a view", where=WHERE)
    judge.tally.count(len(others))
    return outputs


def _require_needs(judge: Judge, outputs: Sequence[Tensor], needs: Sequence[bool]) -> None:
    got = [y.requires_grad for y in outputs]
    if got != list(needs):
        raise judge.violation(Code.ATTRIBUTE, f"got outputs with requires_grad={got}, need {list(needs)}", where=WHERE)
    judge.tally.count(len(got))


def _one_node(judge: Judge, outputs: Sequence[Tensor]) -> None:
    """Violation unless all outputs that require grad share one node, and a hook on it sees a gradient for each output.

    Backward begins at one output, so the gradients of the others are zeros.
    """
    tracked = [y for y in outputs if y.requires_grad]
    nodes = {y.grad_fn for y in tracked}
    if len(nodes) > 1:
        raise judge.violation(Code.ATTRIBUTE, f"the outputs have {len(nodes)} nodes, need one for all", where=WHERE)
    for node in nodes:
        assert node is not None
        records: list[Sequence[Any]] = []

        def record(gradients: Sequence[Any], _: Any, records: list[Sequence[Any]] = records) -> None:
            records.append(gradients)

        with node.register_hook(record):
            judge.call(torch.autograd.backward, tracked[0], torch.ones_like(tracked[0]), what=f"backward {WHERE}")
        (gradients,) = records
        for y, gradient in zip(outputs, gradients, strict=False):
            must = torch.ones_like(y) if y is tracked[0] else torch.zeros_like(y)
            if y.requires_grad and (gradient is None or not same_bits(gradient, must.detach())):
                wrong = f"a hook on the node sees {gradient}, need {must}"
                raise judge.violation(Code.VALUE, wrong, where=WHERE)
        judge.tally.count(len(tracked))


def _writable(judge: Judge, outputs: Sequence[Tensor]) -> None:
    """Violation where an output that does not require grad refuses an in-place operation with a tensor that does."""
    for y in outputs:
        if not y.requires_grad:
            one = torch.ones((), dtype=y.dtype, device=y.device, requires_grad=True)
            judge.call(y.mul_, one, what=f"a write to an output {WHERE}")
            judge.tally.count(1)


def _tangents(judge: Judge, operands: Sequence[Tensor], tangents: Sequence[Tensor | None]) -> None:
    """Violation unless each output has the tangent of its argument.

    Where an argument that requires grad has no tangent, its output may have zeros or none.
    """
    with forward_ad.dual_level():
        duals = [x if t is None else forward_ad.make_dual(x, t) for x, t in zip(operands, tangents, strict=True)]
        derivatives = [forward_ad.unpack_dual(y).tangent for y in _outputs_for(judge, duals)]
    for x, got, need in zip(operands, derivatives, tangents, strict=True):
        right = need is None if got is None else same_bits(got, torch.zeros_like(got) if need is None else need)
        if not right or (got is not None and need is None and not x.requires_grad):
            raise judge.violation(Code.VALUE, f"an output has tangent={got}, need {need}", where=WHERE)
    judge.tally.count(len(derivatives))
