"""Calls that a mode or a type observes: under a dispatch mode, and with operands whose type overrides operators.

What this is for: an op that calls its kernel directly has the right values, but ignores an override in the type of an
operand. Operators of torch respect overrides by themselves. And a call under a mode goes through torch's dispatcher,
which plain calls bypass; its results must be those of the plain call.

What is hard here: a function may call several operators, or none, and pass other tensors to them than its own operands.
So a dispatch mode first records which operators a plain call reaches, and which operands they get unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import OWN, Sample, Tensor, is_float
from ....oracles.op.transforms import required
from ....oracles.verdicts.verdict import Code
from ..agreement import require_promised
from ..fake import TORCHS


class _CallRecorder(TorchDispatchMode):
    """Records the calls of operators that are not torch's: (operator, its arguments)."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[tuple[Any, list[Any]]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace not in TORCHS:
            self.calls.append((func, tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))


class _OverridingTensor(Tensor):
    """A tensor that records the functions that are called with it."""

    functions: list[Any]

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            if isinstance(leaf, _OverridingTensor) and "functions" in vars(leaf):
                leaf.functions.append(func)
        return super().__torch_function__(func, types, tuple(args), dict(kwargs or {}))  # type: ignore[no-untyped-call]


def check_under_mode(judge: Judge, sample: Sample) -> None:
    """Violation unless the production op's derivatives under a dispatch mode have the bits of those without."""
    if judge.subject_name != OWN:
        return
    primal = judge.primal(sample)
    for step in ("jvp", "vjp"):
        if required((step,)) & judge.op.promises.without - {"func"}:
            continue
        path, what = judge.path(sample, (step,), primal, "eager"), f"{step} under a dispatch mode"
        need = judge.run(path)
        with _CallRecorder():
            derivatives = judge.run(path, what=what)
        require_promised(judge, path, derivatives, need, what)


def check_subclasses(judge: Judge, sample: Sample) -> None:
    """Violation where the production op passes by an operand's type that overrides the operators it reaches."""
    if judge.subject_name != OWN:
        return
    with torch.no_grad(), _CallRecorder() as mode:
        judge.call(judge.subject, *sample.args, what="under a dispatch mode")
    for i, operand in enumerate(sample.args):
        operators = {func for func, leaves in mode.calls if any(leaf is operand for leaf in leaves)}
        if not is_float(operand) or not operators:
            continue
        overriding = operand.detach().as_subclass(_OverridingTensor)
        overriding.functions = []
        args = (*sample.args[:i], overriding, *sample.args[i + 1 :])
        what = f"{judge.op.label(i)} of a subclass of Tensor"
        with torch.no_grad():
            judge.call(judge.subject, *args, what=what)
        passed = sorted(str(func) for func in operators.difference(overriding.functions))
        if passed:
            raise judge.violation(Code.ATTRIBUTE, f"its type was not asked for {', '.join(passed)}", where=what)
        judge.tally.count(len(operators))
