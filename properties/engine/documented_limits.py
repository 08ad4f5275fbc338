"""A question that is asked of somebody else's implementation: what it documents as outside, it may refuse.

What this is for: an implementation that says "the derivative for 'weight' is not implemented", where its documentation
promises no such derivative, is not wrong. It has refused, which is counted, and the question is asked again without it.

What is hard here: an excuse must not hide a fault. So a refusal is a raised error of a documented kind, with words in
it, at a call that is outside of the documentation, and nothing else: whatever was computed is judged first, and what
is inside is asked again.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...oracles.bound.contract import Contract, contract
from ...oracles.bound.rounding import Ball
from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import Op, Sample, Tensor, dtype_name
from ...oracles.op.documented import KINDS, Documented
from ...oracles.op.paths import Expected, Path
from ...oracles.op.transforms import Word
from ...oracles.verdicts.verdict import Code
from ...oracles.verdicts.violation import Unsupported, Violation, clear, error_lines
from ...reference.formats import FORMATS, ulp_array

Check = Callable[[Judge, Sample], None]


class _Casting(Judge):
    """Another judge, of a subject that casts its inputs to a narrower dtype first; it counts into the same tally."""

    def __init__(self, judge: Judge, narrow: torch.dtype) -> None:
        self.__dict__.update(vars(judge))
        self._narrow = narrow
        self.contract = contract(dtype_name(narrow), judge.arithmetic)

    def contract_of(self, order: int, wide: bool = False) -> Contract:
        found = super().contract_of(order, wide)
        # The first derivative is rounded to the dtype of the cast before the second one is taken of it.
        twice = order + self.op.promises.order > 1
        return replace(found, accumulate=FORMATS[dtype_name(self._narrow)]) if twice else found

    def path(self, sample: Sample, word: Word, primal: Sequence[Tensor], engine: str = "func") -> Path:
        path = super().path(sample, word, primal, engine)
        # What is cast has to be held by the narrower dtype, tangents and cotangents as well.
        return replace(path, directions=tuple(t.to(self._narrow).to(t.dtype) for t in path.directions))

    def read(self, expected: Expected, outputs: Sequence[Tensor] = ()) -> tuple[Ball, ...]:
        found, fmt = super().read(expected, outputs), FORMATS[dtype_name(self._narrow)]
        for ball in found:
            # Derivatives in what was cast are rounded to the narrower dtype before they are cast back.
            ball.radius = ball.radii() + 0.5 * ulp_array(fmt, np.abs(ball.centre) + ball.radii())
        return found


def promised(op: Op, subject: str) -> Op:
    """The op with the promises that a subject documents in place of its own."""
    documented = op.documented_by(subject)
    return replace(op, promises=replace(op.promises, **documented.promises)) if documented.promises else op


def require_asked(op: Op, subject: str, code: str) -> None:
    """Unsupported where a subject makes no promise of what a property asks."""
    reason = op.documented_by(subject).not_asked.get(code)
    if reason:
        raise Unsupported(Code.NOT_APPLICABLE, f"{subject} does not promise this of {op.name}: {reason}")


def ask(check: Check, judge: Judge, sample: Sample) -> None:
    """Ask a check of a sample, and again without what the subject refuses as documented.

    Raises:
        Violation: as the check raises it, but for refusals; those are told to the judge's tally.
    """
    given, sample = _cast(judge, sample)
    asked: Judge | None = given
    while asked is not None:
        try:
            check(asked, sample)
        except Violation as violation:
            reason, following = _refused(asked, sample, violation)
            if not reason:
                raise
            judge.tally.refuse(reason)
            asked = following
        except Unsupported:
            # Without what was refused there may be nothing left to ask.
            if asked is given:
                raise
            return
        else:
            return


def _cast(judge: Judge, sample: Sample) -> tuple[Judge, Sample]:
    """The judge and the sample where the subject casts its inputs to a narrower dtype before the op.

    The inputs are then numbers that the narrower dtype has, so that the cast is exact, and the op is judged in that
    dtype. Elsewhere both are as they were.
    """
    casts = judge.op.documented_by(judge.subject_name).casts
    to = None if casts is None else casts(sample.args)
    floats = [a for a in sample.args if isinstance(a, Tensor) and a.is_floating_point()]
    if to is None or all(torch.promote_types(a.dtype, to) is to for a in floats):
        return judge, sample

    def held(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(a.to(to).to(a.dtype) if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)

    slices, others = (tuple(map(held, rows)) for rows in (sample.slices, sample.others))
    return _Casting(judge, to), replace(sample, args=held(sample.args), slices=slices, others=others)


def _refused(judge: Judge, sample: Sample, violation: Violation) -> tuple[str, Judge | None]:
    """Why a violation is a documented refusal, and who asks what is left; no reason where it is none."""
    documented, error = judge.op.documented_by(judge.subject_name), violation.__cause__
    if violation.code is not Code.RAISED or not isinstance(error, KINDS):
        return "", None
    if not clear(error):
        return "", None
    text = " ".join(error_lines(error))
    words = f"{type(error).__name__}: {text}"[:300]
    dtype = judge.contract.stores.name
    if documented.dtypes is not None and dtype not in documented.dtypes:
        return f"{dtype} is not among its dtypes ({documented.source}): {words}", None
    for limit in documented.limits:
        outside = limit.where is None or any(map(limit.where, (sample.args, *sample.slices, *sample.others)))
        if outside and isinstance(error, limit.kinds) and re.search(limit.error, text):
            return f"{limit.what} ({limit.source}): {words}", _ask_without(judge, limit.transforms)
    return _gradient(judge, sample, documented, words)


def _gradient(judge: Judge, sample: Sample, documented: Documented, words: str) -> tuple[str, Judge | None]:
    """The same for derivatives in arguments that the subject does not differentiate."""
    if documented.differentiable is None:
        return "", None
    positions = judge.op.differentiable_positions(sample.args)
    beyond = [name for name in map(judge.op.argument, positions) if name not in documented.differentiable]
    if not beyond:
        return "", None
    names = " and ".join(dict.fromkeys(beyond))
    left = tuple(name for name in judge.op.differentiable if name in documented.differentiable)
    return f"no gradient of {names} ({documented.source}): {words}", _of(judge, replace(judge.op, differentiable=left))


def _ask_without(judge: Judge, transforms: frozenset[str]) -> Judge | None:
    """Who asks without some transforms; nobody where there are none, or where they were not asked for."""
    promises = judge.op.promises
    if transforms <= promises.without:
        return None
    return _of(judge, replace(judge.op, promises=replace(promises, without=promises.without | transforms)))


def _of(judge: Judge, op: Op) -> Judge:
    """The judge of an op with less to ask; what it counts goes into the same tally."""
    other = copy.copy(judge)
    other.op = op
    return other
