"""ERROR: documented invalid input raises the documented error, before the call writes to any argument."""

from __future__ import annotations

import builtins
import functools
import re
from collections.abc import Sequence

import torch

from ...oracles import process
from ...oracles.judge.judge import Judge
from ...oracles.op.bits import same_bits
from ...oracles.op.declaration import OWN, Refusal, Sample
from ...oracles.op.script import ScriptMaker
from ...oracles.process import interrupt
from ...oracles.programs import particular as programs
from ...oracles.verdicts.violation import Code, Unsupported, Violation, clear, error_lines, error_name, raised


def check_refusals(judge: Judge, sample: Sample) -> None:
    """ERROR: type and text of every refusal of the op; the inputs keep their bits and versions."""
    if not judge.op.refusals:
        raise Unsupported(Code.NOT_APPLICABLE, f"{judge.op.name} documents no invalid input")
    for refusal in judge.op.refusals:
        args = refusal.mutate(sample.args)
        documented = judge.op.documented_by(judge.subject_name).refuses
        promised = documented is None or refusal.name in documented
        if args is None or (refusal.short and not promised) or refusal.ends_work_on(judge.device):
            continue
        # The implementation itself is called, not the function that copies what the op writes: an op must not write
        # before it refuses, not even to the arguments that it may write. Those are copied here instead.
        args = tuple(a.clone() if i in judge.op.mutated_positions(args) else a for i, a in enumerate(args))
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        before = [(t.clone(), t._version) for t in tensors]
        if promised:
            _require_error(judge, refusal, args)
        elif not _raises_clearly(judge, refusal, args):
            continue
        for t, (copy, version) in zip(tensors, before, strict=True):
            if t._version != version or not (t.is_meta or same_bits(t, copy)):  # a meta tensor has no bits
                raise judge.violation(Code.MUTATED, f"wrote before refusing {refusal.name}", path=refusal.name)
        judge.tally.count(1)


def _require_error(judge: Judge, refusal: Refusal, args: tuple[object, ...]) -> None:
    need = refusal.error.__name__
    try:
        process.undisturbed(judge.op.implementation(judge.subject_name), args)
    except Unsupported:
        raise
    except refusal.error as err:
        # Only the production op promises what the text mentions; other subjects promise no more than the type.
        wrong = _wording_fault(str(err), judge.op.promises.error_names, refusal) if judge.subject_name == OWN else ""
        if wrong:
            violation = judge.violation(Code.NOT_RAISED, wrong, error_lines(err), path=refusal.name)
            raise violation.showing(_defer_script(judge, refusal, args)) from err
        return
    except BaseException as err:
        interrupt.reraise()
        title = f"{judge.op.name}: {refusal.name} raised {error_name(err)}, need {need}"
        # An exception that asks to end the process, such as SystemExit, is wrong on any input, valid or not.
        code = Code.NOT_RAISED if isinstance(err, Exception) else Code.RAISED
        violation = Violation(code, title, error_lines(err)[:1], refusal.name)
        raise violation.showing(_defer_script(judge, refusal, args)) from err
    violation = judge.violation(Code.NOT_RAISED, f"accepted {refusal.name}, need {need}", path=refusal.name)
    raise violation.showing(_defer_script(judge, refusal, args))


def _defer_script(judge: Judge, refusal: Refusal, args: tuple[object, ...]) -> ScriptMaker | None:
    """What makes the program of a failure; None where the documented error is not built into Python."""
    if getattr(builtins, refusal.error.__name__, None) is not refusal.error:
        return None
    own = judge.subject_name == OWN
    wording = programs.Wording(
        refusal.error.__name__,
        tuple(dict.fromkeys(judge.op.promises.error_names)) if own else (),
        tuple(map(_whole, refusal.mentions)) if own else (),
    )
    return functools.partial(programs.script_refusal, args, wording, f"{judge.op.name}: {refusal.name}")


def _wording_fault(text: str, names: Sequence[str], refusal: Refusal) -> str:
    """What is wrong with the text of an error: the op that it names, or a missing word; empty where it is right.

    The text must begin with one of `names` and a colon, if there are names.
    """
    if names:
        head, _, text = text.partition(": ")
        if head not in names:
            return f"the error for {refusal.name} begins with {head[:40]!r}, need {' or '.join(dict.fromkeys(names))}"
    # The op's name stands before the colon, so an argument's name is looked for after the colon, as a whole word.
    missing = [word for word in refusal.mentions if not re.search(_whole(word), text)]
    return f"the error for {refusal.name} does not mention {missing[0]!r}" if missing else ""


def _whole(word: str) -> str:
    """A pattern that matches a word or a phrase only where it is not part of a longer word."""
    first, last = (r"\b" if re.fullmatch(r"\w", letter) else "" for letter in (word[:1], word[-1:]))
    return first + re.escape(word) + last


def _raises_clearly(judge: Judge, refusal: Refusal, args: tuple[object, ...]) -> bool:
    """Whether the subject refuses input that it does not document as invalid; Violation where the error is unclear."""
    try:
        process.undisturbed(judge.op.implementation(judge.subject_name), args)
    except Unsupported:
        raise
    except Exception as err:
        # No documentation names the type of the error, so any error is accepted whose text says what is wrong.
        if not clear(err):
            title = f"{judge.op.name}: {refusal.name} raised {error_name(err)}, need an error that says what is wrong"
            raise Violation(Code.NOT_RAISED, title, error_lines(err)[:1], refusal.name) from err
        return True
    except BaseException as err:
        interrupt.reraise()
        raise raised(judge.op.name, err, refusal.name) from err
    return False
