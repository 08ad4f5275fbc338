"""NEEDS: a gradient is the same whichever others are computed with it, and an input that needs none gets none.

What this is for: a backward that skips the gradients that nobody needs has a branch for every set of needed ones, and a
test that always asks for all gradients takes one branch. In the others a gradient may land in its neighbour's place, be
zero because another one was not needed, or be lost in the second derivative alone. A user may also differentiate some
of several outputs.

What is hard here: to know which bits are right. The gradients of a call where all inputs need one are judged by VJP.
Where another set of needed gradients gives other bits, because another kernel serves it, say, the formula decides:
along the same path, with a direction of zero for every input or output that takes no part.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.autograd import forward_ad

from ...oracles.judge.holding import find_mismatch
from ...oracles.judge.judge import Judge
from ...oracles.op.bits import same_results
from ...oracles.op.declaration import Sample, Stream, Tensor
from ...oracles.op.paths import Path, Problem
from ...oracles.verdicts.violation import Code, Unsupported, Violation
from .gradients import gradients

#: Of up to this many inputs every set is tried; of more, the sets of all, none, one alone and all but one, and `DRAWS`
#: random sets.
EVERY = 4
DRAWS = 8

Optional = Sequence[Tensor | None]
#: Tensors with their cotangents.
Pairs = Sequence[tuple[Tensor, Tensor]]


def check_needs(judge: Judge, sample: Sample) -> None:
    """NEEDS: in reverse mode of first and second order, in forward mode, in `torch.func`; and for sets of outputs."""
    question, without = _NeedsQuestion(judge, sample), judge.op.promises.without
    question.cut_off()
    question.of_some_outputs()
    if "double" not in without:
        question.beside_outputs()
    if "vmap" not in without:
        question.in_a_batch()
    for needs in _choose_sets(len(question.problem.wrt), sample):
        question.first(needs)
        if needs:
            question.accumulate(needs)
            if "func" not in without:
                question.by_func(needs)
            if "double" not in without:
                question.second(needs)
            if "jvp" not in without:
                question.forward(needs)


def _choose_sets(count: int, sample: Sample) -> list[frozenset[int]]:
    """Sets of `count` inputs that require grad: all sets, or some (see `EVERY`).

    For any two inputs there is a set that contains the first and not the second.
    """
    whole = (1 << count) - 1
    numbers: Sequence[int] = range(whole + 1)
    if count > EVERY:
        rng = sample.generator(Stream.NEEDS)
        alone = [1 << i for i in range(count)]
        random = [int.from_bytes(rng.bytes(count // 8 + 1), "big") & whole for _ in range(DRAWS)]
        numbers = [0, whole, *alone, *(whole - one for one in alone), *random]
    return [frozenset(i for i in range(count) if number >> i & 1) for number in dict.fromkeys(numbers)]


class _Cut(torch.autograd.Function):
    """A function without a gradient: autograd passes None, and not zeros, to the node before it."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


class _NeedsQuestion:
    """One subject at one sample: its gradients where all inputs need one, and the questions about other sets.

    Attributes:
        reverse, twice, pushed: the paths vjp, vjp∘vjp and jvp, where all inputs take part. cotangents: of `reverse`.
        every: the numbers of all inputs.
        need: the gradients where all inputs need one; graph: the same with a graph (`_build_graph`).
    """

    def __init__(self, judge: Judge, sample: Sample) -> None:
        self.judge, self.problem = judge, Problem(judge.op, sample.args)
        if not self.problem.wrt:
            raise Unsupported(Code.NOT_DIFFERENTIABLE, f"{judge.op.name} declares no differentiable argument")
        self.f = self.problem.subject(judge.subject)
        with torch.no_grad():
            self.primal = tuple(judge.primal(sample))
        draw = functools.partial(judge.path, sample, primal=self.primal, engine="eager")
        self.reverse, self.twice, self.pushed = draw(("vjp",)), draw(("vjp", "vjp")), draw(("jvp",))
        self.cotangents = self.reverse.directions
        self.every = frozenset(range(len(self.problem.wrt)))
        leaves, outputs = self._call(self.every)
        self.need = gradients(judge, outputs, leaves, self.cotangents)
        self.graph = self._build_graph(self.every, through_cotangents=True)

    def first(self, needs: frozenset[int]) -> None:
        """Reverse mode where the inputs `needs` need a gradient."""
        leaves, outputs = self._call(needs)
        if not needs and any(y.requires_grad for y in outputs):
            raise self._violation(needs, "an output requires a gradient, and no input does", "forward")
        if needs and any(y.requires_grad for y in outputs):
            grads = _at_positions(
                needs, gradients(self.judge, outputs, _select(leaves, needs), self.cotangents), len(leaves)
            )
            self._require_same(self.reverse, self.need, grads, needs, "vjp")

    def cut_off(self) -> None:
        """Reverse mode where the op's node gets None for every cotangent: no function after it has a gradient."""
        leaves, outputs = self._call(self.every)
        tracked = [y for y in outputs if y.requires_grad]
        if not tracked:
            return
        what, cut = "vjp without cotangents", cast(Callable[[Tensor], Tensor], _Cut.apply)
        ends = [cut(y) for y in tracked]
        grads = self.judge.call(lambda: torch.autograd.grad(ends, leaves, ends, allow_unused=True), what=what)
        for i, grad in enumerate(grads):
            self.judge.tally.count(1)
            if grad is not None and bool((grad != 0).any()):
                raise self._violation(frozenset(), f"the gradient of {self._name(i)} is not zero", what)

    def of_some_outputs(self) -> None:
        """Reverse mode with cotangents of each output alone, and of all but each, against zeros for the others."""
        count = len(self.primal)
        leaves, outputs = self._call(self.every)
        numbers = frozenset(i for i, y in enumerate(outputs) if y.requires_grad)
        sets = {frozenset((i,)) for i in numbers} | {numbers - {i} for i in numbers}
        for some in sorted(sets - {numbers, frozenset()}, key=sorted):
            cotangents = [g if i in some else torch.zeros_like(g) for i, g in enumerate(self.cotangents)]
            need = gradients(self.judge, outputs, leaves, cotangents, retained=True)
            what = f"vjp with cotangents of {', '.join(f'out[{i}]' for i in sorted(some))} of {count} outputs"
            grads = gradients(
                self.judge, _select(outputs, some), leaves, _select(self.cotangents, some), what, retained=True
            )
            self._require_same(self.reverse.along(("vjp",), cotangents), need, grads, self.every, what)

    def beside_outputs(self) -> None:
        """One backward from outputs and first gradients, as of a penalty on gradients: two ways to every input.

        With zeros as cotangents of the gradients it must give the gradients of the outputs alone, and with zeros for
        the outputs the second derivatives.
        """
        count = len(self.problem.wrt)
        leaves, outputs = self._call(self.every)
        tracked = [(y, g) for y, g in zip(outputs, self.cotangents, strict=True) if y.requires_grad]
        if not tracked:
            return
        first = gradients(self.judge, outputs, leaves, self.cotangents, graph=True)
        directions = self.twice.directions[-count:]
        further = [(dx, v) for dx, v in zip(first, directions, strict=True) if dx is not None and dx.requires_grad]
        if not further:
            return
        what = "vjp with cotangents of the outputs, and zeros for their gradients"
        self._beside(self.reverse, leaves, tracked, further, what)
        path = self.twice.along(("vjp", "vjp"), (*self.cotangents, *directions))
        self._beside(path, leaves, further, tracked, "vjp∘vjp, with zeros for the outputs beside their gradients")

    def _beside(self, path: Path, leaves: Sequence[Tensor], pairs: Pairs, others: Pairs, what: str) -> None:
        """Violation unless a backward from further tensors as well, with zeros as cotangents, changes no gradient."""
        (targets, cotangents), (beside, _) = zip(*pairs, strict=True), zip(*others, strict=True)
        zeros = tuple(torch.zeros_like(t) for t in beside)
        need = gradients(self.judge, targets, leaves, cotangents, retained=True)
        nothing = gradients(self.judge, beside, leaves, zeros, retained=True)
        grads = gradients(self.judge, targets + beside, leaves, cotangents + zeros, what, retained=True)
        # Zero times a slope that is not finite is NaN. The formula has no such product, so nothing can be compared.
        if not any(grad is not None and bool((grad != 0).any()) for grad in nothing):
            self._require_same(path, need, grads, self.every, what)

    def in_a_batch(self) -> None:
        """Reverse mode of a batch of two cotangents (`is_grads_batched`), the ordinary one and zeros."""
        leaves, outputs = self._call(self.every)
        pairs = [(y, g) for y, g in zip(outputs, self.cotangents, strict=True) if y.requires_grad]
        if not pairs:
            return
        targets = [y for y, _ in pairs]
        batch = [torch.stack((g, torch.zeros_like(g))) for _, g in pairs]
        options = {"is_grads_batched": True, "allow_unused": True}
        what = "vjp of a batch of cotangents"
        grads = self.judge.call(lambda: torch.autograd.grad(targets, leaves, batch, **options), what=what)
        rows = [None if grad is None else grad[0] for grad in grads]
        self._require_same(self.reverse, self.need, rows, self.every, what)

    def accumulate(self, needs: frozenset[int]) -> None:
        """`backward` adds the gradient to `grad` and to nothing else: two calls give twice the gradient."""
        leaves, outputs = self._call(needs)
        for times in (1, 2):
            if times > 1:
                outputs = list(self.judge.call(self.f, *leaves, what="forward"))
            # Copies, because the gradient of a view shares memory with its cotangent, and autograd adds to it in place.
            tracked = [(y, g.clone()) for y, g in zip(outputs, self.cotangents, strict=True) if y.requires_grad]
            if not tracked:
                return
            self.judge.call(torch.autograd.backward, *zip(*tracked, strict=True), what="backward")
            for i, leaf in enumerate(leaves):
                if leaf.grad is not None and i not in needs:
                    raise self._violation(needs, f"{self._name(i)} got a gradient, and needs none", "backward")
            # The double of a number is exact unless it overflows, and so is its half unless it is the smallest.
            halves = [None if leaf.grad is None else leaf.grad / times for leaf in leaves]
            pairs = [(h * times, leaf.grad) for h, leaf in zip(halves, leaves, strict=True) if h is not None]
            if all(grad is None or torch.equal(double, grad) for double, grad in pairs):
                self._require_same(self.reverse, self.need, halves, needs, f"backward, {times} of 2 times")

    def by_func(self, needs: frozenset[int]) -> None:
        """`torch.func` of the arguments that need a gradient; the function closes over the others."""

        def some(*selection: Tensor) -> Any:
            leaves = dict(zip(sorted(needs), selection, strict=True))
            return self.f(*(leaves.get(i, x) for i, x in enumerate(self.problem.inputs)))

        places = _select(self.problem.inputs, needs)
        grads = self.judge.call(lambda: torch.func.vjp(some, *places)[1](self.cotangents), what="func.vjp")
        self._require_same(self.reverse, self.need, _at_positions(needs, grads, len(self.need)), needs, "func.vjp")
        if "jvp" in self.judge.op.promises.without:
            return
        pushed, need = self._push_along(needs)
        tangents = tuple(_select(pushed.directions, needs))
        moved = self.judge.call(lambda: torch.func.jvp(some, tuple(places), tangents)[1], what="func.jvp")
        self._require_same(pushed, need, moved, frozenset(range(len(moved))), "func.jvp")

    def forward(self, needs: frozenset[int]) -> None:
        """Forward mode with tangents of some inputs, against tangents of zero for the others."""
        path, need = self._push_along(needs)
        tangents = path.directions
        with forward_ad.dual_level():
            operands = [
                forward_ad.make_dual(x, t) if i in needs else x
                for i, (x, t) in enumerate(zip(self.problem.inputs, tangents, strict=True))
            ]
            outputs = self.judge.call(self.f, *operands, what="jvp")
            derivatives = [forward_ad.unpack_dual(y).tangent for y in outputs]
        self._require_same(
            path, need, derivatives, frozenset(range(len(derivatives))), f"jvp with tangents of {self._names(needs)}"
        )

    def _push_along(self, needs: frozenset[int]) -> tuple[Path, Optional]:
        """The path of forward mode with tangents of some inputs and zeros for the others, and its outputs."""
        tangents = [t if i in needs else torch.zeros_like(t) for i, t in enumerate(self.pushed.directions)]
        path = self.pushed.along(("jvp",), tangents)
        return path, self.judge.run(path, what="jvp")

    def second(self, needs: frozenset[int]) -> None:
        """Reverse mode of the gradients `needs`, where the cotangents need a gradient, too, and where they do not."""
        count = len(self.problem.wrt)
        directions = [v if i in needs else torch.zeros_like(v) for i, v in enumerate(self.twice.directions[-count:])]
        path = self.twice.along(("vjp", "vjp"), (*self.cotangents, *directions))
        need = self._differentiate_graph(*self.graph, needs, directions)
        for through_cotangents in (True, False):
            leaves, cotangents, grads = self._build_graph(needs, through_cotangents)
            derivatives = self._differentiate_graph(leaves, cotangents, grads, needs, directions)
            positions = needs | (
                frozenset(range(count, count + len(cotangents))) if through_cotangents else frozenset()
            )
            self._require_same(path, need, derivatives, positions, "vjp∘vjp")

    def _call(self, needs: frozenset[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Fresh inputs, some of which need a gradient, and the outputs of a call on them."""
        leaves = [t.detach().clone().requires_grad_(i in needs) for i, t in enumerate(self.problem.inputs)]
        outputs = list(self.judge.call(self.f, *leaves, what="forward"))
        for i, leaf in enumerate(leaves):
            if leaf.requires_grad is not (i in needs) or leaf.grad is not None or not leaf.is_leaf:
                raise self._violation(
                    needs, f"{self._name(i)} has another need of a gradient after the call", "forward"
                )
        return leaves, outputs

    def _build_graph(
        self, needs: frozenset[int], through_cotangents: bool
    ) -> tuple[list[Tensor], list[Tensor], Optional]:
        """Inputs, cotangents, and gradients with a graph; with `through_cotangents` the cotangents need a gradient."""
        leaves, outputs = self._call(needs)
        cotangents = [g.detach().clone().requires_grad_(through_cotangents) for g in self.cotangents]
        grads = gradients(self.judge, outputs, _select(leaves, needs), cotangents, graph=True)
        return leaves, cotangents, _at_positions(needs, grads, len(leaves))

    def _differentiate_graph(
        self, leaves: Sequence[Tensor], cotangents: Sequence[Tensor], grads: Optional,
        needs: frozenset[int], directions: Sequence[Tensor],
    ) -> Optional:  # fmt: skip
        """The second derivatives of a graph (`_build_graph`) in inputs and cotangents, None where there is none."""
        triples = enumerate(zip(grads, directions, strict=True))
        pairs = [(g, v) for i, (g, v) in triples if i in needs and g is not None]
        operands = [*leaves, *cotangents]
        moving = [x for x in operands if x.requires_grad]
        targets, along = [g for g, _ in pairs], [v for _, v in pairs]
        derivatives = iter(gradients(self.judge, targets, moving, along, "vjp∘vjp", retained=True))
        return [next(derivatives) if x.requires_grad else None for x in operands]

    def _require_same(
        self, path: Path, need: Optional, results: Optional, positions: frozenset[int], what: str
    ) -> None:
        """Violation unless the results at some positions have the dtypes and bits that they must have, None being zero.

        Where the bits differ, the formula along the path decides.
        """
        for i in sorted(positions):
            got, must = results[i], need[i]
            self.judge.tally.count(1)
            if got is None or must is None:
                rest = must if got is None else got
                if rest is not None and bool((rest != 0).any()):
                    self._require_zero(path, i, None if got is None else got.detach(), rest, positions, what)
            elif wrong := find_mismatch([got], [must], "dtype", names=[path.names()[i]]):
                raise self._violation(positions, wrong.text, what)
            elif not same_results(got.detach(), must.detach()):
                self._judge_one(path, i, got.detach(), positions, what)

    def _require_zero(
        self, path: Path, i: int, got: Tensor | None, rest: Tensor, positions: frozenset[int], what: str
    ) -> None:  # fmt: skip
        """Violation unless the formula allows a derivative to be missing, or there, where the other call differs.

        The formula decides because the derivative that is there (`rest`, of either call) may be NaN, where a direction
        of zero met an overflow.
        """
        try:
            self._judge_one(path, i, torch.zeros_like(rest) if got is None else got, positions, what)
        except Violation as violation:
            wrong = "missing, need it" if got is None else "there, need none"
            raise self._violation(positions, f"{path.names()[i]} is {wrong}", what) from violation

    def _judge_one(self, path: Path, i: int, got: Tensor, positions: frozenset[int], what: str) -> None:
        expected = path.expected(f"{what} where {self._names(positions)} need a gradient")
        self.judge.output(expected, i, got, self.judge.read(path.expected())[i])

    def _violation(self, needs: frozenset[int], wrong: str, what: str) -> Any:
        return self.judge.violation(
            Code.VALUE, wrong, [f"of the inputs, these need a gradient: {self._names(needs)}"], where=what
        )

    def _name(self, number: int) -> str:
        return self.judge.op.label(self.problem.wrt[number])

    def _names(self, needs: frozenset[int]) -> str:
        return ", ".join(self._name(i) for i in sorted(needs) if i < len(self.problem.wrt)) or "none"


def _select(tensors: Sequence[Tensor], needs: frozenset[int]) -> list[Tensor]:
    return [tensors[i] for i in sorted(needs)]


def _at_positions(needs: frozenset[int], results: Sequence[Any], count: int) -> list[Any]:
    """The results, which are of the inputs `needs` in order, by position; None in the places of the other inputs."""
    by_position = dict(zip(sorted(needs), results, strict=True))
    return [by_position.get(i) for i in range(count)]
