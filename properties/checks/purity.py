"""PURE, DUAL and MEM: which state a call must not change, and how many bytes it may keep."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks

from ...oracles import process
from ...oracles.judge.judge import Judge
from ...oracles.judge.native import shares
from ...oracles.op.bits import same_bits, same_results
from ...oracles.op.declaration import Sample, Stream, Tensor, flat_outputs
from ...oracles.op.paths import Problem
from ...oracles.op.script import ScriptMaker
from ...oracles.programs import particular as programs
from ...oracles.verdicts.violation import ChangedState, Code, Unsupported, Violation
from .agreement import require_same
from .gradients import gradients

#: At most this many sets of inputs that require grad are drawn for one sample.
SETS = 15


def check_purity(judge: Judge, sample: Sample) -> None:
    """PURE: inputs, version counters and the state of the process untouched; outputs share no memory with inputs.

    An argument that the op declares to write may change, but then its version counter must, too.
    """
    other: Violation | None = None
    with process.watched(process.SETTINGS, process.DEEP, process.LEFTOVERS) as changed:
        try:
            _judge_purity(judge, sample)
        except Violation as violation:
            other = violation
    if changed:  # The change is reported first, because it may be the cause of the other broken promise.
        raise ChangedState(judge.op.name, [*changed, *([other.title] if other else [])]) from other
    if other:
        raise other


def _judge_purity(judge: Judge, sample: Sample) -> None:
    tensors = {judge.op.label(i): a for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)}
    before = [(t.clone(), _note_state(t)) for t in tensors.values()]
    outputs = flat_outputs(judge.call(judge.subject, *sample.args, what="forward"))
    problem = Problem(judge.op, sample.args, sample.originals)
    make_script = functools.partial(programs.script_changed_inputs, problem)
    _require_untouched(judge, tensors, before, "forward", make_script)
    primal = [t.detach() for t in outputs]
    cotangents = judge.path(sample, ("vjp",), primal).directions
    copies = [g.clone() for g in cotangents]
    _gradients_of_call(judge, problem, cotangents)
    _require_untouched(judge, tensors, before, "forward + vjp", make_script)
    require_same(judge, cotangents, copies, "cotangents after backward", Code.MUTATED)
    _require_declared_sharing(judge, outputs, sample.args)
    _judge_schema(judge, sample)
    _require_declared_writes(judge, sample)
    _require_no_write(judge, sample, cotangents)


#: State of an input, besides its values, that a call must not change, by the words in which messages report a change.
_STATE: dict[str, Callable[[Tensor], object]] = {
    "wrote to": lambda t: t._version,
    "changed the need of a gradient of": lambda t: (t.requires_grad, t.is_leaf),
    "left a gradient in": lambda t: None if t.grad is None else id(t.grad),
    "left a hook on": lambda t: len(t._backward_hooks or ()),
    "left an attribute on": lambda t: sorted(vars(t)),
}


def _note_state(tensor: Tensor) -> list[object]:
    return [read(tensor) for read in _STATE.values()]


def _require_untouched(
    judge: Judge, tensors: Mapping[str, Tensor], before: Sequence[tuple[Tensor, list[object]]], path: str,
    make_script: ScriptMaker,
) -> None:  # fmt: skip
    """Violation unless tensors have the values and the state (`_note_state`) that they had before a call."""
    for (name, t), (copy, notes) in zip(tensors.items(), before, strict=True):
        now = _note_state(t)
        changed = [what for what, old, new in zip(_STATE, notes, now, strict=True) if old != new]
        if changed or not same_bits(t, copy):
            violation = judge.violation(Code.MUTATED, f"{(changed or ['wrote to'])[0]} its argument {name}", path=path)
            # The input stays as it is now, so that the same call need not change it again.
            violation.once = True
            raise violation.showing(make_script)


def _require_no_write(judge: Judge, sample: Sample, cotangents: Sequence[Tensor]) -> None:
    """Violation where an input or a cotangent is written, even with its own value: another thread may be reading it."""
    if judge.device != "cpu" or not process.watches():
        return
    texts = {False: "with the values that it had", True: "where it holds NaN"}
    for with_nan, values in texts.items():
        if with_nan and not judge.op.promises.specials:
            continue
        name = _find_write(judge, sample, cotangents, with_nan)
        if name:
            raise judge.violation(Code.MUTATED, f"wrote to {name}, {values}", path="forward + vjp")
        judge.tally.count(1)


def _find_write(judge: Judge, sample: Sample, cotangents: Sequence[Tensor], with_nan: bool) -> str:
    """The name of an input or a cotangent to which forward or backward writes; empty where there is none.

    With NaN, that is the first element of every floating tensor.
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
    directions = [watch(g, f"the cotangent of out[{i}]") for i, g in enumerate(cotangents)]
    judge.call(judge.subject, *problem.args, what="forward")
    if problem.wrt:
        _gradients_of_call(judge, problem, directions)
    return next((name for name, memory in watched if memory.is_written()), "")


def _require_declared_writes(judge: Judge, sample: Sample) -> None:
    """Violation unless a call writes to the declared arguments alone, and each write gives a new version."""
    writes = judge.op.mutated_positions(sample.args)
    if not writes:
        return
    args = [a.clone() if i in writes else a for i, a in enumerate(sample.args)]
    before = {i: (a.clone(), a._version) for i, a in enumerate(args) if isinstance(a, torch.Tensor)}
    judge.call(judge.op.implementation(judge.subject_name), *args, what="forward")
    for i, (copy, version) in before.items():
        same, name = same_bits(args[i], copy), judge.op.label(i)
        new = args[i]._version != version
        if i in writes and not same and not new:
            wrong = f"wrote to {name} without a new version, which hides it from autograd"
            raise judge.violation(Code.MUTATED, wrong, path="forward")
        if i not in writes and (new or not same):
            raise judge.violation(Code.MUTATED, f"wrote to {name}, which it does not declare", path="forward")
        judge.tally.count(1)


def _gradients_of_call(judge: Judge, problem: Problem, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    outputs = judge.call(problem.subject(judge.subject), *leaves, what="forward")
    return gradients(judge, outputs, leaves, cotangents)


def _require_declared_sharing(judge: Judge, outputs: Sequence[Tensor], args: Sequence[Any]) -> None:
    """Violation unless each output is a view of the argument that the op declares for it, or shares no memory."""
    declared = judge.op.promises.memory.aliases
    sources = (None,) * len(outputs) if declared is None else declared(tuple(args))
    # Tensors without elements are left out: they may all have the address zero, which is no memory that they share.
    inputs = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor) and t.numel()}
    owned = set(inputs)
    for i, (y, source) in enumerate(zip(outputs, sources, strict=True)):
        if source is not None:
            _require_view(judge, i, y, source, args[source])
        elif y.numel() and y.untyped_storage().data_ptr() in owned:
            if shares(judge, args, i, y.untyped_storage().data_ptr()):
                continue
            other = "an input" if y.untyped_storage().data_ptr() in inputs else "another output"
            violation = judge.violation(Code.ALIASED, f"out[{i}] shares memory with {other}", path="forward")
            raise violation.showing(functools.partial(programs.script_shared_memory, Problem(judge.op, args), i))
        owned.add(y.untyped_storage().data_ptr())


def _require_view(judge: Judge, i: int, y: Tensor, source: int, argument: Tensor) -> None:
    """Violation unless output number `i` is a view of the argument at position `source`."""
    name = judge.op.label(source)
    if y is argument:
        raise judge.violation(Code.ALIASED, f"out[{i}] is {name} itself, need a view of it", path="forward")
    if y.numel() and y.untyped_storage().data_ptr() != argument.untyped_storage().data_ptr():
        raise judge.violation(Code.ALIASED, f"out[{i}] shares no memory with {name}, as declared", path="forward")


def _judge_schema(judge: Judge, sample: Sample) -> None:
    """Violation unless the registered schema is right about mutation and aliasing (torch's SchemaCheckMode)."""
    # Not at the top: this import changes the process (`process.watch`), so it happens where the state is pinned.
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    def checked() -> Any:
        with SchemaCheckMode():
            return judge.subject(*sample.args)

    judge.call(checked, what="under SchemaCheckMode")


def check_primal(judge: Judge, sample: Sample) -> None:
    """DUAL: the primal's bits and dtypes ignore requires_grad, tangents and transform levels."""
    problem = Problem(judge.op, sample.args)
    f = problem.subject(judge.subject)
    plain = [t.clone() for t in judge.call(f, *problem.inputs, what="forward")]
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    _require_same_primal(
        judge, sample, judge.call(f, *leaves, what="requires_grad"), plain, "primal with requires_grad"
    )
    kinds = [_container(judge, sample, problem, grad) for grad in (False, True)]
    if kinds[0] != kinds[1]:
        wrong = f"returns a {kinds[1]} where its inputs require grad, and a {kinds[0]} where they do not"
        raise judge.violation(Code.ATTRIBUTE, wrong, path="requires_grad")
    if "jvp" not in judge.op.promises.without:
        check_primal_with_tangents(judge, sample)
    if "func" in judge.op.promises.without:
        return
    through = judge.call(lambda: torch.func.vjp(f, *problem.inputs)[0], what="primal of func.vjp")
    _require_same_primal(judge, sample, through, plain, "primal of func.vjp")


def _container(judge: Judge, sample: Sample, problem: Problem, grad: bool) -> str:
    """The name of the type that a call returns, where the inputs require grad or do not."""
    args = [a.detach().requires_grad_(grad) if i in problem.wrt else a for i, a in enumerate(sample.args)]
    return type(judge.call(judge.subject, *args, what="requires_grad")).__name__


def _require_same_primal(
    judge: Judge, sample: Sample, got: Sequence[Tensor], plain: Sequence[Tensor], what: str
) -> None:
    """Violation unless a primal has the bits of the plain call; its dtypes and bound, where no bits are promised."""
    values = [t.detach() for t in got]
    other = [t.dtype for t in values] != [t.dtype for t in plain]
    if judge.op.documented_by(judge.subject_name).bits or other or all(map(same_results, values, plain)):
        try:
            require_same(judge, values, plain, what)
        except Violation as violation:
            path = judge.path(sample, ("jvp",), plain)
            violation.make_script = functools.partial(programs.script_primal, path, what)
            raise
    else:
        # The bits of the plain call are right here even where they are not near the exact value: that is for FWD to
        # say, of an op that may be another's (FWAD judges derivatives that are put beside the values of torch's ops).
        judge.against(judge.path(sample, (), plain).expected(what), values, exactly=False)


def check_primal_with_tangents(judge: Judge, sample: Sample) -> None:
    """The primal's bits and dtypes ignore tangents, on dual tensors and in func.jvp."""
    problem = Problem(judge.op, sample.args)
    f = problem.subject(judge.subject)
    # These are copies, because a subject that returns the same buffer from every call would overwrite the values with
    # which its later outputs are compared.
    plain = [t.clone() for t in judge.call(f, *problem.inputs, what="forward")]
    tangents = judge.path(sample, ("jvp",), plain).directions
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, v) for t, v in zip(problem.inputs, tangents, strict=True)]
        primals = [forward_ad.unpack_dual(y).primal for y in judge.call(f, *duals, what="dual tensors")]
    _require_same_primal(judge, sample, primals, plain, "primal with tangents")
    if "func" in judge.op.promises.without:
        return
    pushed = judge.call(lambda: torch.func.jvp(f, tuple(problem.inputs), tuple(tangents))[0], what="primal of func.jvp")
    _require_same_primal(judge, sample, pushed, plain, "primal of func.jvp")


def check_memory(judge: Judge, sample: Sample) -> None:
    """MEM: bytes kept for backward, each storage counted once, for several sets of inputs that require grad.

    These are every set of a few inputs; of many, all of them, each alone, and some sets that the sample decides.
    """
    budget = judge.op.promises.memory.saved
    if budget is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} declares no budget of saved bytes")
    positions = Problem(judge.op, sample.args).wrt
    for picked in _draw_sets(len(positions), sample.generator(Stream.MEMORY)):
        tracked = frozenset(p for i, p in enumerate(positions) if picked >> i & 1)
        args = [
            a.detach().requires_grad_() if i in tracked else a.detach() if isinstance(a, torch.Tensor) else a
            for i, a in enumerate(sample.args)
        ]
        size, allowed = _saved_bytes(judge, args), budget(sample.args, tracked)
        judge.tally.count(1)
        judge.tally.ratio(size / allowed if allowed else 0.0)
        if size > allowed:
            names = ", ".join(judge.op.label(p) for p in sorted(tracked))
            wrong = f"keeps {size} bytes for backward, declared {allowed}"
            violation = judge.violation(Code.MEMORY, wrong, [f"requires grad: {names}"], path="forward")
            problem = Problem(judge.op, sample.args, sample.originals)
            raise violation.showing(functools.partial(programs.script_saved_bytes, problem, sorted(tracked), allowed))


def _draw_sets(count: int, rng: Any) -> Sequence[int]:
    """Sets of `count` inputs, none of them empty, as the bits of numbers."""
    if 2**count - 1 <= SETS:
        return range(1, 2**count)
    return [2**count - 1, *(1 << i for i in range(count)), *(int(n) for n in rng.integers(1, 2**count, SETS))]


def _saved_bytes(judge: Judge, args: Sequence[Any]) -> int:
    addresses = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
    storages: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if t.numel():
            storage = t.untyped_storage()
            # The caller keeps an argument's memory alive anyway, so of an argument the size of the saved view counts.
            # Any other memory is alive only because a view of it was saved, and then all of it is alive.
            size = t.numel() * t.element_size() if storage.data_ptr() in addresses else storage.nbytes()
            storages[storage.data_ptr()] = max(size, storages.get(storage.data_ptr(), 0))
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        outputs = judge.call(judge.subject, *args, what="forward")
    # Until here the outputs have kept the graph alive, and the graph the saved tensors. Otherwise freed memory might be
    # handed out again and be counted for another tensor.
    del outputs
    return sum(storages.values())
