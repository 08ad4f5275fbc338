"""Two ways of computing one result with the same subject: their results have the same bits, or lie within the bound.

What this is for: whether a call is compiled, reloaded, or spelt in another way, its result may differ from that of the
plain call by rounding alone. Where all bits are equal the formula need not be read; where some are not, it decides.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ...oracles.judge.judge import Judge
from ...oracles.op.bits import different, same_results
from ...oracles.op.declaration import OWN, Sample, Subject, Tensor, flat_outputs
from ...oracles.op.paths import Path
from ...oracles.op.script import CallVariant
from ...oracles.op.transforms import Word
from ...oracles.programs.along import along_path, defer_script
from ...oracles.verdicts.violation import REFUSALS, Code, Unsupported, Violation, error_lines, error_name
from .gradients import gradients

#: The arguments of one call.
Args = tuple[Any, ...]


def outputs_of(judge: Judge, args: Args) -> tuple[Tensor, ...] | None:
    """The outputs of the production op, or of the subject where there is no production op; None for a refusal.

    The production op is asked because it checks its arguments; other implementations may accept wrong ones.

    Raises:
        Violation: the op raises an exception that is no refusal.
    """
    op = judge.op
    function = op.subject(OWN) if OWN in op.subjects else judge.subject
    if any(refusal.ends_work_on(judge.device) for refusal in op.refusals):
        # What a GPU asserts, and then ends all work of the process, the CPU refuses.
        on_cpu = tuple(a.cpu() if isinstance(a, Tensor) else a for a in args)
        if call_unless_refused(judge, function, on_cpu) is None:
            return None
    return call_unless_refused(judge, function, args)


def call_unless_refused(judge: Judge, function: Subject, args: Args) -> tuple[Tensor, ...] | None:
    """The outputs of a function called without gradients; None where it raises one of `REFUSALS` (see `outputs_of`)."""
    try:
        with torch.no_grad():
            return flat_outputs(judge.call(function, *args))
    except Unsupported:  # A subject that is made for each call, a module say, may not exist for this one.
        return None
    except Violation as violation:
        err = violation.__cause__
        if err is None:
            raise
        if isinstance(err, REFUSALS):
            return None
        need = ", ".join(kind.__name__ for kind in REFUSALS)
        wrong = f"raised {error_name(err)}, need outputs or a refusal, which is one of {need}"
        raise judge.violation(Code.RAISED, wrong, error_lines(err), where="arguments that it may refuse") from err


def require_equal_calls(judge: Judge, sample: Sample, function: Subject, what: str, *, backward: bool = True) -> None:
    """Violation unless a function gives what the subject gives at a sample: values, and first gradients.

    Args:
        judge: of the subject. sample: the arguments. function: another way to call the subject.
        what: the name of that way in messages. backward: whether gradients are compared, too.
    """
    path = reverse_path(judge, sample)
    plain = path.primal
    if isinstance(function, CallVariant):
        path = replace(path, around=function.lines)
    if not backward or not path.problem.wrt:
        with torch.no_grad():
            got = judge.primal(sample, function, what)
        require_equal(judge, path.along((), ()), got, plain, what)
        return
    got, derivatives = call_and_differentiate(judge, path, function, what)
    _, need = call_and_differentiate(judge, path, judge.subject, "vjp")
    require_equal(judge, path.along((), ()), got, plain, what)
    require_equal(judge, path, derivatives, need, f"{what}, vjp")


def reverse_path(judge: Judge, sample: Sample, word: Word = ("vjp",)) -> Path:
    """The path of reverse mode at a sample; its `primal` are the outputs of a call without gradients."""
    with torch.no_grad():
        return judge.path(sample, word, judge.primal(sample), "eager")


def differentiate(
    judge: Judge, outputs: Sequence[Tensor], leaves: Sequence[Tensor], directions: Sequence[Tensor], what: str, *,
    retained: bool = False,
) -> list[Tensor]:  # fmt: skip
    """The gradients of leaves, zeros for one that has none.

    Args:
        judge, leaves, what, retained: as for `gradients`.
        outputs, directions: of a call, and their cotangents; where there are more of the one, the rest is left out.
    """
    count = min(len(outputs), len(directions))
    grads = gradients(judge, outputs[:count], leaves, directions[:count], what, retained)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(grads, leaves, strict=True)]


def call_and_differentiate(
    judge: Judge, path: Path, function: Subject, what: str
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The outputs of one call at a path of reverse mode, and its gradients; `what` names the function in messages."""
    leaves = [t.detach().requires_grad_() for t in path.problem.inputs]
    script = functools.partial(along_path, path.along((), ())) if path.around else None
    outputs = judge.call(path.problem.subject(function), *leaves, what=what, make_script=script)
    derivatives = differentiate(judge, outputs, leaves, path.directions, f"{what}, vjp")
    return tuple(y.detach() for y in outputs), tuple(derivatives)


def require_equal(judge: Judge, path: Path, got: Sequence[Any], need: Sequence[Any], what: str) -> None:
    """Violation unless two lists of outputs are equal bit for bit, or `got` is within the bound of the path.

    Args:
        judge: its tally counts the elements. path: the path along which both lists were computed.
        got, need: the outputs, and those of the plain call. what: the name of `got` in messages.
    """
    script = defer_script(path) if path.around else None
    judge.require_alike(got, need, "shape", "dtype", names=path.names(), where=what, make_script=script)
    if all(map(same_results, got, need)):
        judge.tally.count(sum(int(a.numel()) for a in got))
        return
    try:
        judge.against(path.expected(what, make_script=script), got, exactly=False)
    except Violation as violation:
        violation.sample = Sample(path.problem.args)
        raise


def require_promised(judge: Judge, path: Path, got: Sequence[Any], need: Sequence[Any], what: str) -> None:
    """`require_same` of a subject that promises equal bits for equal calls, `require_equal` of others."""
    if judge.op.documented_by(judge.subject_name).bits:
        require_same(judge, got, need, what)
    else:
        require_equal(judge, path, got, need, what)


def require_same(judge: Judge, got: Sequence[Any], need: Sequence[Any], path: str, code: Code = Code.BITS) -> None:
    """Violation unless two lists of outputs are equal bit for bit; see `same_results` about NaN.

    Args:
        judge: its tally counts the elements. got, need: the outputs, and those that they must equal.
        path: the name of the outputs in messages. code: of the violation.
    """
    judge.require_alike(got, need, "shape", "dtype", where=path, code=code)
    for i, (a, b) in enumerate(zip(got, need, strict=True)):
        if not same_results(a, b):
            differ = different(a.detach(), b.detach())
            at = tuple(int(k) for k in differ.nonzero()[0])
            lines = [f"{int(differ.sum())} of {differ.numel()} elements differ, first at {list(at)}:"]
            lines.append(f"got {float(a[at]).hex()}, need {float(b[at]).hex()}")
            raise judge.violation(code, f"out[{i}] differs in its bits", lines, where=path)
        judge.tally.count(int(a.numel()))
