"""Questions to somebody else's implementation, which may refuse the calls that its documentation excludes.

What this is for: an implementation that says "the derivative for 'weight' is not implemented", where its documentation
promises no such derivative, is not wrong. Its refusal is counted, and the question is asked again without the
derivative.

Where a subject means what plain PyTorch says, torch's own evaluation of that is asked the same at the same sample: what
it refuses is left out, and where it does not keep its bits the subject is held to the bound in place of them.

What is hard here: an excuse must not hide a fault. So one thing alone is a refusal: an error of a documented kind, with
words in it, raised at a call that the documentation excludes. Whatever was computed is judged first, and the question
is asked again of all that the documentation promises.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...oracles.bound.contract import Contract, contract
from ...oracles.bound.rounding import Ball
from ...oracles.judge import native
from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import Op, Sample, Tensor, dtype_name, is_float
from ...oracles.op.documented import KINDS, Documented
from ...oracles.op.paths import Expected, Path
from ...oracles.op.transforms import Word
from ...oracles.specs import UntraceableError
from ...oracles.verdicts.violation import Code, Unsupported, Violation, clear, error_lines, error_of, shape_of
from ...reference.formats import FORMATS, ulp_array

Check = Callable[[Judge, Sample], None]
#: Violations for which torch's own evaluation of a reference is asked the same.
_EXCUSES = (Code.BITS, Code.RAISED, Code.ALIASED, Code.ATTRIBUTE, Code.MUTATED)
#: At how many other data of the same shapes torch's own evaluation is asked whether it keeps its bits.
_MORE_DATA = 3


class _Casting(Judge):
    """The judge of a subject that casts its inputs to a narrower dtype first; it shares the tally of another judge."""

    def __init__(self, judge: Judge, narrow: torch.dtype) -> None:
        self.__dict__.update(vars(judge))
        self._narrow = narrow
        self.contract = contract(dtype_name(narrow), judge.arithmetic)

    def contract_of(self, order: int, wide: bool = False) -> Contract:
        base = super().contract_of(order, wide)
        # The first derivative is rounded to the dtype of the cast before the second one is taken of it.
        twice = order + self.op.promises.order > 1
        return replace(base, accumulate=FORMATS[dtype_name(self._narrow)]) if twice else base

    def path(self, sample: Sample, word: Word, primal: Sequence[Tensor], engine: str = "func") -> Path:
        path = super().path(sample, word, primal, engine)
        # Tangents and cotangents are cast as well, so they have to be numbers that the narrower dtype has.
        return replace(path, directions=tuple(t.to(self._narrow).to(t.dtype) for t in path.directions))

    def read(self, expected: Expected, outputs: Sequence[Tensor] = ()) -> tuple[Ball, ...]:
        balls, fmt = super().read(expected, outputs), FORMATS[dtype_name(self._narrow)]
        for ball in balls:
            # Derivatives in an input that was cast are rounded to the narrower dtype before they are cast back.
            ball.radius = ball.radii() + 0.5 * ulp_array(fmt, np.abs(ball.centre) + ball.radii())
        return balls


def with_documented_promises(op: Op, subject: str) -> Op:
    """The op, its own promises replaced by those that a subject documents."""
    documented = op.documented_by(subject)
    return op.changed(**documented.promises) if documented.promises else op


def require_promise(op: Op, subject: str, code: str) -> None:
    """Raise Unsupported where a subject does not promise what a property asks for."""
    reason = op.documented_by(subject).not_asked.get(code)
    if reason:
        raise Unsupported(Code.NOT_APPLICABLE, f"{subject} does not promise this of {op.name}: {reason}")


def ask(check: Check, judge: Judge, sample: Sample) -> None:
    """Ask a check of a sample, and again without what the subject refuses as documented.

    Raises:
        Violation: as the check raises it, except for documented refusals, which the judge's tally counts.
    """
    refusal = native.refusal_of_native(judge, sample.args)
    if refusal:
        judge.tally.leave_out(refusal, whole=True)
        return
    # Other structures beside a sample stand for any that the op takes.
    others = (other if not native.refusal_of_native(judge, other) else sample.args for other in sample.others)
    first, sample = _cast(judge, replace(sample, others=tuple(others)) if sample.others else sample)
    current: Judge | None = first
    while current is not None:
        try:
            check(current, sample)
        except UntraceableError as err:
            if current.op.documented_by(judge.subject_name).native is None:
                raise
            judge.tally.leave_out(f"it cannot be read there: {error_lines(err)[0]}"[:200], whole=True)
            return
        except Violation as violation:
            reason, following = _explain_refusal(current, sample, violation)
            if not reason:
                current = _ask_what_native_keeps(check, current, sample, violation)
                continue
            judge.tally.refuse(reason)
            current = following
        except Unsupported:
            # Without the transforms or derivatives that were refused there may be nothing left to ask.
            if current is first:
                raise
            return
        else:
            return


def _ask_what_native_keeps(check: Check, judge: Judge, sample: Sample, violation: Violation) -> Judge | None:
    """The judge that asks no bits where torch's own evaluation of the reference breaks a promise as the subject does.

    None where it breaks another promise than that of bits, as the subject does: the rest of the sample is left out.

    Raises:
        Violation: this one, where torch's own evaluation keeps the promise.
    """
    own = native.judge_of_native(judge) if violation.code in _EXCUSES else None
    samples = _like(sample) if violation.code is Code.BITS else (sample,)
    breaks = () if own is None else (_broken(check, own, other) for other in samples)
    broken = next(filter(None, breaks), None)
    if broken is None or _promise(broken) != _promise(violation):
        raise violation
    if violation.code is not Code.BITS:
        judge.tally.leave_out(f"{error_of(violation) or violation.title}, {violation.path}"[:200])
        return None
    documented = judge.op.documented_by(judge.subject_name)
    if not documented.bits:
        raise violation
    judge.tally.note_first("torch's own evaluation of the reference does not keep its bits, ", f"{violation.path}")
    less = {judge.subject_name: replace(documented, bits=False)}
    return judge.of(replace(judge.op, documented={**judge.op.documented, **less}))


def _broken(check: Check, own: Judge, sample: Sample) -> Violation | None:
    try:
        check(own, sample)
    except Violation as violation:
        return violation
    except (Unsupported, UntraceableError):
        pass
    return None


def _like(sample: Sample) -> Iterator[Sample]:
    """The sample, and others of its shapes: whether bits differ by the number of threads is a matter of data, too."""
    yield sample
    for seed in range(_MORE_DATA):
        numbers = np.random.default_rng([sample.seed, seed])
        yield sample.with_args(
            [torch.from_numpy(numbers.standard_normal(a.shape)).to(a) if is_float(a) else a for a in sample.args]
        )


def _promise(violation: Violation) -> tuple[object, ...]:
    return violation.code, shape_of(violation.path), error_of(violation).partition(":")[0]


def _cast(judge: Judge, sample: Sample) -> tuple[Judge, Sample]:
    """The judge and the sample where the subject casts its inputs to a narrower dtype before the op.

    The inputs are then numbers that the narrower dtype has, so that the cast is exact, and the op is judged in that
    dtype. For any other subject both are returned unchanged.
    """
    casts = judge.op.documented_by(judge.subject_name).casts
    to = None if casts is None else casts(sample.args)
    floats = [a for a in sample.args if isinstance(a, Tensor) and a.is_floating_point()]
    if to is None or all(torch.promote_types(a.dtype, to) is to for a in floats):
        return judge, sample

    def narrow(args: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(a.to(to).to(a.dtype) if isinstance(a, Tensor) and a.is_floating_point() else a for a in args)

    slices, others = (tuple(map(narrow, rows)) for rows in (sample.slices, sample.others))
    return _Casting(judge, to), replace(sample, args=narrow(sample.args), slices=slices, others=others)


def _explain_refusal(judge: Judge, sample: Sample, violation: Violation) -> tuple[str, Judge | None]:
    """Why a violation is a documented refusal, and the judge that asks the rest; the reason is empty where it is none.

    The judge is None where nothing is left to ask.
    """
    documented, error = judge.op.documented_by(judge.subject_name), violation.__cause__
    if violation.code is not Code.RAISED or not isinstance(error, KINDS) or not clear(error):
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
    return _explain_gradient_refusal(judge, sample, documented, words)


def _explain_gradient_refusal(
    judge: Judge, sample: Sample, documented: Documented, words: str
) -> tuple[str, Judge | None]:
    """As `_explain_refusal`, for derivatives in arguments that are not documented as differentiable."""
    if documented.differentiable is None:
        return "", None
    positions = judge.op.differentiable_positions(sample.args)
    beyond = [name for name in map(judge.op.argument, positions) if name not in documented.differentiable]
    if not beyond:
        return "", None
    names = " and ".join(dict.fromkeys(beyond))
    differentiable = tuple(name for name in judge.op.differentiable if name in documented.differentiable)
    rest = judge.of(replace(judge.op, differentiable=differentiable))
    return f"no gradient of {names} ({documented.source}): {words}", rest


def _ask_without(judge: Judge, transforms: frozenset[str]) -> Judge | None:
    """The judge that does not ask for some transforms; None if there are none, or if they were not asked for."""
    without = judge.op.promises.without
    return None if transforms <= without else judge.of(judge.op.changed(without=without | transforms))
