"""The text of a program: what is wrong, the values, the subject as `op`, and the lines that show the failure."""

from __future__ import annotations

import inspect
import platform
import sys
import types
from collections.abc import Callable

import torch

from ..op.declaration import Op, Sample
from ..op.paths import Problem
from ..op.script import NoProgram, Script, plain_source
from ..verdicts.verdict import Cell, clean
from .along import define_function, operand_names, operands_of
from .values import HELPERS, literal

#: A program with more characters is not written. The program of a large sample that did not shrink would consist of
#: digits, and the case file has these already.
LONGEST = 2**18
#: A program may import the implementations of this package, and no module that judges.
_FRAMEWORK = __name__.partition(".")[0]
_IMPLEMENTATIONS = f"{_FRAMEWORK}.impl"


def program(op: Op, cell: Cell, script: Script, title: str, case_id: str) -> str:
    """A program that needs torch and the subject alone.

    Args:
        op, cell: the op, and the cell that failed, whose subject is called. script: what it shows.
        title: what is wrong. case_id: the name of the case file.

    Raises:
        NoProgram: the subject has no name, or the text would be longer than `LONGEST`.
    """
    subject = defining_script(op.implementation(cell.subject))
    return assemble(subject, script, title, f"{cell.key}, case {case_id}", torch.get_num_threads())


def assemble(subject: Script, script: Script, title: str, about: str, threads: int) -> str:
    """The text of a program.

    Args:
        subject: the lines that define what is called. script: what the program shows.
        title: what is wrong. about: of what, and the name of the case. threads: of torch.

    Raises:
        NoProgram: the text would be longer than `LONGEST`.
    """
    body = [*subject.lines, "", *(f"{name} = {literal(value)}" for name, value in script.values.items())]
    body += ["", *script.lines]
    text = "\n".join(body)
    needed = [helper for word, helper in HELPERS.items() if word in text]
    imports = [line for line in dict.fromkeys((*subject.imports, *script.imports)) if line != "import torch"]
    whole = "\n".join(
        [
            f"# {_one_line(title)}",
            f"# {_one_line(about)}; written with torch {torch.__version__}, Python {platform.python_version()}.",
            "# Exit status: 1 while the fault is there, 0 once it is gone.",
            "import sys",
            "from math import inf, nan",
            "",
            "import torch",
            *imports,
            "",
            # The order of a sum, and so its last bits, may depend on how many threads share it.
            f"torch.set_num_threads({threads})",
            "",
            *needed,
            text,
            "",
        ]
    )
    if len(whole) > LONGEST:
        raise NoProgram(f"The program would have {len(whole)} characters, most of them digits of its input.")
    return whole


def without(reason: str) -> str:
    """What stands in place of a program: why there is none."""
    return f"# No program: {_one_line(reason)}"


def _one_line(text: str) -> str:
    return " ".join(clean(text[:1000]).split())


def ending(op: Op, cell: Cell, sample: Sample, case_id: str) -> str:
    """A program that calls a subject, and takes its gradients, at a sample that ended the process; "" for no program.

    Writing the program does not call the subject, because the call would end this process, too.

    Args:
        op, cell: the op, and the cell whose process ended. sample: what the process was judging when it ended.
        case_id: the name of the case file.
    """
    if op.is_compiled(cell.subject):
        return ""
    problem = Problem(op, sample.args)
    names = operand_names(problem)
    passive, inputs = (", ".join(names[i] for i in positions) for positions in (problem.fixed, problem.wrt))
    script = define_function(problem)
    lines = [f"f({', '.join(names.values())})"]
    if inputs:
        function = f"lambda *x: f({passive}, *x)" if passive else "f"
        lines += [
            f"outputs, vjp = torch.func.vjp({function}, {inputs})",
            "vjp(tuple(torch.ones_like(y) for y in outputs))",
        ]
    whole = Script({**operands_of(problem), **script.values}, script.lines, script.imports)
    try:
        return program(op, cell, whole.then(*lines, 'print("the process was not ended")'), "the process ended", case_id)
    except NoProgram:
        return ""


def defining_script(function: Callable[..., object]) -> Script:
    """The lines that define `op`.

    Raises:
        NoProgram: the function has no name by which a fresh process could have it.
    """
    if isinstance(function, torch._ops.OpOverload):
        return Script(lines=(f"op = torch.ops.{function}",))
    module, name = _address(function)
    if module == "torch" or module.startswith("torch."):
        imports = () if module in ("torch", "torch.nn.functional") else (f"import {module}",)
        return Script(lines=(f"op = {module}.{name}",), imports=imports)
    if module == _FRAMEWORK or module.startswith(f"{_FRAMEWORK}."):
        if not f"{module}.".startswith(f"{_IMPLEMENTATIONS}."):
            return _write_out(function)
        return Script(lines=(f"op = {module}.{name}",), imports=(f"import {module}",))
    # A program that is a file has its own folder on the path, and not the one that it is started in.
    here = ('sys.path.insert(0, "")  # a module of yours is looked for in the current folder', f"import {module}")
    return Script(lines=(f"op = {module}.{name}",), imports=here)


def _address(function: Callable[..., object]) -> tuple[str, str]:
    """Module and name by which a function can be imported."""
    name = getattr(function, "__qualname__", "")
    module = getattr(function, "__module__", None) or ""
    if module != "__main__" and getattr(sys.modules.get(module), name, None) is function:
        return module, name
    # Functions of torch that are written in C do not say where they are.
    plain = getattr(function, "__name__", "")
    for home in (torch, torch.nn.functional):
        if plain and getattr(home, plain, None) is function:
            return home.__name__, plain
    raise NoProgram("The subject is no function that can be imported by its name.")


def _write_out(function: Callable[..., object]) -> Script:
    """The source of a function of the framework, which is a call of torch in most cases."""
    if not isinstance(function, types.FunctionType):
        raise NoProgram("The subject is an object of the framework.")
    imports = []
    for name, value in inspect.getclosurevars(function).globals.items():
        if not isinstance(value, types.ModuleType) or not f"{value.__name__}.".startswith("torch."):
            raise NoProgram(f"The subject is a function of the framework, and needs its {name}.")
        imports.append("import torch" if name == "torch" else f"import {value.__name__} as {name}")
    return Script(lines=(*plain_source(function), f"op = {function.__name__}"), imports=tuple(imports))
