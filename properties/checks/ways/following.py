"""Calls that somebody follows: under a dispatch mode, and with operands whose type overrides operators.

What this is for: a call that goes straight to a kernel gives the right values, and passes over what the type of an
operand says is to be done instead; what an operator of torch's does about that, torch sees to. And a call under a mode
takes the way through torch's dispatcher, which plain calls leave out: it must give what they give.

What is hard here: a function may call several operators, or none, and hand each of them other tensors than it got. So a
dispatch mode tells first which operators a plain call leads to, and which operands it hands them as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import OWN, Sample, Tensor, is_float
from ....oracles.verdicts.verdict import Code
from ..agreement import require_same
from ..fake import TORCHS


class _Handed(TorchDispatchMode):
    """Notes operators that are not torch's, with the tensors that each is handed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen: list[tuple[Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace not in TORCHS:
            self.seen.append((func, tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


class _Overriding(Tensor):
    """A tensor that notes what is called with it."""

    seen: list[Any]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, _Overriding) and "seen" in vars(leaf):
                leaf.seen.append(func)
        return super().__torch_function__(func, types, tuple(args), dict(kwargs or {}))  # type: ignore[no-untyped-call]


def under_a_mode(judge: Judge, sample: Sample) -> None:
    """Tangents and gradients under a dispatch mode that changes nothing, bit for bit; asked of ours."""
    if judge.subject_name != OWN:
        return
    primal = judge.primal(sample)
    for step in ("jvp", "vjp"):
        path, what = judge.path(sample, (step,), primal, "eager"), f"{step} under a dispatch mode"
        need = judge.run(path)
        with _Handed():
            found = judge.run(path, what=what)
        require_same(judge, found, need, what)


def subclasses(judge: Judge, sample: Sample) -> None:
    """Each floating operand in turn is of a type that overrides the operators that it is handed to; asked of ours."""
    if judge.subject_name != OWN:
        return
    with torch.no_grad(), _Handed() as mode:
        judge.call(judge.subject, *sample.args, what="under a dispatch mode")
    for i, operand in enumerate(sample.args):
        given = {func for func, leaves in mode.seen if any(leaf is operand for leaf in leaves)}
        if not is_float(operand) or not given:
            continue
        overriding = operand.detach().as_subclass(_Overriding)
        overriding.seen = []
        args = (*sample.args[:i], overriding, *sample.args[i + 1 :])
        what = f"{judge.op.label(i)} of a subclass of Tensor"
        with torch.no_grad():
            judge.call(judge.subject, *args, what=what)
        passed = sorted(str(func) for func in given.difference(overriding.seen))
        if passed:
            raise judge.broken(Code.ATTRIBUTE, f"its type was not asked for {', '.join(passed)}", where=what)
        judge.tally.count(len(given))
