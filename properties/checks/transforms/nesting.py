"""NEST and WORD: nested transforms, and what users build of them: per-sample gradients, jacobians, hessians."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ....oracles.bound.rounding import balls
from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import Sample, Stream, Tensor, to_array
from ....oracles.op.paths import Expected, Problem
from ....oracles.op.transforms import FIRST, REFERENCE, SECOND, Vmap, Word, nestings
from ....oracles.programs.particular import script_jacobian
from ....oracles.verdicts.violation import Code, Unsupported

#: How many nestings are judged on one sample.
WORDS = 8
#: More inputs and directions than a word of second order has.
_MANY = 64


def check_nesting(judge: Judge, sample: Sample) -> None:
    """NEST: vmap of vmap, vmap of every path, every path of vmap, rows and columns of a jacobian, jacobians, hessian.

    Weights are batched in every vmap, and in some words shared by the slices of the inner or of the outer vmap. Some
    operands have the batch as their last axis; and in some words only inputs are batched, or only directions.
    """
    shared = _sharing_weights(judge, sample)
    words: list[Word] = [(Vmap(2), Vmap(2))]
    # A custom function, which promises a depth of nesting, may write a result over one of its arguments. Where one of
    # two levels shares that argument, torch's rule for custom functions under vmap does not find it among the outputs.
    words += [] if judge.op.promises.nesting else [(shared, Vmap(2)), (Vmap(2), shared)]
    batched = Vmap(2, last=_at_the_end(sample))
    inputs, directions = _apart(judge, sample, batched)
    words += [(*word, batched) for word in (*FIRST, *SECOND)]
    words += [(batched, *word) for word in (*FIRST, *SECOND[:2])]
    words += [("vjp", shared), (shared, "vjp"), (shared, "jvp")]
    words += [("vjp", inputs), ("vjp", directions), ("jvp", directions)]
    for word in judge.offered(words):
        judge.hold(sample, word, exactly=False)
    if not judge.op.promises.without:
        check_jacobians(judge, sample)


def _at_the_end(sample: Sample) -> frozenset[int]:
    """The inputs and directions whose batch is the last axis: about half of them, chosen by the sample."""
    return frozenset(map(int, np.flatnonzero(sample.seeded(Stream.NEST).integers(2, size=_MANY))))


def _sharing_weights(judge: Judge, sample: Sample) -> Vmap:
    """The vmap of per-sample gradients: all slices share the weights, which are the last differentiable argument.

    Where some output depends on the weights alone, the vmap shares nothing (see `_depend_on`).
    """
    problem = Problem(judge.op, sample.args)
    wrt = [judge.op.argument(i) for i in problem.wrt]
    weights = {i for i, name in enumerate(wrt) if i > 0 and name == judge.op.differentiable[-1]}
    return Vmap(2, frozenset(weights if _depend_on(judge, problem, set(range(len(wrt))) - weights) else ()))


def _apart(judge: Judge, sample: Sample, batched: Vmap) -> tuple[Vmap, Vmap]:
    """The vmaps over inputs alone, as for per-sample gradients, and over directions alone, as in jacrev and jacfwd.

    `check_jacobians` judges small inputs alone, and one input and one output of each sample.
    """
    inputs = len(Problem(judge.op, sample.args).wrt)
    # At least one operand must be batched, so an op without differentiable inputs keeps the directions batched.
    directions = frozenset(range(inputs, _MANY) if inputs else ())
    return replace(batched, shared=directions), replace(batched, shared=frozenset(range(inputs)))


def _depend_on(judge: Judge, problem: Problem, batched: set[int]) -> bool:
    """Whether every output depends on some batched input, or on a passive operand; always true in wide dtypes.

    An output that depends on none of them is equal in all slices. Torch adds up its cotangents over the slices, in the
    output's dtype, before the op gets them; in a half type that sum rounds, and the op would be blamed for the error.
    """
    if judge.contract.stores == judge.contract.accumulate:
        return True
    passive = len(problem.fixed)
    arrays = [np.full_like(a, np.nan) if i - passive in batched else a for i, a in enumerate(problem.arrays())]
    readings = balls(problem.formula((), 0), arrays, judge.contract_of(0))
    centres = [np.asarray(ball.centre) for ball in readings]
    return bool(passive) or all(np.isnan(centre).any() for centre in centres if centre.size)


def check_words(judge: Judge, sample: Sample) -> None:
    """WORD: some nestings of jvp, vjp and vmap for each sample, of every depth up to the one that the op promises."""
    depth = judge.op.promises.nesting
    if not depth:
        reason = f"{judge.op.name} promises no depth of nesting; NEST asks for some of depth 2 and 3"
        raise Unsupported(Code.NOT_APPLICABLE, reason)
    every = judge.offered(nestings(depth))
    for i in sorted(sample.generator(Stream.WORD).choice(len(every), min(WORDS, len(every)), replace=False)):
        judge.hold(sample, every[i], exactly=False)


def check_jacobians(judge: Judge, sample: Sample, limit: int = 16) -> None:
    """jacrev, jacfwd and hessian of one output in one input, chosen from the inputs of at most `limit` elements."""
    problem = Problem(judge.op, sample.args, sample.originals)
    # The formula's jacobian takes a pass per element of this input, and its hessian takes passes of second order.
    small = [i for i, x in enumerate(problem.inputs) if 0 < x.numel() <= limit]
    if not small:
        return
    f = problem.subject(judge.subject)
    with torch.no_grad():
        primal = judge.primal(sample)
    generator = sample.generator(Stream.JACOBIAN)
    of, by = int(generator.integers(len(primal))), small[generator.integers(len(small))]
    x, before, after = problem.inputs[by], problem.inputs[:by], problem.inputs[by + 1 :]
    # jacrev uses cotangents of zeros and a single one. Zero times the slope at a NaN is NaN, so one NaN among the
    # outputs would reach derivatives of elements that do not depend on it.
    if not all(bool(torch.isfinite(y).all()) for y in primal):
        judge.tally.count(not_judged=primal[of].numel())
        return
    # The cotangent of the output weights the rows of the hessian.
    weights = judge.path(sample, ("vjp",), primal[of : of + 1]).directions[0]
    formula, operands, at = problem.formula((), len(primal)), problem.arrays(), len(problem.fixed) + by

    def one(t: Tensor) -> Any:
        return f(*before, t, *after)[of]

    def gradient(t: Tensor) -> Any:
        return torch.func.vjp(one, t)[1](weights)[0]

    def read(*arrays: Any) -> tuple[Any, ...]:
        return (formula(*arrays)[of],)

    def pullback(*arrays: Any) -> tuple[Any, ...]:
        before, w, t, after = arrays[:at], arrays[-1], arrays[at], arrays[at + 1 : -1]
        return REFERENCE.vjp(lambda s: read(*before, s, *after), [t], [w])

    for name, transform in (("jacrev", torch.func.jacrev), ("jacfwd", torch.func.jacfwd)):
        computed = judge.call(transform(one), x, what=name)
        script = functools.partial(script_jacobian, problem, name, weights, of, by)
        expected = Expected(_jacobian(read, at), operands, [f"{name}(out)"], name, 1, script)
        judge.against(expected, [computed], exactly=False)
    # jacfwd and jacrev of the gradient of ⟨w, out⟩, with a fixed cotangent w, so that the op alone is differentiated.
    for name, transform in (("hessian", torch.func.jacfwd), ("jacrev(jacrev)", torch.func.jacrev)):
        computed = judge.call(transform(gradient), x, what=name)
        script = functools.partial(script_jacobian, problem, name, weights, of, by)
        expected = Expected(_jacobian(pullback, at), [*operands, to_array(weights)], [name], name, 2, script)
        judge.against(expected, [computed], exactly=False)


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
