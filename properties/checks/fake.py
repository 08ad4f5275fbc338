"""FAKE: the attributes that meta and fake tensors promise are those of eager tensors, under vmap, too."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import OWN, Sample, Tensor, flat_outputs
from ...oracles.op.paths import Problem, in_arguments
from ...oracles.op.script import ScriptMaker
from ...oracles.process.logs import FAKE_TENSORS, silent
from ...oracles.programs import particular as programs
from ...oracles.verdicts.violation import Code, Violation
from .gradients import gradients
from .layout import transposed

#: Slices of a batch: a number that few small tensors have as an extent, so that swapped axes are seen.
SLICES = 7
#: Namespaces of operators whose shape rules are torch's own.
TORCHS = frozenset(("aten", "prim", "prims", "profiler", "c10d", "c10d_functional", "_c10d_functional"))


def check_fakes(judge: Judge, sample: Sample) -> None:
    """FAKE: shape, dtype, stride and device of forward and reverse mode outputs; under vmap of all tensors as well."""
    eager = _describe(_outputs_and_gradients(judge, sample.args, "eager"))
    _compare_fakes(judge, sample.args, eager, "fake tensors", make_script=_defer_script(judge, sample, "fake tensors"))
    # Meta tensors are on a device of that name by definition, so only the device of fake tensors is compared.
    meta = [a.to("meta") if isinstance(a, Tensor) else a for a in sample.args]
    promised = _without_devices(_describe(_outputs_and_gradients(judge, meta, "meta tensors")))
    _compare(judge, promised, _without_devices(eager), "meta tensors", _defer_script(judge, sample, "meta tensors"))
    if judge.subject_name == OWN:
        args = [transposed(a) if isinstance(a, Tensor) else a for a in sample.args]
        with _Rules(judge):
            _outputs_and_gradients(judge, args, "eager, transposed, watched")
        # Tensors in another memory order show a shape rule that copies the strides of an operand.
        if judge.op.promises.memory.contiguous:
            eager = _describe(_outputs_and_gradients(judge, args, "eager, transposed"))
            _compare_fakes(judge, args, eager, "fake tensors, transposed")
    if "vmap" not in judge.op.promises.without:
        _judge_batches(judge, sample)


def _without_devices(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "device"} for row in rows]


def _compare_fakes(
    judge: Judge, args: Sequence[Any], eager: list[dict[str, Any]], what: str, *,
    batched: bool = False, make_script: ScriptMaker | None = None,
) -> None:  # fmt: skip
    """Violation unless fake tensors in place of the arguments promise what eager ones give."""
    with silent(FAKE_TENSORS), FakeTensorMode() as mode:
        fake = [mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args]
        _compare(judge, _describe(_outputs_and_gradients(judge, fake, what, batched)), eager, what, make_script)


class _Rules(TorchDispatchMode):
    """Compares every operator that is called with its shape rule: a compiler relies on those of inner ones, too."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._judge = judge

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {}))
        if func.namespace not in TORCHS and outputs is not None:
            mode, plain = FakeTensorMode(), tree_map_only(torch.Tensor, torch.Tensor.detach, (args, kwargs or {}))
            fakes = tree_map_only(torch.Tensor, mode.from_tensor, plain)
            with silent(FAKE_TENSORS), mode:
                promised = func(*fakes[0], **fakes[1])
            what = f"the shape rule of {func.namespace}::{func.__name__.partition('.')[0]}"
            _compare(self._judge, _rows(promised), _rows(outputs), what)
        return outputs


def _rows(outputs: Any) -> list[dict[str, Any]]:
    """The compared attributes of an operator's outputs, some of which may be None."""
    each = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
    return [row for y in each for row in (_describe([y]) if isinstance(y, torch.Tensor) else [{"value": y}])]


def _judge_batches(judge: Judge, sample: Sample) -> None:
    """Fake tensors under vmap: the shape rules of the op and of its gradient read the shapes that a vmap rule makes.

    All slices are equal, because no values are compared. Whether a batch can be computed at all, VMAP judges.
    """
    args = [torch.stack([a] * SLICES) if isinstance(a, torch.Tensor) else a for a in sample.args]
    try:
        eager = _describe(_outputs_and_gradients(judge, args, "eager, vmap", batched=True))
    except Violation as violation:
        if violation.code is Code.RAISED:
            return
        raise
    _compare_fakes(judge, args, eager, "fake tensors, vmap", batched=True)


def _outputs_and_gradients(judge: Judge, args: Sequence[Any], what: str, batched: bool = False) -> list[Tensor]:
    """The outputs and the gradients of one call; if `batched`, of a call under vmap with a batch of every tensor."""
    problem = Problem(judge.op, args)
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    if batched:
        rest = [i for i, a in enumerate(args) if isinstance(a, torch.Tensor) and i not in problem.wrt]
        f = in_arguments(judge.subject, args, (*problem.wrt, *rest))
        outputs = judge.call(torch.func.vmap(f), *leaves, *(args[i] for i in rest), what=what)
    else:
        outputs = judge.call(problem.subject(judge.subject), *leaves, what=what)
    # No values are compared here, so ones serve as cotangents.
    ones = [torch.ones_like(y) for y in outputs]
    return [*outputs, *flat_outputs(gradients(judge, outputs, leaves, ones, f"{what}, vjp"))]


def _describe(tensors: Sequence[Tensor]) -> list[dict[str, Any]]:
    rows = []
    for t in tensors:
        # The stride of an axis of one element is never used, so it may be anything.
        stride = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()
        rows.append({"shape": tuple(t.shape), "dtype": t.dtype, "stride": stride, "device": str(t.device)})
    return rows


def _defer_script(judge: Judge, sample: Sample, way: str) -> ScriptMaker:
    return functools.partial(programs.script_fake_tensors, Problem(judge.op, sample.args, sample.originals), way)


def _compare(
    judge: Judge,
    got: list[dict[str, Any]],
    need: list[dict[str, Any]],
    path: str,
    make_script: ScriptMaker | None = None,
) -> None:
    if len(got) != len(need):
        wrong = f"got {len(got)} outputs, eager has {len(need)}"
        raise judge.violation(Code.ATTRIBUTE, wrong, where=path).showing(make_script)
    for i, (a, b) in enumerate(zip(got, need, strict=True)):
        if a != b:
            lines = [f"{key}: got {a.get(key)}, eager has {b[key]}" for key in b if a.get(key) != b[key]]
            raise judge.violation(Code.ATTRIBUTE, f"out[{i}] differs from eager", lines, where=path).showing(
                make_script
            )
        judge.tally.count(1)
