"""The judge: calls a subject along a path, compares what comes with the formula, and tells the tally or raises.

What this is for: a check knows which promise it asks about; the judge knows how to ask and how to compare. It holds
what stays the same for a whole cell (op, subject, contract, device), and one `Tally` that counts.

What is hard here: which reading decides. The ball of the rounding reading is rigorous and cheap, so it judges every
output. The exact reading is slow, but it alone knows what NaN and infinities must give, and it checks the balls
themselves; so it is made where an operand is not finite, for one sample in a few otherwise, and for a failure, so
that the report can tell the exact value. Large samples are never read exactly as a whole: of a failure, the worst
elements are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...reference.algorithms import names_of
from ...reference.exact import Exact, evaluate
from ...reference.formats import FORMATS
from .. import process
from ..bound import accept, scale
from ..bound.contract import EXP2, Contract, contract
from ..bound.rounding import Ball, balls, balls_with_systematic, lengths
from ..op.declaration import OWN, Op, Sample, Subject, Tensor, arithmetic_of, dtype_name, to_array
from ..op.paths import Expected, Path, Problem
from ..op.script import Spelt, Telling
from ..op.transforms import Word, compiled, derivative_order, engine_for, path_name, required
from ..process import interrupt
from ..programs.along import along_path, telling
from ..programs.questions import of_equality, of_exception
from ..verdicts.verdict import Code
from ..verdicts.violation import Fault, Unsupported, Violation, raised
from .card import attribute, misshapen, outside
from .tally import LARGE, Tally
from .worst_element import worst_alone, worst_of

#: Above this many mpmath operations (elements x 4^order) the ball alone decides; it is a rigorous oracle by itself.
EXACT_BUDGET = 3000
#: In short profiles, one sample of finite operands in so many is read exactly as well. The balls would decide it too,
#: so what the exact reading adds there is a check of the balls. Samples with a NaN or an infinity are all read exactly,
#: because the exact reading alone knows everywhere what those must give.
EXACT_SHARE = 5
#: The same as EXACT_BUDGET for a failure, which is told in exact values where that takes seconds at most.
FAILURE_BUDGET = 14_000


class Judge:
    """Judges one subject of one op, sample by sample.

    Attributes:
        op, subject_name, subject: what is judged.
        compiled: whether every path of the subject is compiled before it is judged.
        contract: what an evaluation of the op may do, and so how far its outputs may be off.
        device: where the samples are. arithmetic: the device whose arithmetic the contract allows.
        light: whether this is a short profile, in which the slowest readings and compilers are left out.
        weighs_bias: whether the tally is told what of every bound may be the same error in every sample.
        tally: what the samples showed so far.
        between: calls other ops, for a check that does so between two calls of the subject; nothing by default.
    """

    def __init__(self, op: Op, subject_name: str, contract: Contract, device: str = "cpu", light: bool = True) -> None:
        """
        Args:
            op: the op. subject_name: which of its subjects.
            contract, device, light: see the attributes.
        """
        self.op, self.subject_name, self.contract, self.device, self.light = op, subject_name, contract, device, light
        self.subject: Subject = op.subject(subject_name)
        self.compiled = op.is_compiled(subject_name)
        self.arithmetic = arithmetic_of(subject_name, device)
        self.weighs_bias = False
        self.tally = Tally()
        self.between: Callable[[], None] = lambda: None
        self._likes: tuple[Sample, tuple[Tensor, ...]] | None = None

    def again(self) -> Judge:
        """A judge of the same subject, and of the same part of the cell, whose tally is empty: to repeat a failure."""
        fresh = Judge(self.op, self.subject_name, self.contract, self.device)
        fresh.tally.begin(self.tally.part)
        fresh.between = self.between
        return fresh

    def contract_of(self, order: int, wide: bool = False) -> Contract:
        """The contract of a path with `order` derivative steps besides the op's own; `wide`: computed in float64."""
        promises = self.op.promises
        allowed = {"flush": promises.flush, "algorithms": promises.algorithms}
        dtype = "float64" if wide else self.contract.stores.name
        return contract(dtype, self.arithmetic, order + promises.order, **allowed)

    def offered(self, words: Sequence[Word]) -> list[Word]:
        """The words that the op offers, with all of their steps and orders; Unsupported where there is none."""
        lacking = [self.op.promises.without & required(word) for word in words]
        if words and all(lacking):
            names = sorted(frozenset().union(*lacking))
            raise Unsupported(Code.NOT_APPLICABLE, f"{self.op.name} offers no {' and no '.join(names)}")
        return [w for w, lack in zip(words, lacking, strict=True) if not lack]

    def broken(
        self, code: Code, what: str, lines: Sequence[str] = (), *, where: str = "", path: str | None = None
    ) -> Violation:
        """The violation whose title is the op, where it was seen, and what is wrong.

        Args:
            code, what: what is broken, as a code and in words. lines: details, one a line.
            where: the call or the path in the title. path: the path that showed it, where it has another name.
        """
        title = f"{self.op.name} {where}".rstrip()
        return Violation(code, f"{title}: {what}", lines, where if path is None else path)

    # --------------------------------------------------------------------------------------------------- asking

    def call(self, function: Callable[..., Any], *args: Any, what: str = "", told: Telling | None = None) -> Any:
        """Run the subject; an exception on valid input is a violation.

        Args:
            function, args: what is run. what: its name in messages.
            told: tells the lines of a program that makes the same call, if they are known.
        """
        with self.tally.clock("op"):
            try:
                return process.undisturbed(function, args)
            except (Violation, Unsupported):
                raise
            # SystemExit and KeyboardInterrupt are caught, too: a subject that raises one has failed, and must not end
            # the run. What a signal handler of the user raised is passed on first.
            except BaseException as err:
                interrupt.reraise()
                found = raised(self.op.name, err, what)
                found.script = functools.partial(of_exception, told, f"{self.op.name} {what}") if told else None
                raise found from err

    def primal(self, sample: Sample, function: Subject | None = None, what: str = "forward") -> tuple[Tensor, ...]:
        """The outputs of the subject itself, or of another implementation, at a sample."""
        problem = Problem(self.op, sample.args)
        operation = problem.operation(self.subject if function is None else function)
        around = function.lines if isinstance(function, Spelt) else ()
        told = None if function and not around else lambda: along_path(self._path_around(sample, around))
        outputs: tuple[Tensor, ...] = self.call(operation, *problem.passive, *problem.inputs, what=what, told=told)
        return outputs

    def path(self, sample: Sample, word: Word, primal: Sequence[Tensor], engine: str = "func") -> Path:
        """The path of a word at a sample; `primal` are the outputs of the op itself there."""
        taken = engine_for(self.op.promises.without, engine)
        path = Path.drawn(self.op, sample, word, primal, taken, self.device)
        return replace(path, compiled=True) if self.compiled else path

    def _path_around(self, sample: Sample, around: tuple[str, ...]) -> Path:
        return replace(self.path(sample, (), ()), around=around)

    def run(self, path: Path, function: Subject | None = None, what: str = "") -> tuple[Tensor, ...]:
        """The outputs of the subject, or of another implementation, along a path; compiled where the subject is."""
        operation = path.problem.operation(self.subject if function is None else function)
        # Autograd differentiates what a function did, so with the eager engine the op is compiled and then
        # transformed. The transforms of torch.func can be compiled themselves, so there the whole transformed function
        # is.
        if self.compiled and path.engine == "eager":
            operation = compiled(operation)
        transformed = path.transformed(operation)
        if self.compiled and path.engine == "func":
            transformed = compiled(transformed)
        told = None if function and not path.around else functools.partial(along_path, path)
        outputs: tuple[Tensor, ...] = self.call(transformed, *path.operands, what=what or path.name, told=told)
        return outputs

    def read(self, expected: Expected, outputs: Sequence[Tensor] = ()) -> tuple[Ball, ...]:
        """The rounding reading of what is expected, for outputs whose dtype may say that all is computed in float64."""
        wide = expected.wide and bool(outputs) and all(y.dtype is torch.float64 for y in outputs)
        with self.tally.clock("reference"), lengths.noted() as noted:
            read = balls_with_systematic if self.weighs_bias else balls
            found = tuple(read(expected.formula, expected.operands, self.contract_of(expected.order, wide)))
        self.tally.longest_sum = noted.longest
        return found

    # -------------------------------------------------------------------------------------------------- comparing

    def hold(
        self, sample: Sample, word: Word = (), engine: str = "func", function: Subject | None = None,
        exactly: bool = True,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Judge every output of T(subject) at a sample.

        Args:
            sample: the input.
            word: the steps of T, innermost first; none for the subject itself.
            engine: who takes the steps, a name of `ENGINES`; autograd where the op does not offer torch.func.
            function: what is judged in place of the subject: the subject in another surrounding, for example; a
                `Spelt` one can be told in a program.
            exactly: whether an exact reading may be made besides the ball.

        Returns:
            The outputs.

        Raises:
            Violation: an output has another dtype than promised, or is not in its accept set, or the subject raised.
            Unsupported: the op has no differentiable argument, and the word differentiates.
        """
        if derivative_order(word) and not self.op.differentiable_positions(sample.args):
            raise Unsupported(Code.NOT_DIFFERENTIABLE, f"{self.op.name} declares no differentiable argument")
        with torch.no_grad():
            primal = self._primal_before(sample, word, engine_for(self.op.promises.without, engine), function)
        path = self.path(sample, word, primal, engine)
        if isinstance(function, Spelt):
            path = replace(path, around=function.lines)
        computed = self.run(path, function) if word or self.compiled else primal
        expected = path.expected(told=telling(path) if function is None or isinstance(function, Spelt) else None)
        if function is None:
            self.require_dtypes(path, computed)
        if self.light and self.tally.samples % EXACT_SHARE:
            exactly = exactly and not expected.finite
        try:
            self.against(expected, computed, exactly)
        except Violation as violation:
            violation.sample = sample
            if violation.fault is not None:
                violation.allowance = functools.partial(self._allowance, path, computed, violation.fault)
            raise
        return tuple(computed)

    def _primal_before(self, sample: Sample, word: Word, engine: str, function: Subject | None) -> tuple[Tensor, ...]:
        """The outputs of the op itself; before the second path at a sample only what they are like, without memory.

        Cotangents have the shapes of the outputs, which only a call of the op tells; so it is called once without a
        transform before there is a path.
        """
        if word and function is None and self._likes is not None and self._likes[0] is sample:
            return self._likes[1]
        primal = self.primal(sample, function, path_name(word, engine))
        if function is None:
            self._likes = sample, tuple(torch.empty_like(y, device="meta") for y in primal)
        return primal

    def _allowance(self, path: Path, computed: Sequence[Tensor], fault: Fault) -> str:
        """What a declaration would have to allow so that the outputs of a path were accepted, "" if nothing of a name.

        `fault` is the worst of the elements that were not.
        """
        promises = self.op.promises
        wider = {
            f"algorithms={{{name!r}}}": replace(promises, algorithms=promises.algorithms | {name})
            for name in (*names_of(self.op.reference), EXP2)
            if name not in promises.algorithms
        }
        if not promises.flush:
            wider["flush=True"] = replace(promises, flush=True)
        for what, allowed in wider.items():
            other = path.allowing(allowed)
            judge = Judge(other.problem.op, self.subject_name, self.contract, self.device)
            expected = other.expected()
            read = judge.read(expected, computed)
            found = [
                accept.place_in_accept_sets(to_array(y), FORMATS[dtype_name(y.dtype)], ball, None, expected.finite)
                for y, ball in zip(computed, read, strict=True)
            ]
            # An element that is not judged any more has not been accepted.
            if found[fault.output].judged[fault.index] and all(np.all(each.accepted) for each in found):
                return f"it would be accepted if the declaration allowed {what}"
        return ""

    def require_dtypes(self, path: Path, computed: Sequence[Tensor]) -> None:
        """Violation unless outputs have the dtypes promised, cotangents those of primals, tangents those of outputs.

        This comes before their values, which another format's bound would judge. Of tangents OWN alone is asked.
        """
        if not path.word and self.subject_name == OWN:
            promised = self.op.promises.dtypes(path.problem.args)
            got = tuple(t.dtype for t in computed)
            if got != promised:
                names = [", ".join(dtype_name(d) for d in dtypes) for dtypes in (got, promised)]
                found = self.broken(Code.ATTRIBUTE, f"got dtypes {names[0]}, need {names[1]}", where="forward", path="")
                raise found.showing(attribute(path, "[str(y.dtype) for y in outputs]", list(map(str, promised))))
        tangents = path.word == ("jvp",) and self.subject_name == OWN
        likes = path.primal if tangents else path.problem.inputs if path.word[-1:] == ("vjp",) else ()
        # Cotangents of the inputs come first; those of earlier directions may follow, which belong to no input.
        for i, (like, tensor, name) in enumerate(zip(likes, computed, path.names(), strict=False)):
            if tensor.dtype != like.dtype:
                given, need = dtype_name(tensor.dtype), dtype_name(like.dtype)
                wrong = f"{name} got {'' if tangents else 'co'}tangent dtype={given}, need {need}"
                found = self.broken(Code.ATTRIBUTE, wrong, where=path.name, path="")
                raise found.showing(attribute(path, f"str(outputs[{i}].dtype)", str(like.dtype)))

    def against(self, expected: Expected, computed: Sequence[Tensor], exactly: bool = True) -> None:
        """Judge computed outputs against a formula, by the ball and, where it can be made in time, the exact value."""
        rounded = self.read(expected, computed)
        with self.tally.clock("reference"):
            exactly = exactly and self.tally.part != LARGE and expected.cost(_elements(computed)) <= EXACT_BUDGET
            exact = evaluate(expected.formula, *expected.operands)[0] if exactly else None
        self.compare(expected, computed, rounded, exact)

    def compare(
        self, expected: Expected, computed: Sequence[Tensor], rounded: Sequence[Ball],
        exact: Sequence[Exact] | None = None,
    ) -> None:  # fmt: skip
        """Judge computed outputs against readings that were made before."""
        self._require_count(computed, rounded, expected.path, expected.told)
        for i, (tensor, ball) in enumerate(zip(computed, rounded, strict=True)):
            with self.tally.clock("compare"):
                self.output(expected, i, tensor, ball, None if exact is None else exact[i])

    def output(self, expected: Expected, index: int, tensor: Tensor, ball: Ball, exact: Exact | None = None) -> None:
        """Judge one output.

        Args:
            expected: what all outputs of the path are judged against. index: which of them this one is.
            tensor: the output. ball, exact: its readings; where there is no exact one, a failure asks for it.
        """
        name = expected.names[index]
        if tuple(tensor.shape) != ball.shape:
            raise misshapen(self.op.name, index, tensor, ball, name, expected.path, expected.told)
        computed = to_array(tensor)
        fmt, order = FORMATS[dtype_name(tensor.dtype)], expected.order + self.op.promises.order
        found = accept.place_in_accept_sets(computed, fmt, ball, exact, expected.finite, order)
        if not np.all(found.accepted):
            # The accept set around the exact value contains the one around the centre, because the distance of the two
            # is added to the bound. So an element at the edge may still be accepted here.
            if exact is None and self._tells(expected, tensor):
                exact = evaluate(expected.formula, *expected.operands)[0][index]
                found = accept.place_in_accept_sets(computed, fmt, ball, exact, expected.finite, order)
            one = None
            if exact is None:
                with self.tally.clock("reference"):
                    one = worst_alone(expected, index, computed, fmt, ball, found, order)
            if not np.all(found.accepted):
                raise outside(
                    self.op.name, self.contract_of(expected.order), expected, index, tensor, found, exact, one
                )
        worst = functools.partial(worst_of, tensor, found, exact, name, expected.path)
        told = expected.operands if self.tally.bins is not None else ()
        scaled = scale.scaled(fmt, found, self.contract_of(expected.order).roundoff, told)
        self.tally.output(found, name, expected.path, worst, ball.systematic, scaled)

    def require_outputs(
        self, computed: Sequence[Tensor], read: Sequence[Ball], path: str, told: Telling | None = None
    ) -> None:
        """Violation unless the outputs of a path are as many, and shaped, as the formula's.

        Args:
            computed, read: the outputs, and the formula's. path: of both.
            told: tells the lines of a program that computes the outputs.
        """
        self._require_count(computed, read, path, told)
        for i, (tensor, ball) in enumerate(zip(computed, read, strict=True)):
            if tuple(tensor.shape) != ball.shape:
                raise misshapen(self.op.name, i, tensor, ball, f"out[{i}]", path, told)

    def _require_count(self, computed: Sequence[Tensor], read: Sequence[Ball], path: str, told: Telling | None) -> None:
        if len(read) != len(computed):
            found = self.broken(Code.ATTRIBUTE, f"got {len(computed)} outputs, need {len(read)}", where=path)
            raise found.showing(told and functools.partial(of_equality, told, "len(outputs)", len(read), found.title))

    def _tells(self, expected: Expected, tensor: Tensor) -> bool:
        """Whether all of a failing output is told in exact values; the ball proves a failure without them."""
        return self.tally.part != LARGE and expected.cost(tensor.numel()) <= FAILURE_BUDGET


def _elements(tensors: Sequence[Tensor]) -> int:
    return sum(tensor.numel() for tensor in tensors)


def gradients(
    judge: Judge,
    outputs: Sequence[Tensor],
    leaves: Sequence[Tensor],
    cotangents: Sequence[Tensor],
    what: str = "vjp",
    retained: bool = False,
    graph: bool = False,
) -> list[Tensor | None]:
    """The gradients of leaves by autograd, None where one has none; outputs that require no grad are left out.

    Args:
        judge: calls the subject. outputs, leaves: of one call of it.
        cotangents: one for each output. what: what messages call this.
        retained: whether the graph is kept, so that it can be differentiated once more.
        graph: whether the gradients can be differentiated, too, which keeps the graph.
    """
    if not leaves:
        return []
    pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
    targets, given = [y for y, _ in pairs], [g for _, g in pairs]
    options = {"allow_unused": True, "retain_graph": retained or graph, "create_graph": graph}
    return list(judge.call(lambda: torch.autograd.grad(targets, leaves, given, **options), what=what))
