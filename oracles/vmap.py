"""VMAP and NEST: vmap over every combination of axes, transforms of transforms, a different sample in every slice."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .judgement import Judgement, Violation
from .op import Sample, Tensor, dtype_name, flat_outputs, to_array
from .transforms import FIRST, REFERENCE, SECOND, Problem, Vmap, draw_directions, output_names, signature
from .verdict import Code

SLICES = 3
#: At most this many of the combinations of in_dims and out_dims are tried on one sample.
COMBINATIONS = 40


def vmapped(j: Judgement, sample: Sample) -> None:
    """VMAP: in_dims None, first, last and middle for every tensor, all outputs, out_dims first and last."""
    slices = (sample.args, *sample.slices)[:SLICES]
    tensors = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    rng = np.random.default_rng([sample.seed, 7])
    for dims in _combinations(sample, tensors, rng):
        mixed = [list(args) for args in slices]
        for i, dim in zip(tensors, dims, strict=True):
            for row in mixed:
                row[i] = row[i] if dim is not None else sample.args[i]
        # torch 2.13 misplaces the batch of an output that is not batched: only where every input is, ask for the end.
        _one(j, sample, tensors, dims, mixed, last=None not in dims and bool(rng.integers(2)))


def _combinations(sample: Sample, tensors: Sequence[int], rng: Any) -> Iterator[tuple[int | None, ...]]:
    choices = [(None, 0, -1, *((1,) if sample.args[i].ndim > 1 else ())) for i in tensors]
    every = [c for c in itertools.product(*choices) if any(d is not None for d in c)]
    picked = range(len(every)) if len(every) <= COMBINATIONS else sorted(rng.choice(len(every), COMBINATIONS, False))
    return (every[i] for i in picked)


def _one(
    j: Judgement,
    sample: Sample,
    tensors: Sequence[int],
    dims: Sequence[int | None],
    slices: list[list[Any]],
    last: bool,
) -> None:
    batched = [
        sample.args[i] if d is None else torch.stack([row[i] for row in slices], d if d >= 0 else slices[0][i].ndim)
        for i, d in zip(tensors, dims, strict=True)
    ]

    def f(*operands: Any) -> Any:
        args = list(sample.args)
        for i, operand in zip(tensors, operands, strict=True):
            args[i] = operand
        return flat_outputs(j.subject(*args))

    with torch.no_grad():
        alone = j.call(f, *(slices[0][i] for i in tensors), what="forward")
        out_dims = tuple(one.ndim if last else 0 for one in alone)
        what = f"vmap(in_dims={tuple(dims)}, out_dims={out_dims})"
        outputs = j.call(torch.func.vmap(f, in_dims=tuple(dims), out_dims=out_dims), *batched, what=what)
    _attributes(j, what, outputs, alone, out_dims, len(slices))
    for k, args in enumerate(slices):
        problem = Problem(j.op, args)
        names = [f"slice {k} {n}" for n in output_names(j.op, (), problem.wrt, len(outputs))]
        mine = [y.movedim(d, 0)[k] for y, d in zip(outputs, out_dims, strict=True)]
        j.against(problem.formula((), len(outputs)), problem.arrays(), mine, names, what, 0, exactly=False)


def _attributes(
    j: Judgement, what: str, outputs: Sequence[Tensor], alone: Sequence[Tensor], out_dims: Sequence[int], size: int
) -> None:
    """Dtype and shape under vmap are those without it, and the batch axis where it was asked for."""
    for y, one, d in zip(outputs, alone, out_dims, strict=True):
        if y.dtype != one.dtype:
            title = f"{j.op.name} {what}: got dtype={dtype_name(y.dtype)}, need {dtype_name(one.dtype)} as without vmap"
            raise Violation(Code.ATTRIBUTE, title, path=what)
        need = (*one.shape[:d], size, *one.shape[d:])
        if tuple(y.shape) != need:
            raise Violation(Code.ATTRIBUTE, f"{j.op.name} {what}: got shape={tuple(y.shape)}, need {need}", path=what)


def nested(j: Judgement, sample: Sample) -> None:
    """NEST: vmap of vmap, vmap of every path, every path of vmap, per-sample gradients, jacobians, hessian."""
    # Per-sample gradients: the last differentiable argument (weights come last) is shared by all slices.
    wrt = [j.op.arguments[i] for i in Problem(j.op, sample.args).wrt]
    last = [i for i, name in enumerate(wrt) if i > 0 and name == j.op.differentiable[-1]]
    shared = Vmap(2, frozenset(last))
    words: list[tuple[Any, ...]] = [(Vmap(2), Vmap(2))]
    words += [(*word, Vmap(2)) for word in (*FIRST, *SECOND)]
    words += [(Vmap(2), *word) for word in (*FIRST, *SECOND[:2])]
    words += [("vjp", shared), (shared, "vjp"), (shared, "jvp")]
    for word in words:
        j.path(sample, word, exactly=False)
    jacobians(j, sample)


def jacobians(j: Judgement, sample: Sample, limit: int = 16) -> None:
    """jacrev, jacfwd and hessian in the first input, where that has at most `limit` elements."""
    problem = Problem(j.op, sample.args)
    if problem.inputs[0].numel() > limit or problem.inputs[0].numel() == 0:
        return
    x, rest = problem.inputs[0], problem.inputs[1:]
    f = problem.subject(j.subject)
    with torch.no_grad():
        primal = j.call(f, *problem.inputs, what="forward")
    weights = draw_directions(signature((), primal, ()), sample.seed, j.device)[0]
    formula, operands, at = problem.formula((), len(primal)), problem.arrays(), len(problem.fixed)

    def first(t: Tensor) -> Any:
        return f(t, *rest)[0]

    for name, transform in (("jacrev", torch.func.jacrev), ("jacfwd", torch.func.jacfwd)):
        computed = j.call(transform(first), x, what=name)
        read = _jacobian(lambda *a: (formula(*a)[0],), at)
        j.against(read, operands, [computed], [f"{name}(out)"], name, 1, exactly=False)
    _hessian(j, f, problem, weights, formula, operands, at)


def _hessian(
    j: Judgement, f: Callable[..., Any], problem: Problem, weights: Tensor, formula: Any, operands: list[Any], at: int
) -> None:
    """jacfwd(jacrev) and jacrev(jacrev) of ⟨w, out⟩: the cotangent w is given, so nothing but the op is judged."""
    x, rest = problem.inputs[0], problem.inputs[1:]

    def gradient(t: Tensor) -> Any:
        return torch.func.vjp(lambda s: f(s, *rest)[0], t)[1](weights)[0]

    def pulled(*arrays: Any) -> tuple[Any, ...]:
        before, w, t, after = arrays[:at], arrays[-1], arrays[at], arrays[at + 1 : -1]
        return REFERENCE.vjp(lambda s: (formula(*before, s, *after)[0],), [t], [w])

    for name, transform in (("hessian", torch.func.jacfwd), ("jacrev(jacrev)", torch.func.jacrev)):
        computed = j.call(transform(gradient), x, what=name)
        j.against(_jacobian(pulled, at), [*operands, to_array(weights)], [computed], [name], name, 2, exactly=False)


def _jacobian(formula: Callable[..., Any], at: int) -> Callable[..., Any]:
    """The jacobian of a one-output formula in its operand `at`: one forward tangent per element, as the last axes."""

    def read(*arrays: Any) -> Any:
        x = arrays[at]
        columns = []
        for i in range(x.size):
            basis = np.zeros(x.size)
            basis[i] = 1.0
            unit = x.lift(basis.reshape(x.shape))
            column = REFERENCE.jvp(lambda t: formula(*arrays[:at], t, *arrays[at + 1 :]), [x], [unit])[0]
            columns.append(column)
        stacked = np.stack(columns, axis=len(columns[0].shape))
        return np.reshape(stacked, (*columns[0].shape, *x.shape))

    return read
