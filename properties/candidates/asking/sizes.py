"""Other sizes: where the spec takes them, a candidate must refuse them or be right."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..arguments import CallArguments
from ..finding import Finding, held, not_asked
from ..inputs import WAYS, filled
from ..questions import Standing
from ..session import Asking, Session
from ..specification import SpecError

#: Sizes that take the place of one that the arguments have: more than common blocks, and then one and an odd one.
LARGE, SMALL = (129, 1025, 4099), (1, 37)
#: Elements of all arguments together, and how many calls are made.
_MOST, _CALLS = 2**17, 5


def sizes(session: Session) -> Finding:
    """SIZES: every size in its turn is replaced wherever it stands, because equal sizes may mean the same axis."""
    if "SIZES" in session.packed:
        return session.packed["SIZES"]
    judged = refused = 0
    for arguments in _resized(session):
        try:
            session.spec.run(arguments, session.spec.state)
        except SpecError:
            continue
        finding = session.values("SIZES", arguments, refusable=True)
        if finding.standing is Standing.WRONG:
            return finding
        refused += finding.standing is Standing.REFUSED
        judged += finding.judged
    if judged:
        return held("SIZES", judged)
    return not_asked("SIZES", "the candidate refuses other sizes" if refused else "the spec takes no other sizes")


def _resized(session: Session) -> Iterator[CallArguments]:
    rng = session.generator("SIZES")
    floats = [t for t in session.given.tensors if t.dtype.is_floating_point]
    extents = list(dict.fromkeys(n for t in floats for n in t.shape if n > 1))
    fixed = {n for value in session.spec.state.values() for n in value.shape}
    resizable = [n for n in extents if n not in fixed]
    order = [(old, new) for sizes in (LARGE, SMALL, LARGE) for old in resizable for new in rng.permutation(sizes)[:1]]
    calls = 0
    for old, new in order:
        shapes = [tuple(new if n == old else n for n in t.shape) for t in session.given.tensors]
        if any(not t.dtype.is_floating_point for t in session.given.tensors) or calls >= _CALLS:
            return  # What integers index is not known.
        if old == new or sum(int(np.prod(shape, dtype=np.int64)) for shape in shapes) > _MOST:
            continue
        calls += 1
        tensors = [t.new_zeros(shape) for t, shape in zip(session.given.tensors, shapes, strict=True)]
        yield filled(session.given.with_tensors(tensors), WAYS["SIGNS"], rng)


ASKING: dict[str, Asking] = {"SIZES": sizes}
