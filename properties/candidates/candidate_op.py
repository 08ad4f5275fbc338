"""A candidate as an op: its formula is the spec as it is read, its samples are calls that the spec takes.

What this is for: by this every property of the table can be asked of a candidate, by the engine that asks it of an op,
here or in a process apart.

What is hard here: a property is judged where the candidate runs, for a transform of torch takes the function itself. So
its verdict is worth what the candidate's process is worth, and the questions come first. A candidate declares nothing:
it is called once in each way that a property may need, and what it refuses by an exception it does not offer. And a
property may ask for more than plain PyTorch gives, so the spec is a subject, too: a candidate is not failed for what
its spec fails as well.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode
from torch.autograd import forward_ad

from ...oracles.bound.terms import Terms
from ...oracles.op.declaration import OWN, Draft, Op, Promises, Sample, dtype_name, is_float
from ...oracles.op.documented import Documented
from ...oracles.op.paths import in_arguments
from ...oracles.op.transforms import OFFERS
from ...oracles.specs import SpecFormula
from ...oracles.specs.storage import STORAGE_DTYPES
from ...oracles.verdicts.data import as_data
from ...oracles.verdicts.verdict import FAILED, Cell, Outcome, Verdict
from ...oracles.verdicts.violation import Code, Unsupported, error_lines, error_name
from ..declaring.choices import choose
from ..declaring.strategies import ORDINARY
from ..declaring.user_samples import dtypes_when_called
from ..engine.guard import guard
from ..engine.samples import Settings
from ..places.here import Here
from ..table import PROPERTIES, Where
from .arguments import Args, CallArguments, Tensor, call, call_with_state, copied_state, device_of
from .cases import DEVICE, SUBJECT
from .domain.copies import safe_calls
from .domain.deriving import derive_domain
from .domain.domain import Domain
from .host.host import CandidateHost
from .inputs import WAYS, filled
from .layouts import is_far, place
from .numpy_specs import with_algorithms
from .other_calls import JOINT, joint_shapes, with_numbers
from .row_sample import part_of
from .specification import SpecError, Specification, specification
from .suites.opening import open_pair

_WORDS = {**OFFERS, "grad": "gradients"}


def judge_property(code: str, make: Callable[[], CandidateOp], seed: int) -> Verdict:
    """The verdict of one property, in this process.

    Args:
        code: of the property. make: gives the op; what it raises is why nothing is asked. seed: of the samples.
    """
    cell = Cell("candidate", code, "none", DEVICE, SUBJECT)
    if PROPERTIES[code].where is Where.PREPARED:
        text = f"{code} is asked of ops that other processes know by name"
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, text)
    try:
        declared = make()
    except Unsupported as err:
        outcome = Outcome.REFUSED if err.code is Code.REFUSED else Outcome.UNSUPPORTED
        return Verdict(cell, outcome, err.code, str(err))
    except SpecError as err:
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, str(err))
    op, settings = declared.op, Settings("brief", seed)
    cell_of_op = Cell(op.name, code, declared.dtype, declared.device, "opassay")
    verdict = _judge_here(cell_of_op, settings, op)
    if verdict.outcome in FAILED and "torch" in op.subjects:
        own = _judge_here(replace(cell_of_op, subject="torch"), replace(settings, simpler=False), op)
        if own.outcome is Outcome.FAIL and _signs(own) == _signs(verdict):
            text = f"torch's own evaluation of the spec fails, too: {own.reason}"
            verdict = Verdict(cell_of_op, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, text)
    lacking = [name for name in declared.refusals if re.search(rf"\bno {name}\b", verdict.reason)]
    lacking += ["grad"] * (verdict.code is Code.NOT_DIFFERENTIABLE and "grad" in declared.refusals)
    if verdict.outcome is Outcome.UNSUPPORTED and lacking:
        text = f"the candidate offers no {_WORDS[lacking[0]]}: {declared.refusals[lacking[0]]}"
        verdict = replace(verdict, outcome=Outcome.REFUSED, code=Code.REFUSED, reason=text)
    return replace(verdict, cell=cell)


def _judge_here(cell: Cell, settings: Settings, op: Op) -> Verdict:
    """The verdict of a cell in this process, which imports no production op as other places do."""
    return guard(cell, lambda: Here().judge(cell, settings, op))


def _signs(verdict: Verdict) -> tuple[object, ...]:
    signs = None if verdict.failure is None else verdict.failure.signs
    return (verdict.code, *(() if signs is None else (signs.path, signs.output)))


def verdict_of(question: Mapping[str, Any], host: CandidateHost) -> dict[str, Any]:
    """The verdict of a property as data, in the candidate's process, which reads the spec.

    Args:
        question: "code", the "terms" that are allowed, and "pair": arguments of `open_pair` without a folder.
        host: has the candidate.
    """
    make = functools.partial(_op_of_pair, json.dumps([question["pair"], question["terms"]]), host)
    return as_data(judge_property(question["code"], make, question["pair"]["seed"]))


@functools.lru_cache(maxsize=1)
def _op_of_pair(text: str, host: CandidateHost) -> CandidateOp:
    pair, allowed = json.loads(text)
    with tempfile.TemporaryDirectory() as folder:
        problem = open_pair(**pair, folder=Path(folder)).problem
        arguments = CallArguments.of(problem.draw(pair["seed"]))
        spec = replace(specification(problem.spec), domain=problem.domain)
        return op_of_candidate(host, spec, arguments, msgspec.convert(allowed, Terms))


#: The samples: the given inputs, and others, by their ways; none where the spec gives a NaN or an infinity there.
_REGIMES = ("FWD:given", "FWD:seeds", "FWD:signs")
#: Elements of the inputs that a sample may have: a check makes dozens of calls, and reads each of them.
MOST = 2**18


@dataclass(frozen=True)
class CandidateOp:
    """A candidate as an op.

    Attributes:
        op: its subjects are the candidate, as the production op, and the spec, as "torch".
        refusals: why it does not offer what the op promises to be without, by the names of `transforms.OFFERS`.
        dtype, device: of its cells: those whose arithmetic is judged.
    """

    op: Op
    refusals: Mapping[str, str]
    dtype: str
    device: str


def op_of_candidate(host: CandidateHost, spec: Specification, inputs: CallArguments, terms: Terms) -> CandidateOp:
    """The op of a candidate, in the process in which it is judged.

    Args:
        host: has the candidate. spec, given, terms: what is right, at which inputs, and what is allowed.

    Raises:
        Unsupported: it cannot be asked as an op; the text says why. SpecError: the spec cannot be read.
    """
    if terms.inputs:
        raise Unsupported(Code.NOT_APPLICABLE, "properties are not asked where inputs may be rounded first")
    arguments = _affordable(spec, inputs, terms)
    few = [t.dtype for t in (*inputs.tensors, *spec.run(inputs, spec.state).outputs) if t.dtype in STORAGE_DTYPES]
    if few:
        text = f"properties are not asked where an input or an output is of {dtype_name(few[0])}"
        raise Unsupported(Code.NOT_APPLICABLE, text)
    host.state.set({n: t for n, t in spec.state.items() if host.shapes.get(n) == tuple(t.shape)})
    state = spec.state if all(host.shapes.get(n) == tuple(t.shape) for n, t in spec.state.items()) else {}
    names = list(state)
    operands = (*state.values(), *arguments.tensors)
    labels = [*(re.sub(r"\W", "_", name) for name in names), *(f"input{i}" for i in range(len(arguments.tensors)))]

    def candidate(state: dict[str, Tensor], args: Args) -> Any:
        return call_with_state(host.function, state, args) if state else call(host.function, args)

    def right(state: dict[str, Tensor], args: Args) -> Any:
        return spec.call_at(state or copied_state(spec.state), args)

    subjects = {OWN: spec.of_tensors(arguments, names, candidate)}
    if not spec.numpy:
        subjects["torch"] = spec.of_tensors(arguments, names, right)
    usual = subjects.get("torch", subjects[OWN])
    formula: Any = with_algorithms(spec.function, arguments) if spec.numpy else SpecFormula(usual, spec.name)
    formula.__signature__ = inspect.Signature(
        [inspect.Parameter(label, inspect.Parameter.POSITIONAL_OR_KEYWORD) for label in labels]
    )
    places = spec.find_writes(arguments, spec.state)
    writes = [label for i, label in enumerate(labels) if (names[i] if i < len(names) else i - len(names)) in places]
    marked = {t.requires_grad for t in arguments.tensors}
    wrt = [
        label for i, (label, t) in enumerate(zip(labels, operands, strict=True))
        if is_float(t) and label not in writes
        and (names[i] in spec.parameters if i < len(names) else t.requires_grad or True not in marked)
    ]  # fmt: skip
    domain = _domain_of(spec, arguments)
    calls = _calls_of_other_sizes(spec, arguments, domain, functools.partial(candidate, state))
    others = [] if spec.numpy else [*itertools.islice(calls, JOINT)]
    samples = functools.partial(_samples, spec, state, arguments, domain, others)
    op = Op(
        host.name, formula, subjects, samples, tuple(wrt),
        Promises(lambda args: dtypes_when_called(op.functional(usual), args)), mutates=tuple(writes),
        documented={OWN: Documented(native=subjects.get("torch"))},
    )  # fmt: skip
    at = tuple(t.detach().clone() for t in operands)
    refusals = dict(_refusals(op, at, op.differentiable_positions(at)))
    if "grad" in refusals:
        op = replace(op, differentiable=())
    without = frozenset(refusals) - {"grad"} | {"dims"}  # The given shapes fix the dims.
    op = op.changed(without=without, terms=terms, one_graph=False)
    return CandidateOp(op, refusals, spec.dtype_of(arguments, spec.state), device_of(operands))


def _domain_of(spec: Specification, arguments: CallArguments) -> Domain:
    """The calls of a spec; Unsupported where a call may leave other values in an argument, which samples share."""
    domain = derive_domain(spec, arguments)
    if domain.declaration.writes:
        raise Unsupported(Code.NOT_APPLICABLE, "properties are not asked where a candidate may write an argument")
    return domain


def _affordable(spec: Specification, arguments: CallArguments, terms: Terms) -> CallArguments:
    """The given inputs, in memory as they lie; of a large problem some rows."""
    count = sum(t.numel() for t in arguments.tensors)
    part = part_of(spec, arguments, terms, MOST) if count > MOST else None
    if count > MOST and part is None:
        need = f"need at most {MOST}, or rows that are known to be apart"
        raise Unsupported(Code.NOT_APPLICABLE, f"the inputs have {count} elements, {need}")
    return arguments if part is None else part.of(arguments, range(0, part.count, -(-part.count // part.size)))


@dataclass(frozen=True)
class _DraftLikeGiven(Draft):
    """A draft of inputs like the given ones; its first slice is `first` where there is one: the given ones."""

    first: Callable[[], tuple[Any, ...]] | None = field(default=None, kw_only=True)

    def sample(self, seed: int, slices: int = 0) -> Sample:
        sample = super().sample(seed, slices)
        return sample if self.first is None else replace(sample, args=self.first())


def _samples(
    spec: Specification,
    state: Mapping[str, Tensor],
    arguments: CallArguments,
    domain: Domain,
    others: Sequence[CallArguments],
    dtype: str,
    kind: str = "ordinary",
) -> st.SearchStrategy[Draft]:
    """The samples of a kind, for the op's declaration; `others`: calls of other sizes."""
    if kind == "empty":
        empty = next(with_numbers(spec, domain.empties(arguments)), None)
        if empty is None:
            raise Unsupported(Code.NOT_APPLICABLE, "the spec takes no inputs without elements")
        arguments = empty
    if kind == "large" and max((t.numel() for t in arguments.tensors), default=0) <= ORDINARY:
        raise Unsupported(Code.NOT_APPLICABLE, f"the given inputs have no more than {ORDINARY} elements each")

    def fill(call: CallArguments, way: str, rng: Any) -> tuple[Any, ...]:
        return (*copied_state(state).values(), *filled(call, WAYS[way], rng, spec.reads_values, domain).tensors)

    def originals() -> tuple[Any, ...]:
        return (
            *copied_state(state).values(),
            *(t.detach().clone() if is_far(t) else place(t.detach(), t.stride()) for t in arguments.tensors),
        )

    elsewhere = {f"other sizes {i}": call for i, call in enumerate(others if kind in ("ordinary", "sizes") else ())}

    def draft_of(regime: str) -> Draft:
        if regime in elsewhere:
            return Draft(functools.partial(fill, elsewhere[regime], "FWD:signs"), regime)
        way = functools.partial(fill, arguments, "FWD:seeds" if regime == "FWD:given" else regime)
        return _DraftLikeGiven(way, regime, first=originals if regime == "FWD:given" else None)

    regimes = ("DATA:integers",) if kind == "integers" else _finite_regimes(spec, arguments, domain)
    return choose("inputs", (*regimes, *elsewhere)).map(draft_of)


def _calls_of_other_sizes(
    spec: Specification, arguments: CallArguments, domain: Domain, candidate: Callable[[Args], Any]
) -> Iterator[CallArguments]:
    """Calls in which all sizes are others, where the spec gives numbers and the candidate raises nothing."""
    rng = np.random.default_rng(0)
    for shapes in joint_shapes(domain, rng):
        other = filled(domain.at(arguments, shapes), WAYS["FWD:signs"], rng, spec.reads_values, domain)
        for each in with_numbers(spec, safe_calls(spec, [other])):
            # In no block, because who asks for no more calls would stay without gradients.
            if not torch.no_grad()(_reason)(candidate, each.args):
                yield each


def _finite_regimes(spec: Specification, arguments: CallArguments, domain: Domain) -> tuple[str, ...]:
    """The ways at which the spec gives numbers; the given inputs are always among them."""

    def is_finite(way: str) -> bool:
        run = spec.run(filled(arguments, WAYS[way], np.random.default_rng(0), spec.reads_values, domain), spec.state)
        return all(bool(y.isfinite().all()) for y in run.outputs if is_float(y))

    return (_REGIMES[0], *filter(is_finite, _REGIMES[1:]))


def _refusals(op: Op, args: tuple[Any, ...], wrt: Sequence[int]) -> Iterator[tuple[str, str]]:
    """What a candidate does not offer, and what it raises where it is asked for that.

    Raises:
        Unsupported: it raises at the given inputs.
    """
    subject = op.subject(OWN)
    function, leaves = in_arguments(subject, args, wrt), [args[i] for i in wrt]
    plain = _reason(function, *leaves)
    if plain:
        raise Unsupported(Code.REFUSED, f"the candidate raises at the given inputs: {plain}")
    for name, ask in _QUESTIONS.items():
        if leaves and (why := _reason(ask, function, leaves)):
            yield name, why
    if why := _reason(_call_fake, subject, args):
        yield "fake", why


def _reason(ask: Callable[..., Any], *args: Any) -> str:
    """What a call raises, in a line; empty where it raises nothing."""
    try:
        ask(*args)
    except Exception as err:
        return ": ".join([error_name(err), *error_lines(err)[:1]])[:300]
    return ""


def _gradients(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Gradients that can be differentiated again, of outputs that need some.

    Raises:
        RuntimeError: no output needs one.
    """
    tracked = [y for y in outputs if y.requires_grad]
    if not tracked:
        raise RuntimeError("no output has a gradient")
    cotangents = [torch.ones_like(y).requires_grad_(True) for y in tracked]
    gradients = torch.autograd.grad(tracked, leaves, cotangents, create_graph=True, allow_unused=True)
    return tuple(g for g in gradients if g is not None)


def _differentiate(function: Callable[..., Any], leaves: Sequence[Tensor], times: int) -> None:
    own = [t.detach().clone().requires_grad_(True) for t in leaves]
    outputs = function(*own)
    for _ in range(times):
        outputs = _gradients(outputs, own) if outputs else ()  # of a sum nothing is left to differentiate


def _push_forward(function: Callable[..., Any], leaves: Sequence[Tensor]) -> None:
    with forward_ad.dual_level():
        function(*(forward_ad.make_dual(t, torch.ones_like(t)) for t in leaves))


def _pull_back(function: Callable[..., Any], leaves: Sequence[Tensor]) -> None:
    pulled: Any = torch.func.vjp(function, *leaves)
    outputs, pull = pulled
    pull(tuple(map(torch.ones_like, outputs)))


def _batch(function: Callable[..., Any], leaves: Sequence[Tensor]) -> None:
    torch.vmap(function)(*(torch.stack([t, t]) for t in leaves))


def _call_fake(subject: Callable[..., Any], args: Sequence[Any]) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        subject(*(mode.from_tensor(a) if isinstance(a, Tensor) else a for a in args))


#: How a candidate is asked for what an op may not offer; "grad" stands for derivatives at all.
_QUESTIONS: Mapping[str, Callable[[Callable[..., Any], Sequence[Tensor]], None]] = {
    "grad": functools.partial(_differentiate, times=1),
    "double": functools.partial(_differentiate, times=2),
    "triple": functools.partial(_differentiate, times=3),
    "jvp": _push_forward,
    "func": _pull_back,
    "vmap": _batch,
}
