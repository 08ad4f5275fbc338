"""Values: on the given inputs, on hostile ones, and with other parameters."""

from __future__ import annotations

import functools

from ..arguments import Arguments
from ..inputs import WAYS, altered, filled, of_twelve_bits
from ..questions import Standing
from ..session import Asking, Finding, Session, not_asked


def given(session: Session) -> Finding:
    """GIVEN."""
    return session.values("GIVEN", session.given, sharp=True)


def of_a_way(code: str, session: Session) -> Finding:
    """The questions of `inputs.WAYS`."""
    rng = session.generator(code)
    if not any(t.dtype.is_floating_point for t in session.given.tensors):
        return not_asked(code, "no argument is a floating tensor")
    if code == "SEEDS" and session.draw is not None:
        return session.values(code, Arguments.of(session.draw(session.seed + 1)))
    sharp = code in ("INTEGERS", "ZEROS")
    return session.values(code, filled(session.given, WAYS[code], rng), sharp=sharp)


def bits(session: Session) -> Finding:
    """BITS: a few operands in turn; the first finding that is wrong, else the last."""
    found = not_asked("BITS", "no operand is a floating tensor")
    state = session.spec.state if session.controlled else {}
    for arguments, other in of_twelve_bits(session.given, state, session.generator("BITS")):
        found = session.values("BITS", arguments, {**session.spec.state, **other}, sharp=True)
        if found.standing is Standing.WRONG:
            break
    return found


def params(session: Session) -> Finding:
    """PARAMS."""
    if not session.spec.state:
        return not_asked("PARAMS", "the spec has no parameters or buffers")
    if not session.controlled:
        lacking = [name for name in session.spec.state if name not in session.shared]
        return not_asked("PARAMS", f"the candidate has no {', '.join(lacking[:3])} of the spec's shape")
    return session.values("PARAMS", session.given, altered(session.spec.state, session.generator("PARAMS")))


ASKING: dict[str, Asking] = {
    "GIVEN": given,
    **{code: functools.partial(of_a_way, code) for code in WAYS},
    "BITS": bits,
    "PARAMS": params,
}
