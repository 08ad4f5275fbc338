"""What every call at one sample must return, bit for bit, and a call that is compared with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ....oracles.judge.judge import Judge, gradients
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor, flat_outputs
from ....oracles.op.paths import Problem
from ..agreement import require_same


@dataclass(frozen=True)
class Truth:
    """The outputs and gradients of a subject at a sample, copied from the subject as soon as it returned them.

    Attributes:
        problem: the op at the sample's arguments.
        outputs: as in `flat_outputs`. cotangents: one for each of them.
        gradients: in the arguments `problem.wrt`, zeros where a call gives none; none at all before they are known.
    """

    problem: Problem
    outputs: tuple[Tensor, ...]
    cotangents: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]

    def copies(self, grad: bool = True) -> list[Any]:
        """The arguments in new memory, as new objects; those that derivatives are taken in require grad, or not."""
        given = [a.detach().clone() if isinstance(a, Tensor) else a for a in self.problem.args]
        for i in self.problem.wrt:
            given[i].requires_grad_(grad)
        return given

    def forward(self, judge: Judge, given: Sequence[Any], what: str) -> list[Tensor]:
        """The outputs of a call; Violation unless they have the bits that they must have."""
        outputs = list(flat_outputs(judge.call(judge.subject, *given, what=what)))
        require_same(judge, [y.detach() for y in outputs], self.outputs, what)
        return outputs

    def backward(
        self, judge: Judge, given: Sequence[Any], outputs: Sequence[Tensor], what: str, again: bool = False
    ) -> list[Tensor]:
        """The gradients of a call; Violation unless they have the bits that they must have.

        Args:
            given, outputs: what `forward` was given, and what it returned. what: what messages call this.
            again: whether the graph is differentiated twice, as a user may who retains it.
        """
        for retained in (True, False) if again else (False,):
            found = self.derived(judge, given, outputs, what, retained)
            if found:
                require_same(judge, found, self.gradients, f"gradients {what}")
        return found

    def derived(
        self, judge: Judge, given: Sequence[Any], outputs: Sequence[Tensor], what: str, retained: bool = False
    ) -> list[Tensor]:
        """The gradients of a call, zeros where it gives none; nothing where no output requires grad.

        Args:
            given, outputs, what: as for `backward`. retained: whether the graph is kept.
        """
        if not any(y.requires_grad for y in outputs):
            return []
        leaves = [given[i] for i in self.problem.wrt]
        found = gradients(judge, outputs, leaves, self.cotangents, what, retained)
        # Autograd gives None for a gradient that is zero because no path leads to it.
        return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]

    def asked(self, judge: Judge, given: Sequence[Any], what: str) -> None:
        """Call and differentiate at objects that hold the sample's values."""
        self.backward(judge, given, self.forward(judge, given, what), what)

    def differs(self, judge: Judge, rounds: int) -> str:
        """What was different in some call; empty where nothing was. It counts nothing, so that any thread may ask.

        Args:
            rounds: how many calls; the first is differentiated, too.

        Raises:
            BaseException: as the subject does.
        """
        given = self.copies()
        outputs = flat_outputs(judge.subject(*given))
        found = self.derived(judge, given, outputs, "")
        if not _equal(outputs, self.outputs) or (found and not _equal(found, self.gradients)):
            return "the first call, or its gradients, differ in their bits"
        given = self.copies(grad=False)
        for number in range(1, rounds):
            if not _equal(flat_outputs(judge.subject(*given)), self.outputs):
                return f"call {number + 1} differs in its bits"
        return ""


def _equal(got: Sequence[Tensor], need: Sequence[Tensor]) -> bool:
    return len(got) == len(need) and all(map(same_results, got, need))


def held(judge: Judge, sample: Sample) -> Truth:
    """What the subject returns at a sample, after the judge has held it against the formula.

    The subject sees the sample's own tensors, which no call has seen before. So a cache that answers for them by
    mistake is wrong against the formula, and what is right there is the truth for all later calls.
    """
    problem = Problem(judge.op, sample.args)
    outputs = tuple(y.detach().clone() for y in judge.hold(sample, exactly=False))
    if not problem.wrt:
        return Truth(problem, outputs, (), ())
    path = judge.path(sample, ("vjp",), outputs, "eager")
    undifferentiated = Truth(problem, outputs, path.directions, ())
    given = list(problem.args)
    for i in problem.wrt:
        given[i] = given[i].detach().requires_grad_()
    called = list(flat_outputs(judge.call(judge.subject, *given, what="with gradients")))
    # Not `Judge.hold`: gradients that can be differentiated again may be computed in another way, and have other bits.
    grads = tuple(g.clone() for g in undifferentiated.derived(judge, given, called, "vjp"))
    if grads:
        judge.against(path.expected("vjp (backward)"), grads, exactly=False)
    return replace(undifferentiated, gradients=grads)


def observed(judge: Judge, sample: Sample, what: str) -> Truth:
    """What the subject returns at a sample, whatever that is: for calls that are compared with one another alone."""
    problem = Problem(judge.op, sample.args)
    empty = Truth(problem, (), (), ())
    given = empty.copies()
    outputs = list(flat_outputs(judge.call(judge.subject, *given, what=what)))
    copied = tuple(y.detach().clone() for y in outputs)
    if not problem.wrt:
        return Truth(problem, copied, (), ())
    undifferentiated = Truth(problem, copied, judge.path(sample, ("vjp",), copied, "eager").directions, ())
    grads = undifferentiated.derived(judge, given, outputs, what)
    return replace(undifferentiated, gradients=tuple(g.clone() for g in grads))
