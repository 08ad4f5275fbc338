"""The failures of a run in groups that have one cause each.

What this is for: one fault of a kernel fails a hundred cells, in every dtype and under every transform. Whoever reads
"1,630 failures" learns less than from forty lines of which each is one thing to mend.

What is hard here: a cause is not seen, only its failures are. Failures are taken for one cause where the same error is
raised, or where the same op of torch gives wrong values along a path of the same shape. Where full precision fails,
the half types fail for the same reason in the same outputs. Where the half types alone lose some digits, the op or its
derivative is made of ops that round each, which is one cause for all ops. A law that is broken, or a jvp and vjp that
are no adjoints of each other, are what wrong values look like from another side. A derivative of what is wrong by
itself says nothing new, nor does an op that calls another one which is wrong in the same way.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

from ...oracles.verdicts.verdict import CANDIDATE, FAILED, Code, Failure, Outcome, Verdict, quantity, steps_of
from ...reference.dtypes import HALF_TYPES
from ..text import by_key, number, one_line
from .severity import Severity, gravity, severity_of

_VALUES = frozenset({Code.VALUE, Code.SPECIAL, Code.ADJOINT})
#: Words for dtypes in messages of torch: an error that names another dtype is the same error.
_DTYPES = re.compile(r"\b(c10::)?(BFloat16|Half|Float|Double|float64|float32|bfloat16|float16)\b")
#: The part of a title that belongs to the sample: which arguments were batched.
_SAMPLE = re.compile(r"\((in|out)_dims=.*?\), out_dims=[^)]*\)\)")
#: Names in messages, and the file of an assumption that is broken: one file has many of them for one call.
_QUOTED = re.compile(r"'[\w ]{1,30}'")
_ASSERTED = re.compile(r'INTERNAL ASSERT FAILED at "([^"]{1,200})"')
#: Shapes in messages, whose numbers were replaced by `#`.
_LISTS = re.compile(r"\[#?(, ?#)*\]")
#: What is wrong with an output beside its values. Under vmap a wrong number of outputs is an error of its own.
_ATTRIBUTE = re.compile(r"(got|has) (dtype|shape)|got \d+ outputs|from eager")
_OUTPUTS = "out_dims is not compatible with the structure of `outputs`"
#: The line of a message that says in which format an output was judged.
_FORMAT = re.compile(r"^ *format +(\w+)", re.MULTILINE)
#: The name of an output, and its number where there are several.
_INDEXED = re.compile(r"^([^\[]*)(?:\[(\d+)\])?")
#: The output that a title names: "t_out[1]".
_OUTSIDE = re.compile(r"([\w\[\]]+)(?: is)? outside its accept set")

Key = tuple[str, ...]


@dataclass(frozen=True)
class Occurrence:
    """One failure, and the verdict that has it."""

    verdict: Verdict
    failure: Failure

    @cached_property
    def dtype(self) -> str:
        """The narrowest dtype in the failure: that of the cell, or a half type in which the output was judged."""
        match, own = _FORMAT.search(self.failure.message), self.verdict.cell.dtype
        return own if match is None or own in HALF_TYPES or match[1] not in HALF_TYPES else match[1]

    @property
    def where(self) -> str:
        """The op of torch that does the work, or the op itself."""
        return self.failure.signs.kernel or self.verdict.cell.op

    @cached_property
    def severity(self) -> Severity:
        return severity_of(self.failure, self.dtype)


#: In place of the size of an error that is a NaN or an infinity where a number is right, or the reverse.
_NOT_FINITE = "NaN or ∞"


#: Whether a failure follows from those of another group.
Follows = Callable[[Occurrence, Sequence[Occurrence]], bool]


@dataclass(frozen=True)
class Cause:
    """Failures that are taken for one cause.

    Attributes:
        where: the op of torch, or the op, that it is in.
        path: the shape of the path: "forward", "vjp", "jvp", "higher derivatives", or what else was asked.
        occurrences: the failures.
    """

    where: str
    path: str
    occurrences: tuple[Occurrence, ...]

    @cached_property
    def worst(self) -> Occurrence:
        """The gravest failure; of equal ones that with the largest share, and of those the smallest sample."""
        return min(
            self.occurrences, key=lambda one: (gravity(one.severity), -_number(one), len(one.failure.case) or 10**9)
        )

    @property
    def severity(self) -> Severity:
        return self.worst.severity

    @cached_property
    def example(self) -> Occurrence:
        """The failure to show: of those as grave as the worst, one with a program of its own, and a small sample."""
        if self.occurrences[0].verdict.cell.subject == CANDIDATE:
            return self.occurrences[0]  # as the judgement shows it: what is wrong on the given inputs comes first
        grave = [one for one in self.occurrences if one.severity is self.severity]

        def rank(one: Occurrence) -> tuple[bool, bool, bool, int]:
            signs, half = one.failure.signs, one.dtype in HALF_TYPES
            return (path_shape(signs.path) != self.path, half, not one.failure.program, len(one.failure.case))

        return min(grave, key=rank)

    @property
    def cells(self) -> list[str]:
        return list(dict.fromkeys(one.verdict.cell.key for one in self.occurrences))

    @property
    def samples(self) -> int:
        return sum(max(one.failure.signs.samples, 1) for one in self.occurrences)

    def axis(self, name: str) -> list[str]:
        """The names that the cells have on one axis, in the order in which they come."""
        return list(dict.fromkeys(str(getattr(one.verdict.cell, name)) for one in self.occurrences))

    @property
    def outputs(self) -> list[str]:
        return sorted({one.failure.signs.output for one in self.occurrences if one.failure.signs.output})

    @property
    def common(self) -> list[str]:
        """Facts that hold of every failing sample and of no passing one, in each cell where several failed."""
        # One failing sample has too little in common with others to tell anything, unless its cell did find something.
        signs = [one.failure.signs for one in self.occurrences]
        facts = [set(each.common) for each in signs if each.common or each.samples > 1]
        return sorted(set.intersection(*facts)) if facts else []

    @property
    def title(self) -> str:
        """What is wrong, in one line."""
        failure = self.example.failure
        if failure.signs.error:
            return f"{self.where}: {failure.signs.error}"
        text = _SAMPLE.sub("", failure.title)
        return f"{self.where} {self.path}: {one_line(text.partition(': ')[2] or text, 140)}"

    @property
    def size(self) -> str:
        """The largest error as a share of the largest number; empty where it is not known."""
        share = _number(self.worst)
        return _NOT_FINITE if share == math.inf else number(share, 2) if share > 0 else ""

    @property
    def line(self) -> str:
        """The cause in one line: how severe, what, where it was seen, what failing samples share."""
        # The title tells of the example, which is another failure than the worst where that is harder to read.
        most = "" if self.worst is self.example else "up to "
        size = self.size and f" ({most}{self.size}{'' if self.size == _NOT_FINITE else ' of the largest number'})"
        facts = f"; with {', '.join(self.common)}" if self.common else ""
        dtypes = ", ".join(self.axis("dtype"))
        extent = f"{quantity(len(self.cells), 'cell')}, {quantity(self.samples, 'sample')}"
        return one_line(f"{self.severity}{size}: {self.title}; {dtypes}; {extent}{facts}", 400)


def causes_of(verdicts: Iterable[Verdict]) -> list[Cause]:
    """The causes of what failed or crashed, the gravest first; of equally grave ones that of most cells."""
    outcomes = FAILED | {Outcome.CRASH}
    occurrences = [Occurrence(v, failure) for v in verdicts if v.outcome in outcomes for failure in v.causes]
    groups = _merge_groups(by_key(occurrences, _key))
    causes = [Cause(key[1], key[2], tuple(group)) for key, group in groups.items()]
    return sorted(causes, key=lambda cause: (gravity(cause.severity), -len(cause.cells)))


def path_shape(path: str) -> str:
    """ "forward", "vjp", "jvp", or "higher derivatives"; what is no path of derivatives is "forward"."""
    if path.startswith("primal"):
        # Forward AD may compute the primal anew, by the ops of its formula.
        return "jvp" if "jvp" in path or "tangents" in path else "forward"
    steps = steps_of(path)
    return "forward" if not steps else steps[0] if len(steps) == 1 else "higher derivatives"


def _key(one: Occurrence) -> Key:
    """(subject, where, path, what else tells it apart)."""
    cell, failure = one.verdict.cell, one.failure
    signs, where = failure.signs, one.where
    if failure.code is Code.CRASHED:
        # The same signal at the same kind of samples comes from the same line, whichever op leads there.
        return cell.subject, "", cell.property, "crash", signs.error
    if _OUTPUTS in signs.error:
        return cell.subject, "", "attributes", "attribute"
    if signs.error:
        # The same text comes from the same line, whichever op leads there.
        asserted = _ASSERTED.search(signs.error)
        text = _QUOTED.sub("'…'", _LISTS.sub("[#]", _DTYPES.sub("<dtype>", signs.error)))
        return cell.subject, "", "", "raised", asserted[1] if asserted else text
    if failure.code in _VALUES or (failure.code is Code.BITS and cell.property == "DATA"):
        if signs.path.startswith("law:"):
            return cell.subject, where, signs.path, "law"
        return _value_key(one, where)
    if failure.code is Code.NOT_RAISED:
        return cell.subject, where, signs.path, str(failure.code)
    text = _SAMPLE.sub("", failure.title)
    attribute = failure.code in (Code.BITS, Code.ATTRIBUTE) and _ATTRIBUTE.search(text)
    if attribute and re.search(r"dtype[:=]|has dtype", f"{text} {failure.message}"):
        # Tensors of several dtypes are promoted by whatever takes the place of the op, whichever op that is.
        return cell.subject, "", "another dtype", "attribute"
    if attribute:
        return cell.subject, "" if "outputs" in attribute[0] else where, "attributes", "attribute"
    if failure.code is Code.BITS:
        # Which kernel it is matters little to how its sums are shared among threads, or its calls told apart.
        return cell.subject, "", cell.property, str(failure.code)
    return cell.subject, where, str(failure.code), str(failure.code)


def _value_key(one: Occurrence, where: str) -> Key:
    cell, failure = one.verdict.cell, one.failure
    path, half = path_shape(failure.signs.path), "half" if one.dtype in HALF_TYPES else "full"
    kind = "adjoint" if failure.code is Code.ADJOINT else "special" if failure.code is Code.SPECIAL else "values"
    if cell.property == "EMPTY":
        # A kernel that has nothing to do returns early, in front of its values as of its derivatives.
        return cell.subject, where, "without elements", "values"
    if half == "full" and one.severity is Severity.NEGLIGIBLE:
        # Less than one rounding of the largest number is what another order of the same operations makes.
        return cell.subject, "", "forward" if path == "forward" else "derivatives", "negligible"
    if half == "half" and kind != "special":
        # Derivatives of every order and in both modes are made of the same ops, each of which rounds to half.
        path, kind = "forward" if path == "forward" and kind == "values" else "derivatives", "values"
        if failure.code is Code.ADJOINT or one.severity in (Severity.DIGITS, Severity.NEGLIGIBLE):
            where = ""
    return cell.subject, where, path, kind, half


def _merge_groups(groups: dict[Key, list[Occurrence]]) -> dict[Key, list[Occurrence]]:
    """Groups that follow from another one are added to it; see the module."""
    members = {key: list(group) for key, group in groups.items()}
    # What is special in the half types joins their other failures first, and these then join those in full precision.
    for key in sorted(members, key=lambda key: "values" in key[3:4]):
        remaining: list[Occurrence] = []
        for one in members[key]:
            home = _home(key, one, members)
            (remaining if home is None else home).append(one)
        members[key] = remaining
    named: dict[Key, list[Occurrence]] = {}
    for key, group in members.items():
        ops = list(dict.fromkeys(one.where for one in group))
        if ops:
            where = key[1] or (ops[0] if len(ops) == 1 else f"{ops[0]} and {len(ops) - 1} more")
            named[key[0], where, key[2] or "raises", *key[3:]] = group
    return named


def _home(key: Key, one: Occurrence, groups: dict[Key, list[Occurrence]]) -> list[Occurrence] | None:
    """The group that a failure of a group follows from; None where it stays in its own."""
    for other, follows in _homes(key, one):
        if other != key and other in groups and follows(one, groups[other]):
            return groups[other]
    return None


def _homes(key: Key, one: Occurrence) -> list[tuple[Key, Follows]]:
    """The groups that a failure of a group may follow from, the likeliest first, and when it does."""
    # An op that does not fail there by itself has another cause, even where the same kernel does its work.
    higher, law = (key[2], key[-1]) == ("higher derivatives", "full"), key[3:] == ("law",)
    follows = _is_derivative if higher else _of_kernel if law else _fails_alike
    called: list[tuple[Key, Follows]] = [(other, _calls_wrong) for other in _groups_called(key, one)]
    return [(other, follows) for other in _groups_of_same_op(key, one)] + called


def _groups_of_same_op(key: Key, one: Occurrence) -> list[Key]:
    """The groups of the same op, or of all ops, that a failure of a group may follow from, the likeliest first."""
    if key[3:] == ("law",):
        paths = ("forward", "vjp", "jvp")
        of_kernel: list[Key] = [(*key[:2], path, "values", of) for of in ("full", "half") for path in paths]
        return [*of_kernel, (key[0], "", "forward", "values", "half")] if one.dtype in HALF_TYPES else of_kernel
    if len(key) != 5 or key[4] not in ("full", "half"):
        return []
    subject, _, path, kind, half = key
    where, steps = one.where, steps_of(one.failure.signs.path)
    if kind == "adjoint":
        return [(subject, where, way, "values", "full") for way in ("jvp", "vjp")]
    if half == "full" and path == "higher derivatives":
        # The innermost step is written last.
        return [(subject, where, steps[-1], "values", "full")]
    if half == "full":
        return [(subject, where, path, "values", "full")] if kind == "special" else []
    own = path_shape(one.failure.signs.path)
    ways = (own, "jvp", "vjp") if one.failure.code is Code.ADJOINT else (own, *steps[-1:])
    if kind == "values" and path == "forward":
        return [(subject, where, path, kind, "full"), (subject, "", path, kind, "half")]
    keys: list[Key] = [(subject, where, way, kind, "full") for way in dict.fromkeys(ways)]
    # What overflows float16 on its way is wrong for the reason that it is inaccurate elsewhere.
    half_path = "forward" if path == "forward" else "derivatives"
    if kind == "special":
        keys += [(subject, where, way, "values", of) for way, of in ((half_path, "half"), (path, "full"))]
    keys.append((subject, "", half_path, "values", "half"))
    return keys


def _groups_called(key: Key, one: Occurrence) -> list[Key]:
    """The groups of ops that the failing one calls.

    torch computes the derivative of an op by another op, as that of `log_sigmoid_forward` by `log_sigmoid_backward`. So
    a derivative of the second order of the first is one of the first order of the second. An op that no single one does
    the work of, as `cross_entropy`, is wrong along the same path as any that it is made of.
    """
    signs, steps = one.failure.signs, steps_of(one.failure.signs.path)
    if len(key) != 5 or key[4] not in ("full", "half"):
        return []
    pairs: list[tuple[str, str]] = []
    if not signs.kernel:
        ways = ("jvp", "vjp") if key[3] == "adjoint" else (path_shape(signs.path),)
        pairs += [(op, way) for op in signs.calls for way in ways]
    if len(steps) > 1:
        # Of an order yet higher it follows from the innermost step that is left, as it would in the same op.
        inner_ways = dict.fromkeys((path_shape("∘".join(steps[:-1])), steps[-2]))
        pairs += [(op, way) for op in signs.calls if op != signs.kernel for way in inner_ways]
    return [(key[0], op, path, "values", "full") for op, path in pairs]


def _fails_alike(one: Occurrence, group: Sequence[Occurrence]) -> bool:
    """Whether a failure is of an op and of an output, as far as that is known, which fail in a group, too.

    The tangent of an output that is wrong is one of the same output.
    """
    same = [_output_name(other.failure) for other in group if other.verdict.cell.op == one.verdict.cell.op]
    output = _output_name(one.failure)
    return bool(same) and (not output or "" in same or output in same or output.removeprefix("t_") in same)


def _of_kernel(one: Occurrence, group: Sequence[Occurrence]) -> bool:
    """Whether a law is broken in outputs of a kernel that is wrong in a group, in whichever op.

    A law is off by more than the bounds of both of its sides together, so one of them is wrong by itself, and an op
    that does not fail there was not asked at that sample.
    """
    output = _output_name(one.failure)
    same = [_output_name(other.failure) for other in group if other.where == one.where]
    return bool(same) and (not output or "" in same or output in same)


def _calls_wrong(one: Occurrence, group: Sequence[Occurrence]) -> bool:
    """Whether an op that the failing one calls is wrong by itself in the same output, as gravely."""
    output = _output_name(one.failure)
    return any(
        other.where in one.failure.signs.calls
        and _output_name(other.failure) in (output, output.removeprefix("t_"))
        and gravity(other.severity) <= gravity(one.severity)
        for other in group
    )


def _output_name(failure: Failure) -> str:
    """The output's name; under vmap it is the slices of the same output that are wrong."""
    return failure.signs.output.removeprefix("slices of ")


def _is_derivative(one: Occurrence, group: Sequence[Occurrence]) -> bool:
    """Whether a failure is a derivative of a result that is wrong by itself, as gravely and as often, in the same op.

    The tangent of a tangent, "t_t_out[1]", is that of "t_out[1]". Where "t_out[0]" is wrong already, nobody looked at
    the outputs behind it. The other names of higher derivatives are those of arguments, and do not tell which output
    they go back to.
    """
    output = _output_of(one.failure)
    inner = output.removeprefix("t_")
    return any(
        other.verdict.cell.op == one.verdict.cell.op
        and other.dtype not in HALF_TYPES
        and (inner == output or _stands_before(_output_of(other.failure), inner))
        and gravity(other.severity) <= gravity(one.severity)
        and other.failure.signs.samples >= one.failure.signs.samples
        for other in group
    )


def _stands_before(output: str, other: str) -> bool:
    """Whether an output is another one, or is judged before it."""
    (name, number), (its, last) = (_INDEXED.findall(text)[0] for text in (output, other))
    return bool(name == its and int(number or 0) <= int(last or 0))


def _output_of(failure: Failure) -> str:
    """The output outside its accept set, with its index where there are several."""
    match = _OUTSIDE.search(failure.title)
    return failure.signs.output if match is None else match[1]


def _number(one: Occurrence) -> float:
    return one.failure.signs.share or 0.0
