"""What a call leaves, and what an earlier one left: inputs, outputs, caches, counters."""

from __future__ import annotations

from collections.abc import Sequence

from ....oracles.bits import same_bits
from ....oracles.verdict import Code
from ..arguments import Arguments, Tensor
from ..candidates.calls import Answer, Manner
from ..inputs import WAYS, filled
from ..session import Asking, Finding, Session, held, raised, wrong

#: Calls in a row: as many as take this many seconds, but so many at least and at most.
_SECONDS, _LEAST, _MOST = 0.5, 4, 100


def untouched(session: Session) -> Finding:
    """UNTOUCHED: no argument is written but those that the spec writes; nothing of torch is replaced by a call."""
    answer = session.first()
    if answer.raised:
        return raised("UNTOUCHED", answer.raised)
    if session.changed:
        return wrong("UNTOUCHED", Code.MUTATED, f"the process was changed: {session.changed[0]}", *session.changed[1:])
    spared = session.spec.run(session.given, session.spec.state).changed
    for i, (before, after) in enumerate(zip(session.given.tensors, answer.after, strict=True)):
        if i not in spared and not same_bits(before.detach().cpu(), after):
            return wrong("UNTOUCHED", Code.MUTATED, f"{session.given.label(i)} was written")
    return held("UNTOUCHED")


def fresh(session: Session) -> Finding:
    """FRESH: an output shares memory with an argument only where the spec's does."""
    theirs = session.spec.run(session.given, session.spec.state).shared
    for i, (home, allowed) in enumerate(zip(session.first().shared, theirs, strict=False)):
        if home >= 0 and home != allowed:
            return wrong("FRESH", Code.ALIASED, f"out[{i}] shares memory with {session.given.label(home)}")
    return held("FRESH")


def _other(session: Session, code: str) -> Arguments:
    return filled(session.given, WAYS["SEEDS"], session.generator(code))


def same(session: Session) -> Finding:
    """SAME: a call with other data in the very tensors of a call before."""
    session.call(session.given)
    return session.values("SAME", _other(session, "SAME"), manner=Manner.SAME)


def reborn(session: Session) -> Finding:
    """REBORN: a call with other tensors in the memory of a call before."""
    session.call(session.given)
    return session.values("REBORN", _other(session, "REBORN"), manner=Manner.REBORN)


def kept(session: Session) -> Finding:
    """KEPT: the outputs of a call are as they were after a call with other data."""
    first = session.call(session.given)
    later = session.call(_other(session, "KEPT"))
    if first.raised or later.raised:
        return raised("KEPT", first.raised or later.raised)
    for i, (was, now) in enumerate(zip(first.outputs, later.earlier, strict=False)):
        if not same_bits(was, now):
            return wrong("KEPT", Code.ALIASED, f"out[{i}] of an earlier call was changed by a later one")
    return held("KEPT")


def again(session: Session) -> Finding:
    """AGAIN: calls in a row; one that has other bits than the first is held against the spec."""
    first = session.first()
    times = max(_LEAST, min(_MOST, int(_SECONDS / max(first.seconds, 1e-9))))
    run = session.spec.run(session.given, session.spec.state)
    if run.changed:
        times = 1  # Of a spec that writes its arguments a second call has others.
    answer = session.call(session.given, times=times, watched=True)
    if answer.raised:
        return raised("AGAIN", answer.raised)
    if answer.changed:
        return wrong("AGAIN", Code.MUTATED, f"the process was changed: {answer.changed[0]}", *answer.changed[1:])
    sets: list[Sequence[Tensor]] = [answer.outputs, *([answer.different] if answer.differs else [])]
    for outputs in sets:
        found = session.held("AGAIN", session.given, session.spec.state, run, Answer(list(outputs)))
        if found.wrong is not None:
            return found
    return held("AGAIN", sum(t.numel() for t in answer.outputs))


ASKING: dict[str, Asking] = {
    "UNTOUCHED": untouched,
    "FRESH": fresh,
    "SAME": same,
    "KEPT": kept,
    "REBORN": reborn,
    "AGAIN": again,
}
