"""PURE, DUAL and MEM: what a call must leave as it was, and what it may keep."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks

from ...oracles import process
from ...oracles.judge.judge import Judge, gradients
from ...oracles.op.bits import same_bits, same_results
from ...oracles.op.declaration import Sample, Stream, Tensor, flat_outputs
from ...oracles.op.paths import Problem
from ...oracles.op.script import ScriptMaker
from ...oracles.programs import particular as programs
from ...oracles.verdicts.verdict import Code
from ...oracles.verdicts.violation import ChangedState, Unsupported, Violation
from .agreement import require_same

#: At most so many sets of inputs that require grad are drawn for one sample.
SETS = 15


def pure(judge: Judge, sample: Sample) -> None:
    """PURE: inputs, version counters and the state of the process untouched; outputs share no memory with inputs.

    An argument that the op declares to write may change, but then its version counter must, too.
    """
    other: Violation | None = None
    with process.watched(process.SETTINGS, process.DEEP, process.LEFTOVERS) as changed:
        try:
            _pure(judge, sample)
        except Violation as violation:
            other = violation
    if changed:  # This is told first, because it may be the cause of the other broken promise.
        raise ChangedState(judge.op.name, [*changed, *([other.title] if other else [])]) from other
    if other:
        raise other


def _pure(judge: Judge, sample: Sample) -> None:
    tensors = {judge.op.label(i): a for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)}
    before = [(t.clone(), _noted(t)) for t in tensors.values()]
    outputs = flat_outputs(judge.call(judge.subject, *sample.args, what="forward"))
    problem = Problem(judge.op, sample.args, sample.kept)
    telling = functools.partial(programs.touching, problem)
    _untouched(judge, tensors, before, "forward", telling)
    primal = [t.detach() for t in outputs]
    cotangents = judge.path(sample, ("vjp",), primal).directions
    kept = [g.clone() for g in cotangents]
    _gradients_of_call(judge, problem, cotangents)
    _untouched(judge, tensors, before, "forward + vjp", telling)
    require_same(judge, cotangents, kept, "cotangents after backward", Code.MUTATED)
    _shares_what_it_declares(judge, outputs, sample.args)
    _schema(judge, sample)
    _writes_what_it_declares(judge, sample)
    _watched(judge, sample, cotangents)


#: What a call must leave as it was of an input, besides its values, by what messages say.
_NOTED: dict[str, Callable[[Tensor], object]] = {
    "wrote to": lambda t: t._version,
    "changed the need of a gradient of": lambda t: (t.requires_grad, t.is_leaf),
    "left a gradient in": lambda t: None if t.grad is None else id(t.grad),
    "left a hook on": lambda t: len(t._backward_hooks or ()),
    "left an attribute on": lambda t: sorted(vars(t)),
}


def _noted(tensor: Tensor) -> list[object]:
    return [read(tensor) for read in _NOTED.values()]


def _untouched(
    judge: Judge,
    tensors: Mapping[str, Tensor],
    before: Sequence[tuple[Tensor, list[object]]],
    path: str,
    telling: ScriptMaker,
) -> None:
    """Violation unless the tensors, by the names of their arguments, are as copies and notes say they were.

    Args:
        tensors, before: the tensors, and copies and notes of them. path: after which this is asked.
        telling: a program that asks the same.
    """
    for (name, t), (copy, noted) in zip(tensors.items(), before, strict=True):
        now = _noted(t)
        changed = [what for what, old, new in zip(_NOTED, noted, now, strict=True) if old != new]
        if changed or not same_bits(t, copy):
            found = judge.broken(Code.MUTATED, f"{(changed or ['wrote to'])[0]} its argument {name}", path=path)
            # The input stays as it is now, so that the same call need not change it again.
            found.once = True
            raise found.showing(telling)


def _watched(judge: Judge, sample: Sample, cotangents: Sequence[Tensor]) -> None:
    """No input and no cotangent is written, not even with the value that it has: another thread may be reading it."""
    if judge.device != "cpu" or not process.watches():
        return
    told = {False: "with the values that it had", True: "where it holds NaN"}
    for with_nan, values in told.items():
        if with_nan and not judge.op.promises.specials:
            continue
        name = _written_again(judge, sample, cotangents, with_nan)
        if name:
            raise judge.broken(Code.MUTATED, f"wrote to {name}, {values}", path="forward + vjp")
        judge.tally.count(1)


def _written_again(judge: Judge, sample: Sample, cotangents: Sequence[Tensor], with_nan: bool) -> str:
    """The name of an input or a cotangent that forward and backward write to; empty where there is none.

    Args:
        with_nan: whether the first element of every floating tensor is NaN.
    """
    watched: list[tuple[str, process.WatchedTensor]] = []

    def watch(value: Any, name: str) -> Any:
        if not isinstance(value, torch.Tensor) or not value.numel():
            return value
        source = value.detach().contiguous().clone()
        if with_nan and source.is_floating_point():
            source.view(-1)[0] = float("nan")
        watched.append((name, process.WatchedTensor(source)))
        return watched[-1][1].tensor

    problem = Problem(judge.op, [watch(a, judge.op.label(i)) for i, a in enumerate(sample.args)])
    given = [watch(g, f"the cotangent of out[{i}]") for i, g in enumerate(cotangents)]
    judge.call(judge.subject, *problem.args, what="forward")
    if problem.wrt:
        _gradients_of_call(judge, problem, given)
    return next((name for name, memory in watched if memory.is_written()), "")


def _writes_what_it_declares(judge: Judge, sample: Sample) -> None:
    """The call as it is: writes bump the version of what is declared, and leave all else as it was."""
    written = judge.op.written(sample.args)
    if not written:
        return
    args = [a.clone() if i in written else a for i, a in enumerate(sample.args)]
    before = {i: (a.clone(), a._version) for i, a in enumerate(args) if isinstance(a, torch.Tensor)}
    judge.call(judge.op.implementation(judge.subject_name), *args, what="forward")
    for i, (copy, version) in before.items():
        same, name = same_bits(args[i], copy), judge.op.label(i)
        new = args[i]._version != version
        if i in written and not same and not new:
            wrong = f"wrote to {name} without a new version, which hides it from autograd"
            raise judge.broken(Code.MUTATED, wrong, path="forward")
        if i not in written and (new or not same):
            raise judge.broken(Code.MUTATED, f"wrote to {name}, which it does not declare", path="forward")
        judge.tally.count(1)


def _gradients_of_call(judge: Judge, problem: Problem, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    outputs = judge.call(problem.subject(judge.subject), *leaves, what="forward")
    return gradients(judge, outputs, leaves, cotangents)


def _shares_what_it_declares(judge: Judge, outputs: Sequence[Tensor], args: Sequence[Any]) -> None:
    """Each output shares memory with the argument that is declared, as an object of its own, and else with nothing."""
    declared = judge.op.promises.aliases
    sources = (None,) * len(outputs) if declared is None else declared(tuple(args))
    # Tensors without elements are left out: they may all have the address zero, which is no memory that they share.
    inputs = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor) and t.numel()}
    owned = set(inputs)
    for i, (y, source) in enumerate(zip(outputs, sources, strict=True)):
        if source is not None:
            _is_view(judge, i, y, source, args[source])
        elif y.numel() and y.untyped_storage().data_ptr() in owned:
            other = "an input" if y.untyped_storage().data_ptr() in inputs else "another output"
            found = judge.broken(Code.ALIASED, f"out[{i}] shares memory with {other}", path="forward")
            raise found.showing(functools.partial(programs.sharing, Problem(judge.op, args), i))
        owned.add(y.untyped_storage().data_ptr())


def _is_view(judge: Judge, i: int, y: Tensor, source: int, argument: Tensor) -> None:
    """Violation unless an output is a view of an argument.

    Args:
        i, y: the output's number, and the output. source, argument: the argument's position, and the argument.
    """
    name = judge.op.label(source)
    if y is argument:
        raise judge.broken(Code.ALIASED, f"out[{i}] is {name} itself, need a view of it", path="forward")
    if y.numel() and y.untyped_storage().data_ptr() != argument.untyped_storage().data_ptr():
        raise judge.broken(Code.ALIASED, f"out[{i}] shares no memory with {name}, as declared", path="forward")


def _schema(judge: Judge, sample: Sample) -> None:
    """The registered schema tells the truth about mutation and aliasing (torch's SchemaCheckMode)."""
    # Not at the top: this import changes the process (`process.watch`), so it happens where the state is pinned.
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    def checked() -> Any:
        with SchemaCheckMode():
            return judge.subject(*sample.args)

    judge.call(checked, what="under SchemaCheckMode")


def dual(judge: Judge, sample: Sample) -> None:
    """DUAL: the primal's bits and dtypes ignore requires_grad, tangents and transform levels."""
    problem = Problem(judge.op, sample.args)
    f = problem.subject(judge.subject)
    plain = [t.clone() for t in judge.call(f, *problem.inputs, what="forward")]
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    _same_primal(judge, sample, judge.call(f, *leaves, what="requires_grad"), plain, "primal with requires_grad")
    kinds = [_container(judge, sample, problem, grad) for grad in (False, True)]
    if kinds[0] != kinds[1]:
        wrong = f"returns a {kinds[1]} where its inputs require grad, and a {kinds[0]} where they do not"
        raise judge.broken(Code.ATTRIBUTE, wrong, path="requires_grad")
    if "jvp" not in judge.op.promises.without:
        primal_with_tangents(judge, sample)
    if "func" in judge.op.promises.without:
        return
    through = judge.call(lambda: torch.func.vjp(f, *problem.inputs)[0], what="primal of func.vjp")
    _same_primal(judge, sample, through, plain, "primal of func.vjp")


def _container(judge: Judge, sample: Sample, problem: Problem, grad: bool) -> str:
    """The type of what a call returns, where the inputs require grad or do not."""
    args = [a.detach().requires_grad_(grad) if i in problem.wrt else a for i, a in enumerate(sample.args)]
    return type(judge.call(judge.subject, *args, what="requires_grad")).__name__


def _same_primal(judge: Judge, sample: Sample, got: Sequence[Tensor], plain: Sequence[Tensor], what: str) -> None:
    """Violation unless a primal has the bits of the plain call; its dtypes and bound, where no bits are promised."""
    values = [t.detach() for t in got]
    other = [t.dtype for t in values] != [t.dtype for t in plain]
    if judge.op.documented_by(judge.subject_name).bits or other or all(map(same_results, values, plain)):
        try:
            require_same(judge, values, plain, what)
        except Violation as violation:
            path = judge.path(sample, ("jvp",), plain)
            violation.make_script = functools.partial(programs.primals, path, what)
            raise
    else:
        # The bits of the plain call are right here even where they are not near the exact value: that is for FWD to
        # say, of an op that may be another's (FWAD judges derivatives that are put beside the values of torch's ops).
        judge.against(judge.path(sample, (), plain).expected(what), values, exactly=False)


def primal_with_tangents(judge: Judge, sample: Sample) -> None:
    """The primal's bits and dtypes ignore tangents, on dual tensors and in func.jvp."""
    problem = Problem(judge.op, sample.args)
    f = problem.subject(judge.subject)
    # Copies are kept, because a subject that hands out one buffer at every call would overwrite what it is compared
    # with.
    plain = [t.clone() for t in judge.call(f, *problem.inputs, what="forward")]
    tangents = judge.path(sample, ("jvp",), plain).directions
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, v) for t, v in zip(problem.inputs, tangents, strict=True)]
        primals = [forward_ad.unpack_dual(y).primal for y in judge.call(f, *duals, what="dual tensors")]
    _same_primal(judge, sample, primals, plain, "primal with tangents")
    if "func" in judge.op.promises.without:
        return
    pushed = judge.call(lambda: torch.func.jvp(f, tuple(problem.inputs), tuple(tangents))[0], what="primal of func.jvp")
    _same_primal(judge, sample, pushed, plain, "primal of func.jvp")


def memory(judge: Judge, sample: Sample) -> None:
    """MEM: bytes kept for backward, each storage once, for the sets of inputs that may require grad.

    Every set of a few inputs; of many, all of them, each alone, and some sets that the sample decides.
    """
    budget = judge.op.promises.saved
    if budget is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} declares no budget of saved bytes")
    positions = Problem(judge.op, sample.args).wrt
    for picked in _draw_sets(len(positions), sample.generator(Stream.MEMORY)):
        wanted = frozenset(p for i, p in enumerate(positions) if picked >> i & 1)
        args = [
            a.detach().requires_grad_() if i in wanted else a.detach() if isinstance(a, torch.Tensor) else a
            for i, a in enumerate(sample.args)
        ]
        kept, allowed = _saved_bytes(judge, args), budget(sample.args, wanted)
        judge.tally.count(1)
        judge.tally.ratio(kept / allowed if allowed else 0.0)
        if kept > allowed:
            names = ", ".join(judge.op.label(p) for p in sorted(wanted))
            wrong = f"keeps {kept} bytes for backward, declared {allowed}"
            found = judge.broken(Code.MEMORY, wrong, [f"requires grad: {names}"], path="forward")
            problem = Problem(judge.op, sample.args, sample.kept)
            raise found.showing(functools.partial(programs.keeping, problem, sorted(wanted), allowed))


def _draw_sets(count: int, rng: Any) -> Sequence[int]:
    """Sets of so many inputs, none of them empty, as the bits of numbers."""
    if 2**count - 1 <= SETS:
        return range(1, 2**count)
    return [2**count - 1, *(1 << i for i in range(count)), *(int(n) for n in rng.integers(1, 2**count, SETS))]


def _saved_bytes(judge: Judge, args: Sequence[Any]) -> int:
    given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
    storages: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if t.numel():
            storage = t.untyped_storage()
            # The caller keeps an argument's memory alive anyway, so what is saved of it counts as the saved view is
            # large. Any other memory lives only because a view of it was saved, and then all of it lives.
            size = t.numel() * t.element_size() if storage.data_ptr() in given else storage.nbytes()
            storages[storage.data_ptr()] = max(size, storages.get(storage.data_ptr(), 0))
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        outputs = judge.call(judge.subject, *args, what="forward")
    # Until here the outputs have kept the graph alive, and the graph what was saved. Otherwise freed memory might be
    # handed out again and be counted for another tensor.
    del outputs
    return sum(storages.values())
