"""ERROR: documented invalid input raises the documented error, before anything is written."""

from __future__ import annotations

import torch

from .. import state
from ..bits import same_bits
from ..judge import Judge
from ..op import OWN, Refusal, Sample
from ..state import interrupt
from ..verdict import Code
from ..violation import Unsupported, Violation, clear, error_name, raised, said


def refused(judge: Judge, sample: Sample) -> None:
    """ERROR: type and text of every refusal of the op; the inputs keep their bits and versions."""
    if not judge.op.refusals:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} documents no invalid input")
    for refusal in judge.op.refusals:
        args = refusal.mutate(sample.args)
        documented = judge.op.documented_by(judge.subject_name).refuses
        promised = documented is None or refusal.name in documented
        if args is None:
            continue
        # The implementation itself is called, not the function that copies what the op writes: an op must not write
        # before it refuses, not even to the arguments that it may write. Those are copied here instead.
        args = tuple(a.clone() if i in judge.op.written(args) else a for i, a in enumerate(args))
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        before = [(t.clone(), t._version) for t in tensors]
        if promised:
            _must_raise(judge, refusal, args)
        elif not _raises_clearly(judge, refusal, args):
            continue
        for t, (copy, version) in zip(tensors, before, strict=True):
            if t._version != version or not same_bits(t, copy):
                raise judge.broken(Code.MUTATED, f"wrote before refusing {refusal.name}", path=refusal.name)
        judge.tally.count(1)


def _must_raise(judge: Judge, refusal: Refusal, args: tuple[object, ...]) -> None:
    need = refusal.error.__name__
    try:
        state.undisturbed(judge.op.implementation(judge.subject_name), args)
    except Unsupported:
        raise
    except refusal.error as err:
        # Only the production op promises what the text mentions; other subjects promise no more than the type.
        missing = [word for word in refusal.mentions if word not in str(err)] if judge.subject_name == OWN else []
        if missing:
            wrong = f"the error for {refusal.name} does not mention {missing[0]!r}"
            raise judge.broken(Code.NOT_RAISED, wrong, said(err), path=refusal.name) from err
        return
    except BaseException as err:
        interrupt.reraise()
        title = f"{judge.op.name}: {refusal.name} raised {error_name(err)}, need {need}"
        # An exception that asks to end the process, such as SystemExit, is wrong on any input, valid or not.
        code = Code.NOT_RAISED if isinstance(err, Exception) else Code.RAISED
        raise Violation(code, title, said(err)[:1], refusal.name) from err
    raise judge.broken(Code.NOT_RAISED, f"accepted {refusal.name}, need {need}", path=refusal.name)


def _raises_clearly(judge: Judge, refusal: Refusal, args: tuple[object, ...]) -> bool:
    """Whether the subject refuses what it does not document as invalid; if it does, an error of its kind is enough."""
    try:
        state.undisturbed(judge.op.implementation(judge.subject_name), args)
    except Unsupported:
        raise
    except Exception as err:
        # No documentation says of which type the error is, so any will do that says something.
        if not clear(err):
            title = f"{judge.op.name}: {refusal.name} raised {error_name(err)}, need an error that says what is wrong"
            raise Violation(Code.NOT_RAISED, title, said(err)[:1], refusal.name) from err
        return True
    except BaseException as err:
        interrupt.reraise()
        raise raised(judge.op.name, err, refusal.name) from err
    return False
