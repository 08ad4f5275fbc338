"""A judgement as verdicts of cells, one for each question, so that it can be recorded, gated, compared and shown.

A failure has a program that needs torch, the candidate's file and the spec's file alone.
"""

from __future__ import annotations

import ast
import functools
import math
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from ...oracles.bound.accept import Edges
from ...oracles.op.script import NoProgram, ProgramTensor, Script, plain_source
from ...oracles.programs.questions import of_element, of_exception
from ...oracles.programs.values import literal
from ...oracles.programs.writing import assemble, without
from ...oracles.verdicts.verdict import Cell, Code, Failure, Measure, Outcome, Signs, Verdict
from ...oracles.verdicts.violation import Outlier
from ..table import TABLE
from . import failing_call
from .arguments import Tensor, device_of
from .cases import CANDIDATES, SPECS, SUBJECT, JudgedCase, absolute, parts_of
from .finding import FailingCall, Finding
from .host.calls import Manner
from .judge_draws import Draws
from .judgement import OF_OTHER_CALLS, Judgement, Ruling
from .layouts import place, place_each
from .operand_parts import has_parts, name_of_whole

#: Bytes of a tensor that a program has in its text, 4096 elements of float32; a larger one is in a file beside it.
_IN_TEXT = 2**14
_FUNCTIONS = (failing_call.load, failing_call.instance_of, failing_call.tensors_of, failing_call.call)
#: Lines before a call of a manner.
_BEFORE = {
    Manner.POISONED: (
        "torch.use_deterministic_algorithms(True, warn_only=True)",
        "torch.utils.deterministic.fill_uninitialized_memory = True",
    ),
    Manner.EVALUATION: ("reference.eval()", "candidate.eval()"),
    Manner.THREADS: ("torch.set_num_threads(4)",),
    Manner.COMPILED: ('candidate = torch.compile(candidate, backend="eager", dynamic=False)',),
}
#: Makes the lines that call the candidate, which raises.
_CALLED = Script(lines=("call(candidate, arguments, tensors_of(call(reference, copy.deepcopy(arguments))))",)).then
_IMPORTS = ("import copy", "import importlib", "import importlib.util", "import inspect", "import os")


@dataclass(frozen=True)
class _SourceText:
    """Python that stands for a value where values are written."""

    text: str

    def __repr__(self) -> str:
        return self.text


def write_program(finding: Finding, case: JudgedCase) -> tuple[str, bytes]:
    """A program that ends with 1 while a call raises, or an element is outside its accept set; and its large tensors.

    Raises:
        NoProgram: one call does not show the failure, or the program would be too long.
    """
    if "::" in case.candidate + case.spec:
        raise NoProgram("An operator that a file registers is no function of the file.")
    call, wrong = finding.call, finding.wrong
    if call is None or wrong is None:
        raise NoProgram("One call with plain values does not show it.")
    comparison = _comparison(call, wrong.outlier) if call.place is not None else of_exception(_CALLED, "call").lines
    of_parts = has_parts(call.arguments.structure) or any(name_of_whole(name) != name for name in call.state)
    if of_parts or (wrong.outlier is not None and "view_as_real" in wrong.outlier.output):
        raise NoProgram("An argument, a parameter or a result is judged by its parts.")
    if call.placing.memories or call.placing.destinations:
        raise NoProgram("The arguments share memory, or the destinations are not contiguous.")
    if "compiled" in case.flags:
        raise NoProgram("The candidate's kernels were executed as PTX, which takes opassay.")
    stored = bytearray()
    values = _values_of(call, case, stored)
    functions: list[Callable[..., object]] = [
        *_FUNCTIONS,
        *([] if call.backward is None else [failing_call.gradients_of]),
    ]
    functions += [failing_call.read_stored] if stored else []
    subject = Script(lines=tuple(line for function in functions for line in (*plain_source(function), "")))
    script = Script(values, (*_targets(case), *_BEFORE.get(call.manner, ()), *comparison), _IMPORTS)
    about = f"{case.question} of {case.candidate} against {case.spec}, case {case.id}"
    return assemble(subject, script, wrong.title, about, threads=1), bytes(stored)


def _values_of(call: FailingCall, case: JudgedCase, stored: bytearray) -> dict[str, object]:
    """The values of a program by name; the bytes of those that are too long for its text are added to `stored`."""
    tensors = call.arguments.tensors
    names = [_SourceText(f"x{i}") for i in range(len(tensors))]
    try:
        ast.literal_eval(repr(call.arguments.with_tensors([name.text for name in names]).args))
    except (ValueError, SyntaxError):
        raise NoProgram("An argument is no tensor, number or text.") from None
    strides = call.placing.strides or [[*t.stride()] for t in tensors]
    values: dict[str, object] = {
        name.text: _in_program(place(t.detach(), own, int(call.manner is Manner.SHIFTED)), t, stored)
        for name, t, own in zip(names, tensors, strides, strict=True)
    }
    values["arguments"] = call.arguments.with_tensors(names).args
    values["state"] = {
        name: _SourceText(literal(_in_program(t.contiguous(), t, stored))) for name, t in call.state.items()
    }
    if call.backward is not None:
        laid = place_each(call.backward.cotangents, call.backward.strides)
        pairs = zip(laid, call.backward.cotangents, strict=True)
        values["cotangents"] = [_SourceText(literal(_in_program(own, g, stored))) for own, g in pairs]
    values |= {"seed": Draws.of(case.seed).seed, "dtype": getattr(torch, case.dtype) if case.dtype else None}
    return values | {"device": "cuda" if case.cell.device == "cuda" else None}


def _in_program(layout: Tensor, values: Tensor, stored: bytearray) -> object:
    """A tensor as a program has it: in its text, or as bytes in the file beside it."""
    if values.nbytes <= _IN_TEXT:
        return ProgramTensor(layout, values)
    raw = values.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
    text = f"read_stored({len(stored)}, {len(raw)}, {', '.join(map(str, (values.dtype, *values.shape)))})"
    stored += raw
    text += "" if layout.device.type == "cpu" else f".to({str(layout.device)!r})"
    dense = layout.is_contiguous() and not layout.storage_offset()
    return _SourceText(text if dense else f"laid({text}, {tuple(layout.stride())}, {layout.storage_offset()})")


def _targets(case: JudgedCase) -> tuple[str, ...]:
    """The lines that load and make the reference and the candidate."""
    lines = ["os.environ['TRITON_INTERPRET'] = '1'"] if "interpret" in case.flags else []
    for name, address, usual in (("reference", case.spec, SPECS), ("candidate", case.candidate, CANDIDATES)):
        path, module, target = parts_of(absolute(address))
        lines.append(f"module = load({str(path or module)!r})")
        lines += ["made = getattr(module, 'get_init_inputs', list)()"] if name == "reference" else []
        names = (target,) if target else usual
        lines.append(f"{name} = next(getattr(module, name) for name in {names} if hasattr(module, name))")
        lines.append(f"{name} = instance_of({name}, made, seed, dtype, device, state)")
        lines += [f"getattr({name}, 'eval', list)()"] if "eval" in case.flags else []
    return tuple(lines)


def _comparison(call: FailingCall, outlier: Outlier | None) -> tuple[str, ...]:
    """The lines that call reference and candidate, and ask whether the worst element is in its accept set.

    Raises:
        NoProgram: both the element and its exact value are NaN or infinite.
    """
    assert outlier is not None
    assert call.place is not None
    edges = outlier.edges
    if not math.isfinite(outlier.exact):
        if not math.isfinite(outlier.computed):
            raise NoProgram("Which NaN or infinity is right there is more than a few lines can say.")
        edges = Edges(outlier.exact, outlier.exact, not_finite=True)
    around = "torch.no_grad()"
    if call.manner is Manner.AUTOCAST:
        device = device_of((*call.arguments.tensors, *call.state.values()))
        around += f", torch.autocast({device!r}, dtype=torch.bfloat16)"
    calls = ("tensors_of(call(reference, copy.deepcopy(arguments)))", "tensors_of(call(candidate, arguments, right))")
    if call.backward is not None:
        floats = [i for i, t in enumerate(call.arguments.tensors) if t.dtype.is_floating_point]
        inputs = ", ".join(f"x{floats[each]}" for each in call.backward.moving)
        rest = f"arguments, [{inputs}], {call.backward.wanted!r}, cotangents, {call.backward.inner})"
        calls, around = (f"gradients_of(reference, {rest}", f"gradients_of(candidate, {rest}"), "torch.enable_grad()"
    index = ", ".join(map(str, outlier.index)) or "..."
    lines = (
        f"with torch.set_grad_enabled({call.backward is not None}):",
        f"    right = {calls[0]}",
        f"with {around}:",
        f"    outputs = {calls[1]}",
        f'print(f"torch computes {{float(right[{call.place}][{index}])!r}} of the reference")',
    )
    element = call.place, outlier.index, outlier.worst.exact, edges, outlier.worst.where
    return of_element(Script(lines=lines).then, *element).lines


_VACUOUS = "held, but half of the elements or more have a bound wider than themselves, or none"


def verdicts_of(judgement: Judgement, case: JudgedCase, store: Callable[[str, bytes], None]) -> tuple[Verdict, ...]:
    """The verdicts of a judgement.

    Args:
        judgement: of a candidate. case: what was asked of it, with no question chosen; its cells have its address.
        store: (id of a case, bytes) -> None: keeps the large tensors of the program of a failure.
    """
    dtype, device = judgement.assignment.dtype, judgement.assignment.device
    if judgement.verdict is Ruling.ERROR:
        cell = Cell(case.candidate, "FWD:given", dtype, device, SUBJECT)
        return (Verdict(cell, Outcome.ERROR, Code.DECLARATION, judgement.error or "no verdict"),)
    sha256 = dict(judgement.assignment.sha256)
    cells = [Cell(case.candidate, finding.question, dtype, device, SUBJECT) for finding in judgement.findings]
    return tuple(
        replace(each, reason=f"{each.reason}; asked with {judgement.assignment.others}")
        if each.cell.property in OF_OTHER_CALLS and judgement.assignment.others and each.failure is None else each
        for cell, finding in zip(cells, judgement.findings, strict=True)
        for each in [_verdict(cell, finding, case.of(cell, sha256), store)]
    )  # fmt: skip


def _snippet(finding: Finding, case: JudgedCase, store: Callable[[str, bytes], None]) -> str:
    """The program of a failure, or why there is none."""
    try:
        program, stored = write_program(finding, case)
    except NoProgram as err:
        return without(str(err))
    if stored:
        store(case.id, stored)
    return program


def _verdict(cell: Cell, finding: Finding, case: JudgedCase, store: Callable[[str, bytes], None]) -> Verdict:
    """The verdict of a finding; its failure is seen again by its program, or by the command that judges."""
    verdict = finding.verdict or verdict_of_question(cell, finding)
    failure = verdict.failure
    if failure is not None:
        message = f"{failure.message}\n  again      {shlex.join(case.words)}"
        snippet = _snippet(finding, case, store)
        failure = replace(failure, message=message, case_id=case.id, case=case.text, snippet=snippet)
    return replace(verdict, cell=cell, failure=failure, others=())


def verdict_of_question(cell: Cell, finding: Finding) -> Verdict:
    """The verdict of a finding, without a program that shows a failure again."""
    wrong, judged, elements = finding.wrong, finding.judged, max(finding.elements, finding.judged)
    of = functools.partial(Verdict, cell, finding.outcome, title=TABLE[finding.question].title)
    measure = Measure(samples=1, judged=judged, not_judged=elements - judged)
    if wrong is None or not finding.is_wrong:
        known = {Outcome.VERIFIED: Code.HELD, Outcome.REFUSED: Code.REFUSED}  # also of a NaN that spreads
        code = known.get(finding.outcome, Code.MOSTLY_NOT_JUDGED if wrong is None else wrong.code)
        reason = _VACUOUS if code is Code.MOSTLY_NOT_JUDGED else finding.text or "held"
        # A question about the call as a whole has judged one thing.
        return of(code, reason, Measure(samples=1, judged=1) if code is Code.HELD and not judged else measure)
    signs, at = Signs(samples=1), wrong.outlier
    if at is not None:
        measure, signs = measure.reaching(at.worst), Signs(samples=1, output=at.output, share=at.worst.share)
    return of(wrong.code, wrong.title, measure, Failure(wrong.code, wrong.title, str(wrong), signs=signs))
