"""The judge calls a subject along a path and compares its outputs with the formula; then it counts them, or raises.

What this is for: a check knows which promise it tests; the judge knows how to call and how to compare. A judge holds
everything that is constant in a cell (op, subject, contract, device), and one `Tally`, which counts.

What is hard here: which reading of the formula decides. The ball of the rounding reading is rigorous and cheap, so
every output is judged by its ball. The exact reading is slow, but only it says which results are right for NaN and
infinities, and it checks the balls. So the formula is also read exactly where an operand is not finite, for one in
`EXACT_SHARE` of the other samples, and after a failure, for the exact value in the report. A large sample is never read
exactly as a whole: after a failure, its worst elements are read exactly, one by one.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import torch

from ...reference.choice import has_residual
from ...reference.exact import Exact
from ...reference.formats import FORMATS
from .. import process
from ..bound import scale
from ..bound.contract import Contract, contract
from ..bound.rounding import Ball, balls, balls_with_systematic, lengths
from ..machine.limits import beyond_machine
from ..machine.ptx import approximations, hardware
from ..op.declaration import OWN, Op, Sample, Subject, Tensor, arithmetic_of, dtype_name, to_array
from ..op.paths import Expected, Path, Problem
from ..op.script import CallVariant, ScriptMaker
from ..op.transforms import Word, compiled, derivative_order, engine_for, path_name, required
from ..process import interrupt
from ..programs.along import along_path, defer_script
from ..programs.questions import of_equality, of_exception
from ..verdicts.verdict import Code, Worst
from ..verdicts.violation import Unsupported, Violation, raised
from . import native
from .card import allowance, describe_worst, exact_values, find_worst_alone, worst_at
from .holding import OperandFacts, Standing, find_mismatch, hold, of_dtypes
from .tally import LARGE, Tally

#: The most mpmath operations (elements x 4^order) of an exact reading, beyond which the ball alone decides, which is
#: rigorous by itself; and the most for the exact values of a failure in the report, which take some seconds.
EXACT_BUDGET, FAILURE_BUDGET = 3000, 14_000
#: In short profiles one in this many samples with finite operands is also read exactly, as a check of the balls. All
#: samples with a NaN or an infinity are, because only the exact reading says everywhere what these must give.
EXACT_SHARE = 5
#: The outputs of a formula as balls, and as exact values, or None where the formula was not read exactly.
Readings = tuple[Sequence[Ball], Sequence[Exact] | None]


class Judge:
    """Judges one subject of one op, sample by sample.

    Attributes:
        op, subject_name, subject: the op, and the name and the function of the implementation that is judged.
        compiled: whether every path of the subject is compiled before it is judged.
        contract: the roundings that an evaluation of the op may make, which bound the error of its outputs.
        device: where the samples are. arithmetic: the device whose arithmetic the contract allows.
        light: whether this is a short profile, which leaves out the slowest readings and compilers.
        weighs_bias: whether the tally also gets the part of each bound that may be the same error in every sample.
        tally: the counts of all samples so far.
        between: calls other ops; a check may run it between two calls of the subject. By default it does nothing.
        hardware: other hardware that the PTX ISA allows, on each of which a subject that uses approximations is judged.
    """

    def __init__(self, op: Op, subject_name: str, contract: Contract, device: str = "cpu", light: bool = True) -> None:
        """
        Args:
            op: the op. subject_name: the name of one of its subjects.
            contract, device, light: see the attributes.
        """
        self.op, self.subject_name, self.contract, self.device, self.light = op, subject_name, contract, device, light
        self.subject: Subject = op.subject(subject_name)
        self.compiled = op.is_compiled(subject_name)
        self.arithmetic = arithmetic_of(subject_name, device)
        self.weighs_bias = False
        self.tally = Tally()
        self.between: Callable[[], None] = lambda: None
        self.hardware: Sequence[hardware.Hardware] = ()
        self._likes: tuple[Sample, tuple[Tensor, ...]] | None = None

    def again(self) -> Judge:
        """A judge of the same subject and part of the cell with an empty tally, which repeats a failure."""
        fresh = Judge(self.op, self.subject_name, self.contract, self.device)
        fresh.tally.part = self.tally.part
        fresh.between, fresh.hardware = self.between, self.hardware
        return fresh

    def on(self, device: str) -> Judge:
        """The same judge, with the same tally, of samples on another device."""
        other = copy.copy(self)
        other.device = device
        return other

    def of(self, op: Op) -> Judge:
        """The same judge, with the same tally, of an op with less to ask, or with more that is allowed."""
        other = copy.copy(self)
        other.op = op
        return other

    def contract_of(self, order: int, wide: bool = False) -> Contract:
        """The contract of a path with `order` derivative steps besides the op's own; that of float64 if `wide`."""
        promises = self.op.promises
        dtype, terms = "float64" if wide else self.contract.stores.name, promises.arithmetic.terms
        if terms is not None:
            return terms.contract(dtype, self.arithmetic, order + promises.order)
        allowed = {"flush": promises.arithmetic.flush, "algorithms": promises.arithmetic.algorithms}
        return contract(dtype, self.arithmetic, order + promises.order, **allowed)

    def offered(self, words: Sequence[Word]) -> list[Word]:
        """The words all of whose steps and orders the op offers; Unsupported if it offers none of the words."""
        lacking = [self.op.promises.without & required(word) for word in words]
        if words and all(lacking):
            names = sorted(frozenset().union(*lacking))
            raise Unsupported(Code.NOT_APPLICABLE, f"{self.op.name} offers no {' and no '.join(names)}")
        return [w for w, lack in zip(words, lacking, strict=True) if not lack]

    def violation(
        self, code: Code, what: str, lines: Sequence[str] = (), *, where: str = "", path: str | None = None
    ) -> Violation:
        """The violation whose title names the op, the call or path, and what is wrong.

        Args:
            code, what: the fault, as a code and in words. lines: details, one a line.
            where: the call or the path in the title. path: the path that showed the fault; `where` by default.
        """
        title = f"{self.op.name} {where}".rstrip()
        return Violation(code, f"{title}: {what}", lines, where if path is None else path)

    def call(
        self, function: Callable[..., Any], *args: Any, what: str = "", make_script: ScriptMaker | None = None
    ) -> Any:
        """Call a function of the subject; an exception on valid input is a violation.

        Args:
            function, args: the function, and its arguments. what: the name of the call in messages.
            make_script: makes the lines of a program with the same call; None where no program can make that call.
        """
        with self.tally.clock("op"):
            try:
                return process.undisturbed(function, args, self.device)
            except (Violation, Unsupported):
                raise
            # SystemExit and KeyboardInterrupt are caught, too: a subject that raises one has failed, and must not end
            # the run. An exception from a signal handler of the user is raised again first.
            except BaseException as err:
                interrupt.reraise()
                if self.subject_name == OWN and (beyond := beyond_machine(err)):
                    raise self.violation(Code.NO_DEVICE, beyond, where=what) from err
                violation = raised(self.op.name, err, what)
                violation.make_script = (
                    functools.partial(of_exception, make_script, f"{self.op.name} {what}") if make_script else None
                )
                raise violation from err

    def primal(self, sample: Sample, function: Subject | None = None, what: str = "forward") -> tuple[Tensor, ...]:
        """The outputs of the subject, or of `function` in its place, at a sample, without any transform."""
        problem = Problem(self.op, sample.args)
        operation = problem.operation(self.subject if function is None else function)
        around = function.lines if isinstance(function, CallVariant) else ()
        make_script = (
            None if function and not around else lambda: along_path(replace(self.path(sample, (), ()), around=around))
        )
        operands = *problem.passive, *problem.inputs
        outputs: tuple[Tensor, ...] = self.call(operation, *operands, what=what, make_script=make_script)
        return outputs

    def path(self, sample: Sample, word: Word, primal: Sequence[Tensor], engine: str = "func") -> Path:
        """The path of a word at a sample; `primal` are the outputs of the op itself there."""
        engine = engine_for(self.op.promises.without, engine)
        path = Path.draw(self.op, sample, word, primal, engine, self.device)
        return replace(path, compiled=True) if self.compiled else path

    def run(self, path: Path, function: Subject | None = None, what: str = "") -> tuple[Tensor, ...]:
        """The outputs of the subject, or of `function` in its place, along a path; compiled if the subject is."""
        operation = path.problem.operation(self.subject if function is None else function)
        # Autograd records the operations of a call, so for the eager engine the op is compiled and then transformed.
        # The transforms of torch.func can be compiled, so for that engine the whole transformed function is compiled.
        if self.compiled and path.engine == "eager":
            operation = compiled(operation)
        transformed = path.transformed(operation)
        if self.compiled and path.engine == "func":
            transformed = compiled(transformed)
        make_script = None if function and not path.around else defer_script(path)
        what = what or path.name
        outputs: tuple[Tensor, ...] = self.call(transformed, *path.operands, what=what, make_script=make_script)
        return outputs

    def read(self, expected: Expected, outputs: Sequence[Tensor] = ()) -> tuple[Ball, ...]:
        """The balls of the expected outputs, under the contract of float64 where `outputs` are float64 by request."""
        wide = expected.wide and bool(outputs) and all(y.dtype is torch.float64 for y in outputs)
        with self.tally.clock("reference"), lengths.record_lengths() as sums:
            read = balls_with_systematic if self.weighs_bias else balls
            readings = tuple(read(expected.formula, expected.operands, self.contract_of(expected.order, wide)))
        self.tally.longest_sum = sums.longest
        return readings

    def hold(
        self, sample: Sample, word: Word = (), *engines: str, function: Subject | None = None, exactly: bool = True
    ) -> tuple[Tensor, ...]:
        """Judge every output of T(subject) at a sample.

        Args:
            sample: the input.
            word: the steps of T, innermost first; none for the subject itself.
            engines: names of `ENGINES`, which take the steps in turn; by default torch.func, and autograd where the op
                does not offer torch.func.
            function: is judged in place of the subject, for example the subject inside of autocast. A program can show
                a failure of a `CallVariant`.
            exactly: whether an exact reading may be made besides the ball.

        Returns:
            The outputs of the last engine.

        Raises:
            Violation: an output has another dtype than promised, an element is outside its accept set, or the subject
                raised.
            Unsupported: the op has no differentiable argument, and the word differentiates.
        """
        if derivative_order(word) and not self.op.differentiable_positions(sample.args):
            raise Unsupported(Code.NOT_DIFFERENTIABLE, f"{self.op.name} declares no differentiable argument")
        readings: Readings | None = None
        for engine in engines or ("func",):
            executed = approximations.executed.total()
            path, computed = self._outputs_along(sample, word, engine, function)
            script = defer_script(path) if function is None or isinstance(function, CallVariant) else None
            expected = path.expected(make_script=script)
            if function is None:
                self.require_dtypes(path, computed)
            try:
                # All engines take the same derivatives at the same operands, so the formula is read once. Where the
                # dtypes of the outputs choose the contract (`read`), it is read for each engine.
                if readings is None or expected.wide:
                    often = not self.light or self.tally.samples % EXACT_SHARE == 0
                    readings = self._readings(expected, computed, exactly and (often or not expected.finite))
                self.compare(expected, computed, *readings)
                for other in self.hardware if approximations.executed.total() > executed else ():
                    with hardware.on(other):
                        computed_there = self.run(path, function)
                    self.compare(replace(expected, path=f"{expected.path}, {other}"), computed_there, *readings)
            except Violation as violation:
                violation.sample = sample
                if violation.outlier is not None:
                    violation.allowance = functools.partial(allowance, self, path, computed, violation.outlier)
                raise
        return tuple(computed)

    def _outputs_along(
        self, sample: Sample, word: Word, engine: str, function: Subject | None
    ) -> tuple[Path, tuple[Tensor, ...]]:
        """The path of a word at a sample, and the outputs of the subject, or of `function` in its place, along it."""
        with torch.no_grad():
            primal = self._primal_before(sample, word, engine_for(self.op.promises.without, engine), function)
        path = self.path(sample, word, primal, engine)
        if isinstance(function, CallVariant):
            path = replace(path, around=function.lines)
        return path, self.run(path, function) if word or self.compiled else primal

    def _primal_before(self, sample: Sample, word: Word, engine: str, function: Subject | None) -> tuple[Tensor, ...]:
        """The outputs of the op without a transform; meta tensors like them after the first path at a sample.

        Cotangents have the shapes of the outputs, which are known only after a call of the op. So the op is called once
        for each sample without a transform, before a path is drawn.
        """
        if word and function is None and self._likes is not None and self._likes[0] is sample:
            return self._likes[1]
        primal = self.primal(sample, function, path_name(word, engine))
        if function is None:
            self._likes = sample, tuple(torch.empty_like(y, device="meta") for y in primal)
        return primal

    def require_dtypes(self, path: Path, computed: Sequence[Tensor]) -> None:
        """Raise a Violation unless outputs have the promised dtypes, gradients the inputs', and tangents the outputs'.

        Dtypes are compared before values, because the bound of a value depends on its dtype. The dtypes of tangents are
        compared for the subject OWN only. Outputs must be on the device of the cell.
        """
        script, is_own = defer_script(path), self.subject_name == OWN
        if not path.word:
            home = [SimpleNamespace(device=y.device if y.device.type == self.device else self.device) for y in computed]
            self.require_alike(computed, home, "device", names=path.names(), where="forward", make_script=script)
        if not path.word and is_own:
            promised = of_dtypes(self.op.promises.dtypes(path.problem.args))
            self.require_alike(computed, promised, "dtype", where="forward", path="", make_script=script)
        tangents = path.primal if path.word == ("jvp",) and is_own else ()
        # Cotangents of the inputs come first; those of earlier directions may follow, which belong to no input.
        likes = path.problem.inputs if path.word[-1:] == ("vjp",) else tangents
        computed, likes = computed[: len(likes)], likes[: len(computed)]
        self.require_alike(computed, likes, "dtype", names=path.names(), where=path.name, path="", make_script=script)

    def require_alike(
        self, got: Sequence[Tensor], need: Sequence[Any], *kinds: str, names: Sequence[str] = (), where: str = "",
        path: str | None = None, make_script: ScriptMaker | None = None, code: Code = Code.ATTRIBUTE,
    ) -> None:  # fmt: skip
        """Raise a Violation unless outputs are as many as they must be, and have the right attributes.

        Args:
            got, need, kinds, names: as for `find_mismatch`. where, path, code: as for `violation`.
            make_script: makes the lines of a program that computes the outputs; None where no program can.
        """
        wrong = find_mismatch(got, need, *kinds, names=names)
        if wrong is not None:
            violation = self.violation(code, wrong.text, where=where, path=path)
            show = make_script and functools.partial(
                of_equality, make_script, wrong.expression, wrong.need, violation.title
            )
            raise violation.showing(show)

    def against(self, expected: Expected, computed: Sequence[Tensor], exactly: bool = True) -> None:
        """Judge computed outputs against a formula, by balls, and by exact values where `EXACT_BUDGET` allows them."""
        self.compare(expected, computed, *self._readings(expected, computed, exactly))

    def _readings(self, expected: Expected, computed: Sequence[Tensor], exactly: bool) -> Readings:
        """The balls of a formula, and its exact values, or None unless `exactly` and `EXACT_BUDGET` allow them."""
        rounded = self.read(expected, computed)
        with self.tally.clock("reference"):
            cheap = self.tally.part != LARGE and not has_residual(rounded)
            cheap = cheap and expected.cost(sum(y.numel() for y in computed)) <= EXACT_BUDGET
            return rounded, exact_values(expected) if exactly and cheap else None

    def compare(
        self, expected: Expected, computed: Sequence[Tensor], rounded: Sequence[Ball],
        exact: Sequence[Exact] | None = None,
    ) -> None:  # fmt: skip
        """Judge computed outputs against the readings of the formula, one for each output."""
        script, names = expected.make_script, expected.names
        self.require_alike(computed, rounded, "shape", names=names, where=expected.path, make_script=script)
        for i, (tensor, ball) in enumerate(zip(computed, rounded, strict=True)):
            with self.tally.clock("compare"):
                self.output(expected, i, tensor, ball, None if exact is None else exact[i])

    def output(self, expected: Expected, index: int, tensor: Tensor, ball: Ball, exact: Exact | None = None) -> None:
        """Judge one output.

        Args:
            expected: the formula along the path. index: the number of the output. tensor: the output.
            ball, exact: its readings; without an exact one, one is made after an element is refused.
        """
        name = expected.names[index]
        facts = OperandFacts.FINITE if expected.finite else OperandFacts.UNKNOWN
        order, fmt = expected.order + self.op.promises.order, FORMATS[dtype_name(tensor.dtype)]

        def place(exact: Exact | None) -> Standing:
            standing = hold(name, tensor, ball, facts, order, exact=exact)
            return native.set_aside(self.tally, expected, index, tensor, standing) if standing.is_outside else standing

        standing = place(exact)
        if standing.wrong is not None:  # its shape, or what it leaves of an equation
            raise self.violation(standing.wrong.code, standing.wrong.title, standing.wrong.lines, where=expected.path)
        if standing.in_sets is None:
            self.tally.count(standing.judged, standing.left)
            return
        # The accept set around the exact value contains the one around the centre, because the distance between centre
        # and exact value is added to the bound. So an element next to the edge may be accepted now.
        if standing.is_outside and exact is None and self._tells(expected, tensor):
            every = exact_values(expected)
            exact = None if every is None else every[index]
            standing = place(exact)
        elements, alone = standing.in_sets, None
        assert elements is not None
        if standing.is_outside and exact is None:
            with self.tally.clock("reference"):
                alone = find_worst_alone(expected, index, to_array(tensor), fmt, ball, elements, order)
        if standing.is_outside:
            raise describe_worst(self.op.name, expected, index, tensor, standing, exact, alone)

        def worst(at: tuple[Any, ...]) -> Worst:
            return worst_at(name, at, expected.path, float(to_array(tensor)[at]), fmt, elements, exact)

        operands = expected.operands if self.tally.bins is not None else ()
        scaled = scale.scaled(fmt, elements, self.contract_of(expected.order).roundoff, operands)
        self.tally.output(elements, name, expected.path, worst, ball.systematic, scaled)

    def _tells(self, expected: Expected, tensor: Tensor) -> bool:
        """Whether a failing output is read exactly as a whole, for the report: the ball alone proves the failure."""
        return self.tally.part != LARGE and expected.cost(tensor.numel()) <= FAILURE_BUDGET
