"""VMAP and NEST: vmap over every combination of axes, transforms of transforms, a different sample in every slice."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ....reference.array import algorithm_of, algorithms
from ...judgement import Judgement, Unsupported, Violation, said
from ...op import OWN, Sample, Tensor, dtype_name, flat_outputs, is_float, to_array
from ...properties import PROPERTIES
from ...rounding import balls
from ...transforms import FIRST, REFERENCE, SECOND, Problem, Vmap, draw_directions, output_names, signature
from ...verdict import Code

#: How many slices a batch has: as many as the samples of VMAP come with.
SLICES = PROPERTIES["VMAP"].slices
#: At most this many of the combinations of in_dims and out_dims are tried on one sample.
COMBINATIONS = 16
#: How many nestings are tried on one sample.
WORDS = 8


def vmapped(j: Judgement, sample: Sample) -> None:
    """VMAP: in_dims None, first, last and middle for every tensor, all outputs, out_dims first and last."""
    j.offered(((Vmap(SLICES),),))
    tensors = [i for i, a in enumerate(sample.args) if isinstance(a, torch.Tensor)]
    rng = np.random.default_rng([sample.seed, 7])
    loops: dict[frozenset[int], _Loop] = {}  # the same for all in_dims that batch the same tensors
    for dims in _combinations(sample, tensors, rng):
        varied = frozenset(i for i, dim in zip(tensors, dims, strict=True) if dim is not None)
        if varied not in loops:
            loops[varied] = _Loop(j, sample, varied)
        # torch 2.13 misplaces the batch of an output that is not batched: only where every input is, ask for the end.
        _one(j, sample, tensors, dims, loops[varied], last=None not in dims and bool(rng.integers(2)))


class _Loop:
    """What vmap stands for: one call per slice, and the readings of all of them, stacked.

    Attributes:
        slices: arguments of each call. varied: positions of those that differ; the others are shared.
    """

    def __init__(self, j: Judgement, sample: Sample, varied: frozenset[int]) -> None:
        self.varied = varied
        given = (sample.args, *sample.slices)[:SLICES]
        self.slices = [[a if i in varied else sample.args[i] for i, a in enumerate(args)] for args in given]
        problems = [Problem(j.op, args) for args in self.slices]
        self.wrt = problems[0].wrt
        self.operands = [array for problem in problems for array in problem.arrays()]
        self.formula = _stacked([problem.formula((), 0) for problem in problems])
        with j.clock("reference"):
            self.read = balls(self.formula, self.operands, j.terms_of(0))


def _stacked(formulas: Sequence[Callable[..., Any]]) -> Callable[..., tuple[Any, ...]]:
    """One function of all formulas' operands in turn, with their outputs stacked."""

    def along(rows: Sequence[Callable[..., Any]]) -> Callable[..., tuple[Any, ...]]:
        def whole(*operands: Any) -> tuple[Any, ...]:
            own = len(operands) // len(rows)
            outputs = [f(*operands[k * own : (k + 1) * own]) for k, f in enumerate(rows)]
            return tuple(np.stack(column) for column in zip(*outputs, strict=True))

        return whole

    first = along(formulas)
    for rows in zip(*map(algorithms, formulas), strict=True):
        algorithm_of(first)(along(rows))
    return first


def _combinations(sample: Sample, tensors: Sequence[int], rng: Any) -> Iterator[tuple[int | None, ...]]:
    choices = [(None, 0, -1, *((1,) if sample.args[i].ndim > 1 else ())) for i in tensors]
    count = math.prod(map(len, choices)) - 1  # number 0 batches nothing
    picked = range(count) if count <= COMBINATIONS else sorted(rng.choice(count, COMBINATIONS, False))
    return (_numbered(int(number) + 1, choices) for number in picked)


def _numbered(number: int, choices: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """An item of `itertools.product(*choices)`, by its number: there may be more of them than could be listed."""
    found = []
    for options in reversed(choices):
        number, index = divmod(number, len(options))
        found.append(options[index])
    return tuple(reversed(found))


def _one(
    j: Judgement,
    sample: Sample,
    tensors: Sequence[int],
    dims: Sequence[int | None],
    loop: _Loop,
    last: bool,
) -> None:
    slices = loop.slices
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
        call = torch.func.vmap(f, in_dims=tuple(dims), out_dims=out_dims)
        outputs = _unless_refused(j, call, batched, loop, what)
    if outputs is None:
        return
    _attributes(j, what, outputs, alone, out_dims, len(slices))
    names = [f"slices of {name}" for name in output_names(j.op, (), loop.wrt, len(outputs))]
    mine = [y.movedim(d, 0) for y, d in zip(outputs, out_dims, strict=True)]
    j.compare(loop.formula, loop.operands, loop.read, None, mine, names, what, 0)


def _unless_refused(
    j: Judgement,
    call: Callable[..., Any],
    batched: Sequence[Tensor],
    loop: _Loop,
    what: str,
) -> Any:
    """The outputs of a batched call, or None where it was refused, and rightly so.

    An argument that all slices share cannot take what they would write to it, where that differs: a RuntimeError must
    name it. Where it does not differ but may depend on batched data, as a NaN there tells, either is right.
    """
    first, varied = loop.slices[0], loop.varied
    written = j.op.written(first)
    shared = [(i, k) for k, i in enumerate(written) if i not in varied]
    if not shared:
        return j.call(call, *batched, what=what)
    with j.clock("reference"):
        values = [np.asarray(ball.centre) for ball in loop.read[len(loop.read) - len(written) :]]
        blank = [torch.full_like(a, math.nan) if i in varied and is_float(a) else a for i, a in enumerate(first)]
        reached = _written(j, blank, len(written))
    must = [j.op.label(i) for i, k in shared if not all(_same(values[k][0], row) for row in values[k][1:])]
    may = any(np.isnan(reached[k]).any() for _, k in shared)
    try:
        outputs = j.call(call, *batched, what=what)
    except Violation as violation:
        err = violation.__cause__
        if not isinstance(err, RuntimeError) or not (must or may):
            raise
        if must and j.subject_name == OWN and not any(name in str(err) for name in must):
            title = f"{j.op.name} {what}: the refusal does not mention {must[0]!r}"
            raise Violation(Code.NOT_RAISED, title, said(err), what) from err
        j.judged += 1
        return None
    if must:
        title = f"{j.op.name} {what}: slices write different values to {must[0]}, which they share; need RuntimeError"
        raise Violation(Code.NOT_RAISED, title, path=what)
    return outputs


def _written(j: Judgement, args: Sequence[Any], count: int) -> list[Any]:
    """What the formula says a call writes, as arrays."""
    problem = Problem(j.op, args)
    read = balls(problem.formula((), 0), problem.arrays(), j.terms_of(0))
    return [np.asarray(ball.centre) for ball in read[len(read) - count :]]


def _same(a: Any, b: Any) -> bool:
    return bool(np.array_equal(a, b, equal_nan=True))


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
    problem = Problem(j.op, sample.args)
    wrt = [j.op.argument(i) for i in problem.wrt]
    last = {i for i, name in enumerate(wrt) if i > 0 and name == j.op.differentiable[-1]}
    shared = Vmap(2, frozenset(last if _reach_all(j, problem, set(range(len(wrt))) - last) else ()))
    words: list[tuple[Any, ...]] = [(Vmap(2), Vmap(2))]
    words += [(*word, Vmap(2)) for word in (*FIRST, *SECOND)]
    words += [(Vmap(2), *word) for word in (*FIRST, *SECOND[:2])]
    words += [("vjp", shared), (shared, "vjp"), (shared, "jvp")]
    for word in j.offered(words):
        j.path(sample, word, exactly=False)
    if not j.op.promises.without:
        jacobians(j, sample)


def _reach_all(j: Judgement, problem: Problem, batched: set[int]) -> bool:
    """Whether every output depends on some of these inputs, or on a passive operand; with the half types alone.

    One that does not is the same in all slices; torch adds up its cotangents, in its dtype, before the op sees them,
    which for a half type is a rounding of its own.
    """
    if j.terms.stores == j.terms.accumulate:
        return True
    passive = len(problem.fixed)
    arrays = [np.full_like(a, math.nan) if i - passive in batched else a for i, a in enumerate(problem.arrays())]
    read = balls(problem.formula((), 0), arrays, j.terms_of(0))
    centres = [np.asarray(ball.centre) for ball in read]
    return bool(passive) or all(np.isnan(centre).any() for centre in centres if centre.size)


def words(j: Judgement, sample: Sample) -> None:
    """WORD: nestings of jvp, vjp and vmap of every depth up to the one that the op promises, some for each sample."""
    depth = j.op.promises.nesting
    if not depth:
        reason = f"{j.op.name} promises no depth of nesting; NEST asks for some of depth 2 and 3"
        raise Unsupported(Code.NOT_APPLICABLE, reason)
    every = j.offered(nestings(depth))
    for i in sorted(sample.generator(39).choice(len(every), min(WORDS, len(every)), replace=False)):
        j.path(sample, every[i], exactly=False)


def nestings(depth: int) -> list[tuple[Any, ...]]:
    """Every word of jvp, vjp and vmap of one step up to `depth` steps: 39 of them up to depth 3."""
    steps = ("jvp", "vjp", Vmap(2))
    return [word for length in range(1, depth + 1) for word in itertools.product(steps, repeat=length)]


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
