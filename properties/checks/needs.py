"""NEEDS: every gradient is the same whichever others are asked for, and what needs none gets none.

What this is for: a backward that skips what nobody needs has a branch for every set of needs, and a test that always
asks for all gradients takes one of them. A gradient may land in its neighbour's place, be zero because another one was
not wanted, or be lost in the second derivative alone. Of several outputs a user may differentiate some.

What is hard here: which bits are right. The gradients where all inputs need one are held against the formula elsewhere;
where a set of needs gives other bits, because it is served by another kernel, say, the formula decides: along the same
path, with a direction of zero for what takes no part.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch.autograd import forward_ad

from ...oracles.judge.judge import Judge, gradients
from ...oracles.op.bits import same_results
from ...oracles.op.declaration import Sample, Stream, Tensor
from ...oracles.op.paths import Path, Problem
from ...oracles.verdicts.verdict import Code
from ...oracles.verdicts.violation import Unsupported, Violation

#: Of so many inputs every set is asked for; of more, all, none, each alone, all but each, and some that are drawn.
EVERY = 4
DRAWN = 8

Optional = Sequence[Tensor | None]
#: Tensors with their cotangents.
Pairs = Sequence[tuple[Tensor, Tensor]]


def needed(judge: Judge, sample: Sample) -> None:
    """NEEDS: in reverse mode of first and second order, in forward mode, in `torch.func`; and for sets of outputs."""
    asked, without = _NeedsQuestion(judge, sample), judge.op.promises.without
    asked.cut_off()
    asked.of_some_outputs()
    if "double" not in without:
        asked.beside_outputs()
    if "vmap" not in without:
        asked.in_a_batch()
    for needs in _choose_sets(len(asked.problem.wrt), sample):
        asked.first(needs)
        if needs:
            asked.accumulated(needs)
            if "func" not in without:
                asked.by_func(needs)
            if "double" not in without:
                asked.second(needs)
            if "jvp" not in without:
                asked.forward(needs)


def _choose_sets(count: int, sample: Sample) -> list[frozenset[int]]:
    """Sets of so many inputs: all of them, or a choice that every two inputs tell apart."""
    whole = (1 << count) - 1
    numbers: Sequence[int] = range(whole + 1)
    if count > EVERY:
        rng = sample.generator(Stream.NEEDS)
        alone = [1 << i for i in range(count)]
        drawn = [int.from_bytes(rng.bytes(count // 8 + 1), "big") & whole for _ in range(DRAWN)]
        numbers = [0, whole, *alone, *(whole - one for one in alone), *drawn]
    return [frozenset(i for i in range(count) if number >> i & 1) for number in dict.fromkeys(numbers)]


class _Cut(torch.autograd.Function):
    """A function without a gradient: autograd gives the node before it None, and not zeros."""

    @staticmethod
    def forward(ctx: Any, y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


class _NeedsQuestion:
    """One subject at one sample: its gradients where all inputs need one, and the questions about other sets."""

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
        every = frozenset(range(len(self.problem.wrt)))
        leaves, outputs = self._called(every)
        self.need = gradients(judge, outputs, leaves, self.cotangents)
        self.graph = self._graph(every, directions=True)

    # ------------------------------------------------------------------------------------------------ the questions

    def first(self, needs: frozenset[int]) -> None:
        """Reverse mode."""
        leaves, outputs = self._called(needs)
        if not needs and any(y.requires_grad for y in outputs):
            raise self._broken(needs, "an output requires a gradient, and no input does", "forward")
        if needs and any(y.requires_grad for y in outputs):
            found = _of(needs, gradients(self.judge, outputs, _among(leaves, needs), self.cotangents), len(leaves))
            self._same(self.reverse, self.need, found, needs, "vjp")

    def cut_off(self) -> None:
        """Where what comes after the op has no gradient of its outputs, the op's node gets None for each."""
        leaves, outputs = self._called(frozenset(range(len(self.problem.wrt))))
        tracked = [y for y in outputs if y.requires_grad]
        if not tracked:
            return
        what, cut = "vjp without cotangents", cast(Callable[[Tensor], Tensor], _Cut.apply)
        ends = [cut(y) for y in tracked]
        found = self.judge.call(lambda: torch.autograd.grad(ends, leaves, ends, allow_unused=True), what=what)
        for i, grad in enumerate(found):
            self.judge.tally.count(1)
            if grad is not None and bool((grad != 0).any()):
                raise self._broken(frozenset(), f"the gradient of {self._name(i)} is not zero", what)

    def of_some_outputs(self) -> None:
        """Reverse mode with cotangents of each output alone, and of all but each, against zeros for the others."""
        count = len(self.primal)
        every = frozenset(range(len(self.problem.wrt)))
        leaves, outputs = self._called(every)
        numbers = frozenset(i for i, y in enumerate(outputs) if y.requires_grad)
        sets = {frozenset((i,)) for i in numbers} | {numbers - {i} for i in numbers}
        for some in sorted(sets - {numbers, frozenset()}, key=sorted):
            given = [g if i in some else torch.zeros_like(g) for i, g in enumerate(self.cotangents)]
            need = gradients(self.judge, outputs, leaves, given, retained=True)
            what = f"vjp with cotangents of {', '.join(f'out[{i}]' for i in sorted(some))} of {count} outputs"
            found = gradients(
                self.judge, _among(outputs, some), leaves, _among(self.cotangents, some), what, retained=True
            )
            self._same(self.reverse.along(("vjp",), given), need, found, every, what)

    def beside_outputs(self) -> None:
        """Outputs and first gradients in one backward, as a penalty on gradients has them: two ways to every input.

        With a cotangent of zero for the gradients it gives those of the outputs alone, and with one of zero for the
        outputs the gradients of gradients.
        """
        count = len(self.problem.wrt)
        leaves, outputs = self._called(frozenset(range(count)))
        tracked = [(y, g) for y, g in zip(outputs, self.cotangents, strict=True) if y.requires_grad]
        if not tracked:
            return
        first = gradients(self.judge, outputs, leaves, self.cotangents, graph=True)
        given = self.twice.directions[-count:]
        further = [(dx, v) for dx, v in zip(first, given, strict=True) if dx is not None and dx.requires_grad]
        if not further:
            return
        what = "vjp with cotangents of the outputs, and zeros for their gradients"
        self._beside(self.reverse, leaves, tracked, further, what)
        path = self.twice.along(("vjp", "vjp"), (*self.cotangents, *given))
        self._beside(path, leaves, further, tracked, "vjp∘vjp, with zeros for the outputs beside their gradients")

    def _beside(self, path: Path, leaves: Sequence[Tensor], asked: Pairs, others: Pairs, what: str) -> None:
        """Violation unless a backward from others, with zeros as cotangents, changes nothing.

        Args:
            path: whose derivatives are asked. leaves: the inputs. asked: what is derived, with its cotangents.
            others: further tensors; of their cotangents only the shapes count. what: what messages call this.
        """
        (targets, cotangents), (beside, _) = zip(*asked, strict=True), zip(*others, strict=True)
        zeros = tuple(torch.zeros_like(t) for t in beside)
        need = gradients(self.judge, targets, leaves, cotangents, retained=True)
        nothing = gradients(self.judge, beside, leaves, zeros, retained=True)
        found = gradients(self.judge, targets + beside, leaves, cotangents + zeros, what, retained=True)
        # Zero times a slope that is not finite is NaN, and the formula knows of no second way.
        if not any(grad is not None and bool((grad != 0).any()) for grad in nothing):
            self._same(path, need, found, frozenset(range(len(leaves))), what)

    def in_a_batch(self) -> None:
        """Two cotangents at once, `is_grads_batched`: the first as any, the second zero."""
        every = frozenset(range(len(self.problem.wrt)))
        leaves, outputs = self._called(every)
        pairs = [(y, g) for y, g in zip(outputs, self.cotangents, strict=True) if y.requires_grad]
        if not pairs:
            return
        targets = [y for y, _ in pairs]
        batch = [torch.stack((g, torch.zeros_like(g))) for _, g in pairs]
        options = {"is_grads_batched": True, "allow_unused": True}
        what = "vjp of a batch of cotangents"
        found = self.judge.call(lambda: torch.autograd.grad(targets, leaves, batch, **options), what=what)
        rows = [None if grad is None else grad[0] for grad in found]
        self._same(self.reverse, self.need, rows, every, what)

    def accumulated(self, needs: frozenset[int]) -> None:
        """`backward` adds to what is in `grad`, and to nothing else: twice the gradient after two calls."""
        leaves, outputs = self._called(needs)
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
                    raise self._broken(needs, f"{self._name(i)} got a gradient, and needs none", "backward")
            # The double of a number is exact unless it overflows, and so is its half unless it is the smallest.
            halves = [None if leaf.grad is None else leaf.grad / times for leaf in leaves]
            pairs = [(h * times, leaf.grad) for h, leaf in zip(halves, leaves, strict=True) if h is not None]
            if all(grad is None or torch.equal(double, grad) for double, grad in pairs):
                self._same(self.reverse, self.need, halves, needs, f"backward, {times} of 2 times")

    def by_func(self, needs: frozenset[int]) -> None:
        """`torch.func` on the arguments that need a gradient, the others closed over."""

        def some(*chosen: Tensor) -> Any:
            given = dict(zip(sorted(needs), chosen, strict=True))
            return self.f(*(given.get(i, x) for i, x in enumerate(self.problem.inputs)))

        chosen = _among(self.problem.inputs, needs)
        found = self.judge.call(lambda: torch.func.vjp(some, *chosen)[1](self.cotangents), what="func.vjp")
        self._same(self.reverse, self.need, _of(needs, found, len(self.need)), needs, "func.vjp")
        if "jvp" in self.judge.op.promises.without:
            return
        pushed, need = self._pushed_along(needs)
        tangents = tuple(_among(pushed.directions, needs))
        moved = self.judge.call(lambda: torch.func.jvp(some, tuple(chosen), tangents)[1], what="func.jvp")
        self._same(pushed, need, moved, frozenset(range(len(moved))), "func.jvp")

    def forward(self, needs: frozenset[int]) -> None:
        """Forward mode with tangents of some inputs, against tangents of zero for the others."""
        path, need = self._pushed_along(needs)
        tangents = path.directions
        with forward_ad.dual_level():
            operands = [
                forward_ad.make_dual(x, t) if i in needs else x
                for i, (x, t) in enumerate(zip(self.problem.inputs, tangents, strict=True))
            ]
            outputs = self.judge.call(self.f, *operands, what="jvp")
            found = [forward_ad.unpack_dual(y).tangent for y in outputs]
        self._same(path, need, found, frozenset(range(len(found))), f"jvp with tangents of {self._names(needs)}")

    def _pushed_along(self, needs: frozenset[int]) -> tuple[Path, Optional]:
        """Forward mode with tangents of some inputs and zeros for the others, and what it gives."""
        tangents = [t if i in needs else torch.zeros_like(t) for i, t in enumerate(self.pushed.directions)]
        path = self.pushed.along(("jvp",), tangents)
        return path, self.judge.run(path, what="jvp")

    def second(self, needs: frozenset[int]) -> None:
        """Reverse mode of the gradients that are needed, with and without cotangents that need one, too."""
        count = len(self.problem.wrt)
        given = [v if i in needs else torch.zeros_like(v) for i, v in enumerate(self.twice.directions[-count:])]
        path = self.twice.along(("vjp", "vjp"), (*self.cotangents, *given))
        need = self._derived(*self.graph, needs, given)
        for directions in (True, False):
            leaves, cotangents, grads = self._graph(needs, directions)
            found = self._derived(leaves, cotangents, grads, needs, given)
            wanted = needs | (frozenset(range(count, count + len(cotangents))) if directions else frozenset())
            self._same(path, need, found, wanted, "vjp∘vjp")

    # --------------------------------------------------------------------------------------------------- the calls

    def _called(self, needs: frozenset[int]) -> tuple[list[Tensor], list[Tensor]]:
        """Fresh inputs, some of which need a gradient, and the outputs of a call on them."""
        leaves = [t.detach().clone().requires_grad_(i in needs) for i, t in enumerate(self.problem.inputs)]
        outputs = list(self.judge.call(self.f, *leaves, what="forward"))
        for i, leaf in enumerate(leaves):
            if leaf.requires_grad is not (i in needs) or leaf.grad is not None or not leaf.is_leaf:
                raise self._broken(needs, f"{self._name(i)} has another need of a gradient after the call", "forward")
        return leaves, outputs

    def _graph(self, needs: frozenset[int], directions: bool) -> tuple[list[Tensor], list[Tensor], Optional]:
        """Inputs, cotangents, and gradients that can be differentiated; cotangents need one with `directions`."""
        leaves, outputs = self._called(needs)
        cotangents = [g.detach().clone().requires_grad_(directions) for g in self.cotangents]
        pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
        if not pairs:
            return leaves, cotangents, [None] * len(leaves)
        targets, given = zip(*pairs, strict=True)
        chosen = _among(leaves, needs)
        found = self.judge.call(
            lambda: torch.autograd.grad(targets, chosen, given, create_graph=True, allow_unused=True), what="vjp"
        )
        return leaves, cotangents, _of(needs, found, len(leaves))

    def _derived(
        self, leaves: Sequence[Tensor], cotangents: Sequence[Tensor], grads: Optional,
        needs: frozenset[int], given: Sequence[Tensor],
    ) -> Optional:  # fmt: skip
        """The second derivatives in inputs and cotangents; None where there is none.

        Args:
            leaves, cotangents, grads: as of `_graph`. needs: of which gradients. given: a cotangent of each gradient.
        """
        pairs = [(grads[i], given[i]) for i in sorted(needs)]
        tracked = [(g, v) for g, v in pairs if g is not None and g.requires_grad]
        operands = [*leaves, *cotangents]
        chosen = [x for x in operands if x.requires_grad]
        if not tracked or not chosen:
            return [None] * len(operands)
        targets, directions = zip(*tracked, strict=True)
        options = {"retain_graph": True, "allow_unused": True}
        found = iter(
            self.judge.call(lambda: torch.autograd.grad(targets, chosen, directions, **options), what="vjp∘vjp")
        )
        return [next(found) if x.requires_grad else None for x in operands]

    # ---------------------------------------------------------------------------------------------- the comparison

    def _same(self, path: Path, need: Optional, found: Optional, wanted: frozenset[int], what: str) -> None:
        """Violation unless all that is wanted has the dtype and bits that it must have, or lies in its accept set.

        Args:
            path: by which the formula decides where the bits are others. need: what it must be; None is zero.
            found: what it is. wanted: which of them. what: what messages call this.
        """
        for i in sorted(wanted):
            got, must = found[i], need[i]
            self.judge.tally.count(1)
            if got is None or must is None:
                rest = must if got is None else got
                if rest is not None and bool((rest != 0).any()):
                    self._zero(path, i, None if got is None else got.detach(), rest, wanted, what)
            elif got.dtype is not must.dtype:
                raise self._broken(wanted, f"{path.names()[i]} got dtype={got.dtype}, need {must.dtype}", what)
            elif not same_results(got.detach(), must.detach()):
                self._judged(path, i, got.detach(), wanted, what)

    def _zero(
        self, path: Path, i: int, got: Tensor | None, rest: Tensor, wanted: frozenset[int], what: str
    ) -> None:  # fmt: skip
        """Violation unless a derivative that is missing may be zero, and one that should be missing may be what it is.

        The other one may be NaN, where a direction of zero met an overflow; so the formula decides.

        Args:
            path, wanted, what: as for `_same`. i: which of the outputs. got: what there is of it, None for nothing.
            rest: what there was the other time.
        """
        try:
            self._judged(path, i, torch.zeros_like(rest) if got is None else got, wanted, what)
        except Violation as violation:
            wrong = "missing, need it" if got is None else "there, need none"
            raise self._broken(wanted, f"{path.names()[i]} is {wrong}", what) from violation

    def _judged(self, path: Path, i: int, got: Tensor, wanted: frozenset[int], what: str) -> None:
        expected = path.expected(f"{what} where {self._names(wanted)} need a gradient")
        self.judge.output(expected, i, got, self._read(path)[i])

    def _read(self, path: Path) -> Any:
        return self.judge.read(path.expected())

    def _broken(self, needs: frozenset[int], wrong: str, what: str) -> Any:
        return self.judge.broken(
            Code.VALUE, wrong, [f"of the inputs, these need a gradient: {self._names(needs)}"], where=what
        )

    def _name(self, number: int) -> str:
        return self.judge.op.label(self.problem.wrt[number])

    def _names(self, needs: frozenset[int]) -> str:
        return ", ".join(self._name(i) for i in sorted(needs) if i < len(self.problem.wrt)) or "none"


def _among(tensors: Sequence[Tensor], needs: frozenset[int]) -> list[Tensor]:
    return [tensors[i] for i in sorted(needs)]


def _of(needs: frozenset[int], found: Sequence[Any], count: int) -> list[Any]:
    """What was found for the needed ones, None in the places of the others."""
    given = dict(zip(sorted(needs), found, strict=True))
    return [given.get(i) for i in range(count)]
