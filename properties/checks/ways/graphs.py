"""Graphs of an op: several alive at once, differentiated in any order, and more than once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch.autograd.graph import saved_tensors_hooks

from ....oracles.judge.judge import Judge
from ....oracles.op.bits import same_results
from ....oracles.op.declaration import Sample, Tensor, is_float
from ....oracles.op.paths import Path
from ....oracles.verdicts.violation import Code, Violation
from ..agreement import differentiate, require_equal, reverse_path

#: Words of the error with which torch refuses to go through a graph whose tensors were freed.
FREED = ("second time", "already been freed")


@dataclass(frozen=True)
class _Graph:
    """One call that can be differentiated; `path` is that of reverse mode at its arguments."""

    path: Path
    leaves: Sequence[Tensor]
    outputs: Sequence[Tensor]

    def gradients(self, judge: Judge, what: str, *, retained: bool = False) -> list[Tensor]:
        """The gradients of the leaves, zeros where there is none; a graph that is retained can be used again."""
        return differentiate(judge, self.outputs, self.leaves, self.path.directions, what, retained=retained)


def check_graphs(judge: Judge, sample: Sample) -> None:
    """Judge gradients of several graphs alive at once, in another order, and of one graph several times."""
    parts = [sample, *(sample.with_args(_of_slice(sample, args)) for args in sample.slices[:2])]
    first = _call_in_graph(judge, sample)
    if not any(y.requires_grad for y in first.outputs):
        return
    need = [_call_in_graph(judge, part).gradients(judge, "vjp") for part in parts]
    alive = [_call_in_graph(judge, part) for part in parts]
    for i in (*range(1, len(parts)), 0):
        what = f"gradients of call {i + 1} of {len(parts)} whose graphs are alive"
        require_equal(judge, alive[i].path, alive[i].gradients(judge, what), need[i], what)
    for time in ("first", "second", "third"):
        what = f"{time} backward over one graph"
        require_equal(judge, first.path, first.gradients(judge, what, retained=True), need[0], what)
    _judge_freed_graph(judge, sample, need[0])


def _judge_freed_graph(judge: Judge, sample: Sample, need: Sequence[Tensor]) -> None:
    """Judge a second backward over a graph that was not retained: an error if it had saved tensors, else equal bits."""
    used = 0

    def unpack(t: Tensor) -> Tensor:
        nonlocal used
        used += 1
        return t

    with saved_tensors_hooks(lambda t: t, unpack):
        graph = _call_in_graph(judge, sample)
    what = "second backward over a graph that was not kept"
    graph.gradients(judge, "backward")
    freed = used > 0
    try:
        again = graph.gradients(judge, what)
    except Violation as violation:
        err = violation.__cause__
        if not isinstance(err, RuntimeError) or not any(words in str(err) for words in FREED):
            raise
        judge.tally.count(1)
        return
    if freed and not all(map(same_results, again, need)):
        wrong = "gives other gradients, need torch's error that it was freed"
        raise judge.violation(Code.NOT_RAISED, wrong, where=what)
    require_equal(judge, graph.path, again, need, what)


def _call_in_graph(judge: Judge, sample: Sample) -> _Graph:
    path = reverse_path(judge, sample)
    leaves = [t.detach().clone().requires_grad_() for t in path.problem.inputs]
    return _Graph(path, leaves, judge.call(path.problem.subject(judge.subject), *leaves, what="forward"))


def _of_slice(sample: Sample, args: Sequence[Any]) -> tuple[Any, ...]:
    """The sample's arguments with the floating tensors of a slice."""
    return tuple(b if is_float(a) and is_float(b) else a for a, b in zip(sample.args, args, strict=True))
