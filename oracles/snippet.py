"""A failure as a program: plain torch, exact bits, exit status 1 while the fault is there."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from .op import Op, Sample, Tensor, dtype_name
from .paths import Path, Problem
from .violation import Violation

#: A longer program is not written. That of a large sample which did not shrink would be nothing but digits, and the
#: case file has those already.
LONGEST = 2**18


def snippet(op: Op, subject: str, sample: Sample, violation: Violation, case_id: str) -> str:
    """A self-contained program for a wrong element of a path; else the command that replays the case.

    The program writes out steps of jvp and vjp alone. One of vmap would need all slices of the sample, so such a
    failure is repeated from its case file.

    Args:
        op, subject: the op, and the name of the subject that failed. sample, violation: where it failed, and how.
        case_id: the name of the case file.
    """
    fault = violation.fault
    if fault is None or fault.word is None or any(step not in ("jvp", "vjp") for step in fault.word):
        return f"# opassay replay {case_id}"
    if op.is_compiled(subject) or not _importable(op.subjects[subject]):
        return f"# opassay replay {case_id}"
    problem = Problem(op, sample.args)
    with torch.no_grad():
        primal = problem.subject(op.subject(subject))(*problem.inputs)
    directions = Path.drawn(op, sample, fault.word, primal, device=problem.inputs[0].device).directions
    own = len(problem.wrt)
    lines = [
        "import sys",
        *_defined(op, subject, problem, sample),
        *(f"d{i} = {_tensor(t)}" for i, t in enumerate(directions)),
        "",
        *_path(fault.word, own, len(primal)),
        f"got = float(outputs[{fault.output}][{', '.join(map(str, fault.index)) or '...'}])",
        f"exact = {fault.exact!r}  # the formula in high precision",
        # The bound is written as text, because Python has no literal for an infinite one.
        f"bound = float({str(fault.bound)!r})  # on the error of any sensible evaluation",
        f'print(f"{violation.title.split(":")[0]}: got {{got!r}}, exact {{exact}}, bound {{bound:.3g}}")',
        "agrees = got == float(exact) or (got != got and exact == 'nan') or abs(got - float(exact)) <= bound",
        "sys.exit(not agrees)",
    ]
    text = "\n".join(lines) + "\n"
    return text if len(text) <= LONGEST else f"# opassay replay {case_id}"


def ending(op: Op, subject: str, sample: Sample) -> str:
    """A program that calls a subject, and takes its gradients, of a sample that ended the process; empty for none.

    The subject is not called to write it, because that would end this process, too.

    Args:
        op, subject: the op, and the name of the subject. sample: what the process was judging when it ended.
    """
    if op.is_compiled(subject) or not _importable(op.subjects[subject]):
        return ""
    problem = Problem(op, sample.args)
    inputs = ", ".join(f"x{i}" for i in range(len(problem.wrt)))
    reverse = [
        f"outputs, vjp = torch.func.vjp(f, {inputs})",
        "vjp(tuple(torch.ones_like(y) for y in outputs))",
    ]
    lines = [
        *_defined(op, subject, problem, sample),
        f"f({inputs})",
        *(reverse if problem.wrt else []),
        'print("the process was not ended")',
    ]
    text = "\n".join(lines) + "\n"
    return text if len(text) <= LONGEST else ""


def _defined(op: Op, subject: str, problem: Problem, sample: Sample) -> list[str]:
    """The lines that define the inputs x0, x1, ... and `f`, the subject as a function of them."""
    written = op.written(sample.args)
    names = {i: f"x{problem.wrt.index(i)}" for i in problem.wrt} | {i: f"w{i}" for i in written}
    call = ", ".join(names.get(i, _value(a)) for i, a in enumerate(sample.args))
    return [
        *_imports(op.subjects[subject]),
        "",
        _BITS,
        *(f"x{i} = {_tensor(t)}" for i, t in enumerate(problem.inputs)),
        "",
        f"def f({', '.join(f'x{i}' for i in range(len(problem.wrt)))}):",
        # What the op writes is made inside `f`, so that each call of it begins with the sample's values.
        *(f"    w{i} = {_tensor(sample.args[i])}" for i in written),
        f"    out = {_name(op.subjects[subject])}({call})",
        "    out = tuple(out) if isinstance(out, (tuple, list)) else (out,)",
        *([f"    out += ({', '.join(f'w{i}' for i in written)},)"] if written else []),
        "    return tuple(y for y in out if y is not None and y.is_floating_point())",
        "",
    ]


_BITS = """def bits(text, dtype, *shape):
    return torch.frombuffer(bytearray.fromhex(text), dtype=dtype).reshape(shape)
"""


def _imports(function: Callable[..., Any]) -> list[str]:
    module = _name(function).rpartition(".")[0]
    return ["import torch"] if module.startswith("torch") else ["import torch", f"import {module}"]


def _name(function: Callable[..., Any]) -> str:
    if isinstance(function, torch._ops.OpOverload):
        return f"torch.ops.{function}"
    return f"{function.__module__}.{function.__qualname__}"


def _importable(function: Callable[..., Any]) -> bool:
    """Whether the program can name the subject: an overload, or a function at the top of an imported module."""
    if isinstance(function, torch._ops.OpOverload):
        return True
    module = sys.modules.get(getattr(function, "__module__", None) or "")
    return getattr(module, getattr(function, "__qualname__", ""), None) is function


def _value(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return _tensor(value)
    return f"float.fromhex({value.hex()!r})" if isinstance(value, float) else repr(value)


def _tensor(t: Tensor) -> str:
    raw = t.detach().cpu().contiguous()
    if not raw.numel():
        return f"torch.empty({tuple(raw.shape)}, dtype={raw.dtype})"
    # The copy has the strides of its shape. Those of a tensor of one element may be anything, although torch calls it
    # contiguous, and then it has no view as bytes.
    text = bytes(torch.empty(raw.numel(), dtype=raw.dtype).copy_(raw.reshape(-1)).view(torch.uint8).numpy()).hex()
    return f"bits({text!r}, torch.{dtype_name(t.dtype)}, {', '.join(map(str, raw.shape))})"


def _path(word: tuple[str, ...], inputs: int, outputs: int) -> list[str]:
    """The word spelled out in torch.func."""
    lines, name, taken = [], "f", inputs
    for depth, step in enumerate(word):
        inner, name = name, f"{step}{depth}"
        lines.append(f"def {name}(*a):")
        if step == "jvp":
            lines.append(f"    return torch.func.jvp({inner}, a[:{taken}], a[{taken}:])[1]")
            taken *= 2
        else:
            lines.append(f"    return torch.func.vjp({inner}, *a[:{taken}])[1](tuple(a[{taken}:]))")
            taken, outputs = taken + outputs, taken
        lines.append("")
    given = [f"x{i}" for i in range(inputs)] + [f"d{i}" for i in range(taken - inputs)]
    lines.append(f"outputs = {name}({', '.join(given)})")
    return lines
