"""Other sizes: where the spec takes them, a candidate must refuse them or be right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from ..arguments import CallArguments, Tensor
from ..finding import Finding, held, not_asked
from ..inputs import WAYS, filled
from ..questions import Standing
from ..session import Asking, Session
from ..specification import SpecError

#: Sizes that take the place of one that the arguments have: more than common blocks, by one and as a multiple of them,
#: and then one and an odd one.
LARGE, ALIGNED, SMALL = (129, 1025, 4099), (128, 1024, 4096), (1, 37)
#: Elements of all arguments together, and how many calls are made.
_MOST, _CALLS = 2**17, 6


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
    tensors = session.given.tensors
    extents = list(dict.fromkeys(n for t in tensors for n in t.shape if n > 1))
    fixed = {n for value in session.spec.state.values() for n in value.shape}
    resizable = [n for n in extents if n not in fixed]
    # Of the large sizes the largest that fits, because a fault begins at a size and goes on from there.
    kinds = (LARGE[::-1], list(rng.permutation(ALIGNED)), list(rng.permutation(SMALL)))
    calls = 0
    for old, sizes in ((old, sizes) for sizes in kinds for old in resizable):
        shapes = next((of for of in (_resize(tensors, old, int(new)) for new in sizes) if of), None)
        if calls >= _CALLS:
            return
        if shapes is None:
            continue
        calls += 1
        resized = [_like(t, shape, rng) for t, shape in zip(tensors, shapes, strict=True)]
        yield filled(session.given.with_tensors(resized), WAYS["SIGNS"], rng)


def _resize(tensors: Sequence[Tensor], old: int, new: int) -> list[tuple[int, ...]] | None:
    """The shapes of tensors with a size in place of another one; None where these are the same, or too large."""
    shapes = [tuple(new if n == old else n for n in t.shape) for t in tensors]
    return None if old == new or sum(map(math.prod, shapes)) > _MOST else shapes


def _like(tensor: Tensor, shape: tuple[int, ...], rng: Any) -> Tensor:
    """A tensor of another shape; one of integers has integers of the given one, which are all that is known to be in
    range: where an extent that they index becomes smaller, the spec itself refuses them.
    """
    if tensor.dtype.is_floating_point or not tensor.numel():
        return tensor.new_zeros(shape)
    places = torch.from_numpy(rng.integers(tensor.numel(), size=shape))
    return tensor.detach().reshape(-1)[places.reshape(-1)].reshape(shape)


ASKING: dict[str, Asking] = {"SIZES": sizes}
