"""The results that every call at one sample must return, bit for bit, and calls that are compared with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor, flat_outputs
from ....oracles.op.paths import Problem
from ....oracles.op.transforms import Word
from ....oracles.verdicts.violation import Violation
from ..agreement import differentiate, require_equal, require_same


@dataclass(frozen=True)
class Truth:
    """The outputs and gradients of a subject at a sample, copied from the subject as soon as it returned them.

    Attributes:
        problem: the op at the sample's arguments.
        outputs: as in `flat_outputs`. cotangents: one for each of them.
        gradients: in the arguments `problem.wrt`, zeros where a call gives none; () before they were computed.
    """

    problem: Problem
    outputs: tuple[Tensor, ...]
    cotangents: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]

    def copies(self, grad: bool = True) -> list[Any]:
        """The arguments in new memory, as new objects; the differentiable ones require grad if `grad` says so."""
        arguments = [a.detach().clone() if isinstance(a, Tensor) else a for a in self.problem.args]
        for i in self.problem.wrt:
            arguments[i].requires_grad_(grad)
        return arguments

    def forward(self, judge: Judge, arguments: Sequence[Any], what: str) -> list[Tensor]:
        """The outputs of a call; Violation unless they have the bits that they must have."""
        outputs = list(flat_outputs(judge.call(judge.subject, *arguments, what=what)))
        self._require(judge, (), [y.detach() for y in outputs], self.outputs, what)
        return outputs

    def backward(
        self, judge: Judge, arguments: Sequence[Any], outputs: Sequence[Tensor], what: str, again: bool = False
    ) -> list[Tensor]:
        """The gradients of a call; Violation unless they have the bits that they must have.

        Args:
            arguments, outputs: those of `forward`. what: the name of the call in messages.
            again: whether to retain the graph and differentiate it twice, as a user may.
        """
        for retained in (True, False) if again else (False,):
            grads = self.differentiate(judge, arguments, outputs, what, retained)
            if grads:
                self._require(judge, ("vjp",), grads, self.gradients, f"gradients {what}")
        return grads

    def differentiate(
        self, judge: Judge, arguments: Sequence[Any], outputs: Sequence[Tensor], what: str, retained: bool = False
    ) -> list[Tensor]:
        """The gradients of a call, zeros where it gives none; nothing where no output requires grad.

        Args:
            arguments, outputs, what: as for `backward`. retained: whether the graph is retained.
        """
        if not any(y.requires_grad for y in outputs):
            return []
        leaves = [arguments[i] for i in self.problem.wrt]
        return differentiate(judge, outputs, leaves, self.cotangents, what, retained=retained)

    def ask(self, judge: Judge, arguments: Sequence[Any], what: str) -> None:
        """Call and differentiate at objects that hold the sample's values."""
        self.backward(judge, arguments, self.forward(judge, arguments, what), what)

    def find_difference(self, judge: Judge, rounds: int) -> str:
        """What differs in some call, in words; empty where nothing does. Any thread may ask, as no tally is changed.

        The first of the rounds is differentiated, too.

        Raises:
            BaseException: as the subject does.
        """
        arguments = self.copies()
        outputs = flat_outputs(judge.subject(*arguments))
        grads = self.differentiate(judge, arguments, outputs, "")
        if not self._holds(judge, outputs, grads):
            return "the first call, or its gradients, differ in their bits"
        arguments = self.copies(grad=False)
        for number in range(1, rounds):
            if not self._holds(judge, flat_outputs(judge.subject(*arguments))):
                return f"call {number + 1} differs in its bits"
        return ""

    def _holds(self, judge: Judge, outputs: Sequence[Tensor], grads: Sequence[Tensor] = ()) -> bool:
        """Whether results in some thread are those that they must be."""
        if _equal(outputs, self.outputs) and (not grads or _equal(grads, self.gradients)):
            return True
        apart = judge.again()
        try:
            self._require(apart, (), [y.detach() for y in outputs], self.outputs, "")
            self._require(apart, ("vjp",), grads, self.gradients if grads else (), "")
        except Violation:
            return False
        return True

    def _require(self, judge: Judge, word: Word, got: Sequence[Tensor], need: Sequence[Tensor], what: str) -> None:
        """Violation unless results have the bits of others, or lie in their accept sets where no bits are promised."""
        if judge.op.documented_by(judge.subject_name).bits:
            require_same(judge, got, need, what)
        elif got:
            path = judge.path(Sample(self.problem.args), word, self.outputs, "eager")
            require_equal(judge, path.along(word, self.cotangents if word else ()), got, need, what)


def _equal(got: Sequence[Tensor], need: Sequence[Tensor]) -> bool:
    return len(got) == len(need) and all(map(same_results, got, need))


def establish_truth(judge: Judge, sample: Sample) -> Truth:
    """The results of the subject at a sample, which the judge has compared with the formula.

    The subject gets the sample's own tensors, which no call has had before. So a wrong answer of a cache differs from
    the formula here, and results that pass are the truth for all later calls.
    """
    problem = Problem(judge.op, sample.args)
    outputs = tuple(y.detach().clone() for y in judge.hold(sample, exactly=False))
    if not problem.wrt:
        return Truth(problem, outputs, (), ())
    path = judge.path(sample, ("vjp",), outputs, "eager")
    without_gradients = Truth(problem, outputs, path.directions, ())
    arguments = list(problem.args)
    for i in problem.wrt:
        arguments[i] = arguments[i].detach().requires_grad_()
    called = list(flat_outputs(judge.call(judge.subject, *arguments, what="with gradients")))
    # Not `Judge.hold`: gradients that can be differentiated again may be computed in another way, and have other bits.
    grads = tuple(g.clone() for g in without_gradients.differentiate(judge, arguments, called, "vjp"))
    if grads:
        judge.against(path.expected("vjp (backward)"), grads, exactly=False)
    return replace(without_gradients, gradients=grads)


def observe_truth(judge: Judge, sample: Sample, what: str) -> Truth:
    """The results of the subject at a sample, not judged: for calls that are compared with one another alone."""
    problem = Problem(judge.op, sample.args)
    empty = Truth(problem, (), (), ())
    arguments = empty.copies()
    outputs = list(flat_outputs(judge.call(judge.subject, *arguments, what=what)))
    copied = tuple(y.detach().clone() for y in outputs)
    if not problem.wrt:
        return Truth(problem, copied, (), ())
    without_gradients = Truth(problem, copied, judge.path(sample, ("vjp",), copied, "eager").directions, ())
    grads = without_gradients.differentiate(judge, arguments, outputs, what)
    return replace(without_gradients, gradients=tuple(g.clone() for g in grads))
