"""PURE, DUAL and MEM: what a call must leave as it was, and what it may keep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.autograd.graph import saved_tensors_hooks

from .judgement import Judgement, Unsupported, Violation
from .op import Sample, Tensor, dtype_name, flat_outputs
from .transforms import Problem, draw_directions, signature
from .verdict import Code


def bits(tensor: Tensor) -> Tensor:
    """The bit pattern of every element, as integers."""
    kinds = {2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits; NaNs with equal payloads are equal."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def require_same(j: Judgement, got: Sequence[Any], need: Sequence[Any], path: str, code: Code = Code.BITS) -> None:
    """Bitwise equality of two lists of outputs."""
    if len(got) != len(need):
        raise Violation(code, f"{j.op.name} {path}: got {len(got)} outputs, need {len(need)}", path=path)
    for i, (a, b) in enumerate(zip(got, need, strict=True)):
        if a.dtype != b.dtype:
            title = f"{j.op.name} {path}: out[{i}] got dtype={dtype_name(a.dtype)}, need {dtype_name(b.dtype)}"
            raise Violation(code, title, path=path)
        if not same_bits(a, b):
            differ = (bits(a) != bits(b)) if a.shape == b.shape else None
            lines = [f"got shape={tuple(a.shape)}, need {tuple(b.shape)}"]
            if differ is not None:
                at = tuple(int(k) for k in differ.nonzero()[0])
                lines = [f"{int(differ.sum())} of {differ.numel()} elements differ, first at {list(at)}:"]
                lines.append(f"got {float(a[at]).hex()}, need {float(b[at]).hex()}")
            raise Violation(code, f"{j.op.name} {path}: out[{i}] differs in its bits", lines, path)
        j.judged += int(a.numel())


def pure(j: Judgement, sample: Sample) -> None:
    """PURE: inputs, version counters, random state and modes untouched; outputs share no memory with inputs."""
    tensors = [a for a in sample.args if isinstance(a, torch.Tensor)]
    before = [(t.clone(), t._version) for t in tensors]
    state, modes = torch.random.get_rng_state(), _modes()
    outputs = flat_outputs(j.call(j.subject, *sample.args, what="forward"))
    _untouched(j, tensors, before, state, modes, "forward")
    problem = Problem(j.op, sample.args)
    primal = [t.detach() for t in outputs]
    cotangents = draw_directions(signature(("vjp",), problem.inputs, primal)[len(problem.wrt) :], sample.seed, j.device)
    kept = [g.clone() for g in cotangents]
    _backward(j, problem, cotangents)
    _untouched(j, tensors, before, state, modes, "forward + vjp")
    require_same(j, cotangents, kept, "cotangents after backward", Code.MUTATED)
    _no_aliases(j, outputs, tensors)
    _schema(j, sample)


def _untouched(
    j: Judgement, tensors: Sequence[Tensor], before: Sequence[tuple[Tensor, int]], state: Tensor, modes: Any, path: str
) -> None:
    for i, (t, (copy, version)) in enumerate(zip(tensors, before, strict=True)):
        if not same_bits(t, copy) or t._version != version:
            raise Violation(Code.MUTATED, f"{j.op.name}: wrote to its input tensor {i}", path=path)
    if not torch.equal(torch.random.get_rng_state(), state) or _modes() != modes:
        raise Violation(Code.MUTATED, f"{j.op.name}: changed the random state or a global mode", path=path)


def _modes() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        torch.is_inference_mode_enabled(),
        torch.get_num_threads(),
    )


def _backward(j: Judgement, problem: Problem, cotangents: Sequence[Tensor]) -> list[Tensor | None]:
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    outputs = j.call(problem.subject(j.subject), *leaves, what="forward")
    pairs = [(y, g) for y, g in zip(outputs, cotangents, strict=True) if y.requires_grad]
    grads = j.call(
        lambda: torch.autograd.grad([y for y, _ in pairs], leaves, [g for _, g in pairs], allow_unused=True), what="vjp"
    )
    return list(grads)


def _no_aliases(j: Judgement, outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    owned = {t.untyped_storage().data_ptr() for t in inputs if t.numel()}
    for i, y in enumerate(outputs):
        if y.numel() and y.untyped_storage().data_ptr() in owned:
            raise Violation(Code.ALIASED, f"{j.op.name}: out[{i}] shares memory with an input", path="forward")
        owned.add(y.untyped_storage().data_ptr())


def _schema(j: Judgement, sample: Sample) -> None:
    """The registered schema tells the truth about mutation and aliasing (torch's SchemaCheckMode)."""
    from torch._subclasses.schema_check_mode import SchemaCheckMode

    def checked() -> Any:
        with SchemaCheckMode():
            return j.subject(*sample.args)

    j.call(checked, what="under SchemaCheckMode")


def dual(j: Judgement, sample: Sample) -> None:
    """DUAL: the primal's bits and dtypes ignore requires_grad, tangents and transform levels."""
    problem = Problem(j.op, sample.args)
    f = problem.subject(j.subject)
    plain = [t.clone() for t in j.call(f, *problem.inputs, what="forward")]
    tangents = draw_directions(signature(("jvp",), problem.inputs, plain)[len(problem.wrt) :], sample.seed, j.device)
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    require_same(j, [t.detach() for t in j.call(f, *leaves, what="requires_grad")], plain, "primal with requires_grad")
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(t, v) for t, v in zip(problem.inputs, tangents, strict=True)]
        primals = [forward_ad.unpack_dual(y).primal for y in j.call(f, *duals, what="dual tensors")]
    require_same(j, primals, plain, "primal with tangents")
    through: dict[str, Callable[[], Any]] = {
        "primal of func.jvp": lambda: torch.func.jvp(f, tuple(problem.inputs), tuple(tangents))[0],
        "primal of func.vjp": lambda: torch.func.vjp(f, *problem.inputs)[0],
    }
    for name, run in through.items():
        require_same(j, j.call(run, what=name), plain, name)


def memory(j: Judgement, sample: Sample) -> None:
    """MEM: bytes kept for backward, each storage once, for every set of inputs that may require grad."""
    budget = j.op.promises.saved
    if budget is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{j.op.name} declares no budget of saved bytes")
    positions = Problem(j.op, sample.args).wrt
    for picked in range(1, 2 ** len(positions)):
        wanted = frozenset(p for i, p in enumerate(positions) if picked >> i & 1)
        args = [
            a.detach().requires_grad_() if i in wanted else a.detach() if isinstance(a, torch.Tensor) else a
            for i, a in enumerate(sample.args)
        ]
        kept, allowed = _saved_bytes(j, args), budget(sample.args, wanted)
        j.judged += 1
        j.max_ratio = max(j.max_ratio, kept / allowed if allowed else 0.0)
        if kept > allowed:
            names = ", ".join(j.op.arguments[p] for p in sorted(wanted))
            title = f"{j.op.name}: keeps {kept} bytes for backward, declared {allowed}"
            raise Violation(Code.MEMORY, title, [f"requires grad: {names}"], "forward")


def _saved_bytes(j: Judgement, args: Sequence[Any]) -> int:
    given = {t.untyped_storage().data_ptr() for t in args if isinstance(t, torch.Tensor)}
    storages: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        if t.numel():
            storage = t.untyped_storage()
            # An argument's memory lives anyway, as much of it as the saved view shows; any other is kept alive whole.
            size = t.numel() * t.element_size() if storage.data_ptr() in given else storage.nbytes()
            storages[storage.data_ptr()] = max(size, storages.get(storage.data_ptr(), 0))
        return t

    with saved_tensors_hooks(pack, lambda t: t):
        outputs = j.call(j.subject, *args, what="forward")
    del outputs
    return sum(storages.values())
