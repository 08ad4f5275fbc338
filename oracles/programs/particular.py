"""Scripts about whole calls, not one element: what a call raises, saves, writes, shares or repeats.

A script computes, prints what it got and what is allowed, and exits with 1 where the fault is there, else with 0. The
first sentence of a function names the fault; the last two functions only compute `outputs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from ..op.declaration import Tensor
from ..op.paths import Path, Problem
from ..op.script import ProgramTensor, Script
from .along import along_path, define_function, define_steps, function_lines, operand_names, operands_of
from .questions import of_bits, of_condition
from .values import literal


def _script_call(problem: Problem) -> Script:
    """The lines that define `f` and the list `operands`; no derivative is taken in the first `passive` operands."""
    script = define_function(problem)
    names = operand_names(problem)
    whole = Script({**operands_of(problem), **script.values}, script.lines)
    return whole.then(f"operands = [{', '.join(names.values())}]", f"passive = {len(problem.fixed)}")


#: `called(operands)`: the outputs of a call, and the gradients in the operands for cotangents of ones.
_GRADIENTS = (
    "def called(operands):",
    "    leaves = [x.detach().requires_grad_() for x in operands[passive:]]",
    "    outputs = f(*operands[:passive], *leaves)",
    "    needed = [y for y in outputs if y.requires_grad]",
    "    ones = [torch.ones_like(y) for y in needed]",
    "    found = torch.autograd.grad(needed, leaves, ones, allow_unused=True) if needed and leaves else ()",
    "    return [*outputs, *(g for g in found if g is not None)]",
    "",
)


class Wording(NamedTuple):
    """A documented error: the name of its type, the possible words before its colon, and patterns of its text."""

    error: str
    heads: tuple[str, ...]
    patterns: tuple[str, ...]


def script_refusal(args: Sequence[object], need: Wording, name: str) -> Script:
    """Invalid input is accepted, or refused with another error than the documented one.

    Args:
        args: the invalid input. need: the documented error. name: what is invalid.
    """
    tensors = {f"a{i}": a for i, a in enumerate(args) if isinstance(a, torch.Tensor)}
    call = ", ".join(f"a{i}" if isinstance(a, torch.Tensor) else literal(a) for i, a in enumerate(args))
    lines = (
        f"heads, patterns = {need.heads!r}, {need.patterns!r}",
        "def right(raised):",
        "    head, _, rest = str(raised).partition(': ')",
        "    text = rest if heads else str(raised)",
        f"    known = isinstance(raised, {need.error}) and (not heads or head in heads)",
        "    return known and all(re.search(pattern, text) for pattern in patterns)",
        "",
        "try:",
        f"    op({call})",
        '    computed, fine = "a result", False',
        "except BaseException as raised:",
        '    computed, fine = f"{type(raised).__name__}: {raised}", right(raised)',
    )
    messages = [
        f'f"{name}: computed {{computed}};"',
        f'f"allowed is {need.error} alone, one that begins with any of {{heads}} and has all of {{patterns}}"',
    ]
    return of_condition(Script(tensors, lines, ("import re",)), "not fine", messages)


def script_saved_bytes(problem: Problem, positions: Sequence[int], allowed: int) -> Script:
    """A call saves more bytes for backward than declared.

    Args:
        problem: the op at a sample. positions: of the arguments that require grad. allowed: bytes.
    """
    names = operand_names(problem)
    leaves = ", ".join(f"{names[i]}.requires_grad_()" for i in positions)
    script = _script_call(problem).then(
        f"{leaves}",
        "given = {x.untyped_storage().data_ptr() for x in operands}",
        "kept = {}",
        "def pack(t):",
        "    if t.numel():",
        "        storage = t.untyped_storage()",
        "        own = t.numel() * t.element_size()",
        "        size = own if storage.data_ptr() in given else storage.nbytes()",
        "        kept[storage.data_ptr()] = max(size, kept.get(storage.data_ptr(), 0))",
        "    return t",
        "with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):",
        "    outputs = f(*operands)",
        f"computed, allowed = sum(kept.values()), {allowed}",
    )
    message = 'f"bytes kept for backward: computed {computed}, allowed {allowed}"'
    return of_condition(script, "computed > allowed", [message])


def script_changed_inputs(problem: Problem) -> Script:
    """A call or its backward changes an input: its values, version, hooks, attributes or `.grad`."""
    script = _script_call(problem).then(
        *_GRADIENTS,
        "def noted(t):",
        "    needs = t.requires_grad, t.is_leaf, t.grad is None",
        "    return bytes(t.untyped_storage()), t._version, needs, len(t._backward_hooks or ()), sorted(vars(t))",
        "before = [noted(t) for t in operands]",
        "f(*operands)",
        "called(operands)",
        "after = [noted(t) for t in operands]",
        "computed = [i for i, (a, b) in enumerate(zip(before, after)) if a != b]",
    )
    message = 'f"inputs that a call changes, by number: computed {computed}, allowed []"'
    return of_condition(script, "computed", [message])


def script_overwrites(path: Path) -> Script:
    """The plain call or the derivative of a path writes to an operand, or to the memory around it."""
    script = along_path(path)
    names = ", ".join(script.values)
    begin = f"before = [bytes(t.untyped_storage()) for t in ({names},)]"
    forward = f"f({', '.join(operand_names(path.problem).values())})"
    whole = Script(script.values, (begin, *script.lines, forward), script.imports).then(
        f"after = [bytes(t.untyped_storage()) for t in ({names},)]",
        "computed = [i for i, (a, b) in enumerate(zip(before, after)) if a != b]",
    )
    message = f'f"operands ({names}) whose memory a call changes, by number: computed {{computed}}, allowed []"'
    return of_condition(whole, "computed", [message])


def script_shared_memory(problem: Problem, output: int) -> Script:
    """An output shares memory with an input, or with an output before it.

    Args:
        problem: the op at a sample. output: the number of the output.
    """
    script = _script_call(problem).then(
        "outputs = f(*operands)",
        f"others = [*operands, *outputs[:{output}]]",
        f"own = outputs[{output}].untyped_storage().data_ptr()",
        "computed = [i for i, t in enumerate(others) if t.numel() and t.untyped_storage().data_ptr() == own]",
    )
    message = f'f"tensors that share memory with out[{output}], by number: computed {{computed}}, allowed []"'
    return of_condition(script, "computed", [message])


def script_fake_tensors(problem: Problem, way: str) -> Script:
    """Fake or meta outputs have another shape, dtype, stride or device than eager ones.

    Args:
        problem: the op at a sample. way: "fake tensors" or "meta tensors".
    """
    script = _script_call(problem)
    names = ", ".join((*operand_names(problem).values(), *(name for name in script.values if name.startswith("a"))))
    device = "str(t.device)" if way == "fake tensors" else "''"
    change, head = "t.to('meta')", "if True:"
    if way == "fake tensors":
        change, head = "mode.from_tensor(t)", "with FakeTensorMode() as mode:"
    whole = script.then(
        *_GRADIENTS,
        "def described(tensors):",
        "    strides = [tuple(s for s, n in zip(t.stride(), t.shape) if n > 1) if t.numel() else () for t in tensors]",
        f"    return [(tuple(t.shape), str(t.dtype), s, {device}) for t, s in zip(tensors, strides)]",
        "need = described(called(operands))",
        head,
        f"    {names}, = ({change} for t in ({names},))",
        f"    computed = described(called([{', '.join(operand_names(problem).values())}]))",
        f'print(f"{way}: computed {{computed}}, allowed is what eager tensors have, {{need}}")',
        "sys.exit(computed != need)",
    )
    return Script(whole.values, whole.lines, ("from torch._subclasses.fake_tensor import FakeTensorMode",))


def script_repeats(path: Path, threads: Sequence[int], runs: int) -> Script:
    """Repeated calls, or calls with other numbers of threads, give other bits.

    Args:
        path: a plain vjp. threads: the numbers of threads that deterministic algorithms run with, in turn.
        runs: how many calls are made with the largest of these numbers.
    """
    script = along_path(path)
    forward = f"f({', '.join(operand_names(path.problem).values())})"
    body = (*script.lines, "with torch.no_grad():", f"    plain = {forward}")
    lines = (
        "def everything():",
        *(f"    {line}" if line else "" for line in body),
        "    return [t.detach() for t in (*plain, *outputs)]",
        "",
        f"torch.set_num_threads({max(threads)})",
        f"runs = [everything() for _ in range({runs})]",
        "torch.use_deterministic_algorithms(True)",
        "counts = []",
        f"for count in {tuple(threads)}:",
        "    torch.set_num_threads(count)",
        "    counts.append(everything())",
        "need = [*runs[0]] * (len(runs) - 1) + [*counts[0]] * (len(counts) - 1)",
        "got = [t for run in (*runs[1:], *counts[1:]) for t in run]",
    )
    return of_bits(Script(script.values, lines, script.imports), "again, and with other numbers of threads")


#: Ways to compute the primal outputs of a call that is differentiated: name in messages -> lines that set `got`.
PRIMALS = {
    "primal with requires_grad": ("got = g(*(x.detach().requires_grad_() for x in inputs))",),
    "primal of func.vjp": ("got = torch.func.vjp(g, *inputs)[0]",),
    "primal of func.jvp": ("got = torch.func.jvp(g, inputs, tangents)[0]",),
    "primal with tangents": (
        "with forward_ad.dual_level():",
        "    duals = [forward_ad.make_dual(x, t) for x, t in zip(inputs, tangents)]",
        "    got = [forward_ad.unpack_dual(y).primal for y in g(*duals)]",
    ),
}


def script_primal(path: Path, way: str) -> Script:
    """The primal outputs of a call that is differentiated have other bits than those of the plain call.

    Args:
        path: a jvp, whose tangents are used. way: a key of `PRIMALS`.
    """
    script = _script_call(path.problem)
    tangents = {f"d{k}": ProgramTensor(d, d) for k, d in enumerate(path.direction_copies)}
    lines = (
        *script.lines,
        "inputs = tuple(operands[passive:])",
        f"tangents = ({''.join(f'{name}, ' for name in tangents)})",
        "def g(*x):",
        "    return f(*operands[:passive], *x)",
        "need = [y.clone() for y in g(*inputs)]",
        *PRIMALS[way],
    )
    return of_bits(Script({**script.values, **tangents}, lines, ("from torch.autograd import forward_ad",)), way)


def script_adjoints(both: Path, bound: float) -> Script:
    """⟨ȳ, Jv⟩ and ⟨Jᵀȳ, v⟩ differ by more than a bound.

    Args:
        both: the vjp of a jvp; its directions are the tangents and then the cotangents. bound: absolute.
    """
    script, count = along_path(both), len(both.problem.wrt)
    called = define_function(both.problem, both.around)
    tangents, cotangents = (
        f"({''.join(f'd{k}, ' for k in which)})" for which in (range(count), range(count, len(both.directions)))
    )
    steps = define_steps(both.engine, ("jvp", "vjp"))
    names = operand_names(both.problem)
    lines = (
        *called.lines,
        *steps.lines,
        f"inputs = ({''.join(f'{names[i]}, ' for i in both.problem.wrt)})",
        f"tangents, cotangents = {tangents}, {cotangents}",
        "def g(*x):",
        f"    return f({', '.join([*(names[i] for i in both.problem.fixed), '*x'])})",
        "def product(a, b):",
        "    # The products are added without rounding.",
        "    return math.fsum(p for s, t in zip(a, b) for p in (s.double() * t.double()).ravel().tolist())",
        "left = product(cotangents, jvp(g, inputs, tangents))",
        "right = product(vjp(g, inputs, cotangents), tangents)",
        f"bound = float({str(bound)!r})",
    )
    whole = Script(script.values, lines, ("import math", *steps.imports))
    message = 'f"<y, Jv>: computed {left!r}; <J^T y, v> is {right!r}, allowed {right - bound!r} to {right + bound!r}"'
    return of_condition(whole, "not abs(left - right) <= bound", [message])


def script_vmap(
    problem: Problem, tensors: dict[int, Tensor], dims: Sequence[int | None], out_dims: Sequence[int]
) -> Script:
    """The lines that call the op under vmap over some axes; `outputs` have the batch in front.

    Args:
        problem: the op at the arguments that are shared where they are not batched.
        tensors: by position, all tensors, batched where `dims` says so. dims, out_dims: as for vmap.
    """
    named = {i: f"b{k}" for k, i in enumerate(tensors)}
    lines = (
        *function_lines(problem, list(named.values()), named),
        "with torch.no_grad():",
        f"    mapped = torch.func.vmap(f, in_dims={tuple(dims)}, out_dims={tuple(out_dims)})",
        f"    batched = mapped({', '.join(named.values())})",
        f"outputs = [y.movedim(d, 0) for y, d in zip(batched, {tuple(out_dims)})]",
    )
    return Script({named[i]: t for i, t in tensors.items()}, lines)


def script_jacobian(problem: Problem, name: str, weights: Tensor, of: int, by: int) -> Script:
    """The lines that compute a jacobian or hessian of one output in one input, the only element of `outputs`.

    Args:
        problem: the op at a sample. name: "jacrev", "jacfwd", "hessian" or "jacrev(jacrev)".
        weights: the cotangent of the output. of, by: which output, and which of the inputs.
    """
    transforms = {"hessian": "torch.func.jacfwd(gradient)", "jacrev(jacrev)": "torch.func.jacrev(gradient)"}
    script = _script_call(problem).then(
        f"by = passive + {by}",
        "before, x, after = operands[:by], operands[by], operands[by + 1:]",
        "def one(t):",
        f"    return f(*before, t, *after)[{of}]",
        "def gradient(t):",
        "    return torch.func.vjp(one, t)[1](weights)[0]",
        f"outputs = ({transforms.get(name, f'torch.func.{name}(one)')}(x),)",
    )
    return Script({**script.values, "weights": weights}, script.lines)
