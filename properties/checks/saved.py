"""SAVE: tensors that a call keeps for backward are saved where autograd sees them.

Autograd knows the version of a saved tensor, so a write to it before backward is an error, or does not matter. It knows
nothing of a tensor that is hidden on a context: backward would use the new values, double backward would lose
derivatives, and the graph would keep itself alive.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils import _pytree as pytree

from ...oracles.judge.judge import Judge
from ...oracles.op.bits import same_results
from ...oracles.op.declaration import Sample, Tensor, dtype_name
from ...oracles.op.paths import Problem
from ...oracles.verdicts.violation import Code, Unsupported, Violation
from ..collector import set_aside
from .gradients import gradients

_REFUSALS = ("modified by an inplace operation", "modified inplace")


def check_saved_tensors(judge: Judge, sample: Sample) -> None:
    """SAVE: no tensor is an attribute of a context, and writes between forward and backward are noticed."""
    problem = Problem(judge.op, sample.args)
    if not problem.wrt:
        raise Unsupported(Code.NOT_DIFFERENTIABLE, f"{judge.op.name} declares no differentiable argument")
    leaves, outputs = _call_afresh(judge, problem)
    _require_nothing_hidden(judge, outputs)
    _require_nothing_beside_graph(judge, problem)
    tracked = [y for y in outputs if y.requires_grad]
    if not tracked:
        return
    cotangents = judge.path(sample, ("vjp",), tracked).directions
    need = gradients(judge, tracked, leaves, cotangents)
    # Each write gets a forward pass of its own, because a write makes the graph useless for the next one.
    for which in range(len(leaves) + len(outputs)):
        _write_between(judge, problem, which, cotangents, need)


def _call_afresh(judge: Judge, problem: Problem) -> tuple[list[Tensor], list[Tensor]]:
    """Fresh copies of the inputs, and the outputs of a call on them."""
    leaves = [t.detach().clone().requires_grad_() for t in problem.inputs]
    return leaves, list(judge.call(problem.subject(judge.subject), *leaves, what="forward"))


def _write_between(
    judge: Judge, problem: Problem, which: int, cotangents: Sequence[Tensor], need: Sequence[Any]
) -> None:
    """Write an input or an output after forward: backward must refuse, or give what it gave without the write.

    `which` counts the inputs and then the outputs; `need` has the gradients without the write.
    """
    leaves, outputs = _call_afresh(judge, problem)
    tracked = [y for y in outputs if y.requires_grad]
    names = [judge.op.label(i) for i in problem.wrt]
    name = names[which] if which < len(leaves) else f"output {which - len(leaves)}"
    with torch.no_grad():
        target = [*leaves, *outputs][which]
        try:
            target.add_(1)
        except RuntimeError:  # The target is a view that autograd refuses to write, so nothing can go wrong here.
            return
    try:
        got = gradients(judge, tracked, leaves, cotangents)
    except Violation as violation:
        # `Judge.call` reports whatever a subject raised as a violation, so the refusal of autograd is found as its
        # cause.
        err = violation.__cause__
        if not isinstance(err, RuntimeError) or not any(phrase in str(err) for phrase in _REFUSALS):
            raise
        judge.tally.count(1)
        return
    for a, b in zip(got, need, strict=True):
        if (a is None) != (b is None) or (a is not None and not same_results(a, b)):
            when = f"when {name} is written between forward and backward"
            raise judge.violation(Code.MUTATED, f"gradients change without an error {when}", path="vjp")
    judge.tally.count(1)


def _require_nothing_hidden(judge: Judge, outputs: Sequence[Tensor]) -> None:
    for node in _nodes(outputs):
        # Only nodes of custom functions written in Python have a context whose attributes could hide a tensor. Nodes
        # of torch's own operators keep their tensors where autograd sees them.
        if not isinstance(node, torch.autograd.function.BackwardCFunction):
            continue
        for name, value in vars(node).items():
            if any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)):
                lines = ["save_for_backward knows its version, frees it after backward, and keeps its derivatives"]
                wrong = f"keeps a tensor as ctx.{name}, need save_for_backward"
                raise judge.violation(Code.MEMORY, wrong, lines, path="forward")
        judge.tally.count(1)


def _require_nothing_beside_graph(judge: Judge, problem: Problem) -> None:
    """Violation where a tensor that the call made lives on, although neither the graph nor the caller holds it.

    Hooks make the graph hold no tensor. A tensor that lives on all the same is held by a closure, a module, a class, or
    another object that autograd does not know. Tensors of earlier calls do not count.
    """
    leaves = [t.detach().clone().requires_grad_() for t in problem.inputs]
    f = problem.subject(judge.subject)
    # Objects that exist by now are frozen, so that all objects that the collector lists later were made by the call.
    with set_aside():
        with saved_tensors_hooks(lambda t: None, lambda nothing: nothing):
            outputs = judge.call(f, *leaves, what="forward")
        gc.collect()
        living = [t for t in gc.get_objects() if isinstance(t, torch.Tensor)]
    addresses = {t.untyped_storage().data_ptr() for t in (*leaves, *outputs, *problem.passive)}
    hidden = [t for t in living if t.numel() and t.untyped_storage().data_ptr() not in addresses]
    if hidden:
        lines = [f"shape={tuple(t.shape)}, dtype={dtype_name(t.dtype)}" for t in hidden]
        raise judge.violation(Code.MEMORY, "keeps a tensor that is neither an output nor saved on the graph", lines)
    judge.tally.count(1)


def _nodes(outputs: Sequence[Tensor]) -> Iterator[Any]:
    nodes: set[Any] = set()
    ahead: list[Any] = [y.grad_fn for y in outputs]
    while ahead:
        node = ahead.pop()
        if node is None or node in nodes:
            continue
        nodes.add(node)
        yield node
        ahead += [parent for parent, _ in node.next_functions]
