"""The lines of a program that take a path of transforms: they set `outputs`, the tuple that the judge compared."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import torch

from ..op.paths import Path, Problem
from ..op.script import ProgramTensor, Script, ScriptMaker, plain_source
from ..op.transforms import ENGINES, Vmap, Word
from .values import literal

#: The steps of torch.func. The steps of autograd and dual tensors are the source of the judge's own functions.
_FUNC = {
    "jvp": (
        "def jvp(function, primals, tangents):",
        "    return torch.func.jvp(function, tuple(primals), tuple(tangents))[1]",
        "",
    ),
    "vjp": (
        "def vjp(function, primals, cotangents):",
        "    return torch.func.vjp(function, *primals)[1](tuple(cotangents))",
        "",
    ),
}


def defer_script(path: Path) -> ScriptMaker:
    """`along_path` of a path, to be made only if a failure needs it."""
    return functools.partial(along_path, path)


def along_path(path: Path) -> Script:
    """The values of a path's operands, and the lines that take it."""
    problem = path.problem
    operands = [*operand_names(problem).values()]
    values = dict(zip(operands, map(ProgramTensor, path.own, path.copies), strict=True))
    directions = map(ProgramTensor, path.directions, path.direction_copies)
    values |= {f"d{k}": direction for k, direction in enumerate(directions)}
    script = define_function(problem, path.around)
    script = script.joined(_steps(path))
    return Script({**values, **script.values}, script.lines, script.imports)


def operand_names(problem: Problem) -> dict[int, str]:
    """The names of the operands in a program, by position, in the order in which `f` takes them."""
    names = {i: f"p{k}" for k, i in enumerate(problem.fixed)}
    return names | {i: f"x{k}" for k, i in enumerate(problem.wrt)}


def operands_of(problem: Problem) -> dict[str, object]:
    """The operands of a problem by their names in a program."""
    return {name: ProgramTensor(problem.args[i], problem.formula_args[i]) for i, name in operand_names(problem).items()}


def define_function(problem: Problem, around: tuple[str, ...] = ()) -> Script:
    """The lines that define `f`, a function of the operands that returns the judged outputs.

    Args:
        problem: the op at given arguments. around: lines that define `call` by `op`; without them `f` calls `op`.
    """
    names = operand_names(problem)
    tensors = {
        f"a{i}": ProgramTensor(a, problem.formula_args[i])
        for i, a in enumerate(problem.args)
        if isinstance(a, torch.Tensor) and i not in names
    }
    named = {i: names.get(i, f"a{i}") for i, a in enumerate(problem.args) if isinstance(a, torch.Tensor)}
    called = "call" if around else "op"
    return Script(tensors, (*around, *function_lines(problem, list(names.values()), named, called)))


def function_lines(
    problem: Problem, parameters: Sequence[str], named: Mapping[int, str], called: str = "op"
) -> tuple[str, ...]:
    """The lines of `f`, which calls the op and returns its floating outputs, and then the arguments that it writes.

    Args:
        problem: the op at a sample. parameters: names of the parameters of `f`. named: names of the tensors, by their
            positions. called: the name of the function that `f` calls.
    """
    # Arguments that the op writes are copied inside `f`, so that each call of `f` begins with the same values.
    copies = {i: f"w{i}" for i in problem.op.mutated_positions(problem.args)}
    call = ", ".join(({**named} | copies).get(i, literal(a)) for i, a in enumerate(problem.args))
    return (
        f"def f({', '.join(parameters)}):",
        *(f"    {copy} = {named[i]}.clone()" for i, copy in copies.items()),
        f"    out = {called}({call})",
        "    out = tuple(out) if isinstance(out, (tuple, list)) else (out,)",
        *([f"    out += ({', '.join(copies.values())},)"] if copies else []),
        "    return tuple(y for y in out if y is not None and getattr(y, 'dtype', torch.float32).is_floating_point)",
        "",
    )


def _steps(path: Path) -> Script:
    """The lines that make the transformed function of `f`, and call it."""
    passive, inputs, outputs = len(path.problem.fixed), len(path.problem.wrt), len(path.primal)
    compile_ = "torch.compile({}, fullgraph=True, dynamic=False)"
    name, steps = "f", define_steps(path.engine, path.word)
    lines = [*steps.lines]
    if path.compiled and path.engine == "eager":
        lines.append(f"f = {compile_.format('f')}")
    for depth, step in enumerate(path.word):
        inner, name = name, f"step{depth}"
        if isinstance(step, Vmap):
            lines += _define_vmap(name, inner, step.in_dims(passive, inputs))
            continue
        end = passive + inputs
        lines += [
            f"def {name}(*a):",
            f"    return tuple({step}(lambda *x: {inner}(*a[:{passive}], *x), a[{passive}:{end}], a[{end}:]))"
            if passive
            else f"    return tuple({step}({inner}, a[:{end}], a[{end}:]))",
            "",
        ]
        inputs, outputs = (2 * inputs, outputs) if step == "jvp" else (inputs + outputs, inputs)
    if path.compiled and path.engine == "func":
        lines.append(f"{name} = {compile_.format(name)}")
    operands = [*operand_names(path.problem).values(), *(f"d{k}" for k in range(len(path.directions)))]
    call = f"outputs = {name}({', '.join(operands)})"
    lines += [call] if path.word else ["with torch.no_grad():", f"    {call}"]
    return Script(lines=tuple(lines), imports=steps.imports)


def _define_vmap(name: str, inner: str, in_dims: tuple[int | None, ...]) -> list[str]:
    """The lines that define a vmap; operands come with the batch first, also where vmap takes it from the last axis."""
    if -1 not in in_dims:
        return [f"{name} = torch.func.vmap({inner}, in_dims={in_dims})", ""]
    return [
        f"def {name}(*a):",
        f"    in_dims = {in_dims}",
        "    moved = [x.movedim(0, -1) if d == -1 else x for x, d in zip(a, in_dims)]",
        f"    return torch.func.vmap({inner}, in_dims=in_dims)(*moved)",
        "",
    ]


def define_steps(engine: str, word: Word) -> Script:
    """The lines that define `jvp` and `vjp`, as far as the word has them, as an engine takes these steps."""
    script = Script()
    for short, function in (("jvp", ENGINES["eager"].jvp), ("vjp", ENGINES["eager"].vjp)):
        if short not in word:
            continue
        if engine == "func":
            script = script.then(*_FUNC[short])
        else:
            script = script.then(*plain_source(function), "", f"{short} = {function.__name__}", "")
            script = script.joined(Script(imports=("from torch.autograd import forward_ad",)))
    return script
