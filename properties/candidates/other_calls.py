"""Calls of the domain of a spec that are unlike the given one: other sizes, other integers, other options.

What this is for: a fault may show at one size alone, with a group that is empty, or with a flag that is off. Each axis
that the spec lets move is moved alone, because axes of one extent in the given call may be that by chance.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from ...oracles.verdicts.verdict import Code, Outcome
from .arguments import CallArguments, takes_defaults
from .domain.copies import safe_calls
from .domain.declaration import value_of
from .domain.domain import Domain
from .domain.integer_roles import propose
from .domain.symbols import Shapes, Symbol
from .finding import Finding
from .host.calls import Answer
from .inputs import WAYS, filled_tensor
from .results import Distance, are_finite
from .session import Asking, Session
from .specification import SpecError, Specification
from .workload import CallLimit, work_at

#: Sizes that replace a size of the arguments: just above common blocks, a multiple of common blocks, and 1 or an odd
#: number.
LARGE, ALIGNED, SMALL = (129, 1025, 4099), (128, 1024, 4096), (1, 37)
#: The largest number of elements of all arguments together, and the number of calls where few axes move.
_MOST, _CALLS = 2**17, 6
#: A size at which a third is behind 8192, where longer paths begin, as of keys in parts; and the elements of its call.
_LONG, _MOST_LONG = 12_345, 2**20
#: Sizes at which kernels may take another branch: powers of two, one less and one more, and odd multiples of powers of
#: two. Each in turn replaces each size of the arguments, in calls with at most `_FEW` elements.
_AT_BRANCHES = sorted(
    {2**power + step for power in range(1, 13) for step in (-1, 0, 1)}
    | {odd * 2**power for odd in (3, 5, 7) for power in range(10)}
)
_FEW = 2**15
#: Numbers of calls in which all axes have other sizes, and of those drawn for that; steps above their least ones.
JOINT, _DRAWN, _STEPS = 3, 12, 12
#: Questions at values that may have other signs than those of every draw.
_OF_VALUES = frozenset({*WAYS, "DATA:bits", "FWD:ties", "VJP:grad", "SIZE:sizes"})
#: A reading of the spec takes longer than all these calls. So of the calls of either kind only the `_FARTHEST` that
#: differ most from torch are read: the first whatever it costs, and others while they take `_READING_SECONDS` together.
_FARTHEST, _READING_SECONDS = 3, 1.0
#: A call that takes longer to read is read in place of others if it differs from torch so many times as much for each
#: second.
STANDS_OUT = 8.0


class OtherCall(NamedTuple):
    """A call unlike the given one: how far each output or gradient is from torch's, and seconds to read the spec.

    answer: of the candidate, where it is compared.
    """

    arguments: CallArguments
    distances: Sequence[Distance]
    seconds: float
    answer: Answer = Answer()

    def distance(self, usual: Iterable[float]) -> float:
        """How far it is from torch's, relative to the largest element there and `usual`ly, of each output."""
        pairs = ((each.error, max(each.largest, size)) for each, size in zip(self.distances, usual, strict=False))
        return max((error / size if size else error and math.inf for error, size in pairs), default=0.0)


def calls_of_sizes(session: Session, rng: Any, limit: CallLimit) -> Iterator[CallArguments]:
    """Calls within a limit in which one size is large, a multiple of blocks, or small."""
    # Among the large sizes the largest that fits is used, because a fault that begins at a size remains above it.
    kinds = (LARGE[::-1], [int(n) for n in rng.permutation(ALIGNED)], [int(n) for n in rng.permutation(SMALL)])
    symbols = session.domain.shapes.symbols
    for symbol, sizes in [(s, sizes) for sizes in kinds for s in symbols][: max(_CALLS, 2 * len(symbols))]:
        calls = (_with_shapes(session, shapes, rng) for shapes in _fitting(session, symbol, sizes, _MOST))
        # Only of a few does it take long to see how much work they are.
        safe = safe_calls(session.spec, calls, at_once=1)
        yield from itertools.islice((each for each in safe if work_at(session, each, limit)), 1)


def calls_of_long_sizes(session: Session, rng: Any) -> Iterator[CallArguments]:
    """Calls in which one size is above thousands."""
    for symbol in session.domain.shapes.symbols:
        shapes = next(_fitting(session, symbol, (_LONG,), _MOST_LONG), None)
        if shapes is not None:
            yield _with_shapes(session, shapes, rng)


def calls_at_branches(session: Session, rng: Any) -> Iterator[CallArguments]:
    """Calls with sizes at which kernels may take another branch, of every axis in turn."""
    domain, last = session.domain.shapes, {(i, len(s) - 1) for i, s in enumerate(session.domain.shapes.start)}
    # Sizes of an axis that is the last one of some tensor come first, because kernels cut blocks along that axis.
    symbols = sorted(domain.symbols, key=lambda symbol: last.isdisjoint(symbol.axes))
    near = {s: (domain.extent(s) - s.step, domain.extent(s) + s.step, 1) for s in symbols}
    sizes = [[*near[s], *(int(n) for n in rng.permutation(_AT_BRANCHES))] for s in symbols]
    for extents in itertools.zip_longest(*sizes):
        for symbol, extent in zip(symbols, extents, strict=True):
            for shapes in _fitting(session, symbol, (extent,), _FEW):
                yield _with_shapes(session, shapes, rng)


def joint_calls(session: Session, rng: Any) -> Iterator[CallArguments]:
    """Calls that the spec takes, in which all sizes are small and others than in the given one."""
    calls = (_with_shapes(session, shapes, rng) for shapes in joint_shapes(session.domain, rng))
    yield from itertools.islice(safe_calls(session.spec, calls, JOINT, ask_all=True), JOINT)


def joint_shapes(domain: Domain, rng: Any) -> Iterator[Shapes]:
    """Shapes, of which the spec may refuse some, in which all sizes are small and others; `rng`: NumPy's generator."""
    of = domain.shapes
    for _ in range(_DRAWN if of.symbols else 0):
        shapes = of.resized({s: s.least + s.step * int(rng.integers(1, _STEPS)) for s in of.symbols}, of.base)
        if _count(shapes) <= _MOST and domain.allows(shapes):
            yield shapes


def with_numbers(spec: Specification, calls: Iterable[CallArguments]) -> Iterator[CallArguments]:
    """The first of some calls at which the spec gives finite numbers."""
    for arguments in calls:
        try:
            if are_finite(spec.outputs(arguments, spec.state)):
                yield arguments
                return
        except SpecError:
            continue


def calls_of_values(session: Session, rng: Any) -> Iterator[CallArguments]:
    """Calls with other integers by their roles, and with other options."""
    domain, original = session.domain, session.arguments
    for place in dict.fromkeys(place for place, _ in domain.proposals):
        for word, values in propose(domain.integers.get(place), original.tensors[place]):
            if (place, word) in domain.proposals:
                pairs = zip(session.filled(original, WAYS["FWD:signs"], rng).tensors, original.tensors, strict=True)
                # The other integers stay the given ones, with which the spec was asked.
                numbers = (t if t.is_floating_point() else was for t, was in pairs)
                yield original.with_tensors([values if i == place else t for i, t in enumerate(numbers)])
    for place, options in domain.options.items():
        defaults = dict(itertools.islice(domain.defaults.items(), max(place + 1 - len(original.leaves), 0)))
        takes = takes_defaults(session.candidate.parameters, original.args, [*defaults])
        for option in options if takes else ():
            filled = session.filled(original, WAYS["FWD:signs"], rng).with_defaults(defaults)
            value = value_of(option, filled.leaves, lambda t: filled_tensor(t, WAYS["FWD:signs"], rng))
            yield filled.with_leaf(place, value)


def _fitting(session: Session, symbol: Symbol, extents: Iterable[int | None], most: int) -> Iterator[Shapes]:
    """Shapes with an extent, which are others than the given ones and not too large."""
    domain = session.domain.shapes
    for extent in extents:
        if extent is not None and extent > 0:
            shapes = domain.resized({symbol: extent})
            if shapes != domain.start and _count(shapes) <= most and session.domain.allows(shapes):
                yield shapes


def _count(shapes: Shapes) -> int:
    return sum(map(math.prod, shapes))


def _with_shapes(session: Session, shapes: Shapes, rng: Any) -> CallArguments:
    """The given arguments with tensors of other shapes and with other values."""
    with torch.no_grad():
        return session.filled(session.domain.at(session.arguments, shapes), WAYS["FWD:signs"], rng)


def beyond_draws(session: Session, arguments: CallArguments, *, is_special: bool = False) -> str:
    """ "below" or "above" where the spec may take a call by chance, as integers are so of those of every draw; or "".

    Below zero an index counts from the end, unless the spec ignores one such number; bits have no sign. Of a length or
    a number that is small, NaN or infinity is a convention, as of a softmax over no key: `is_special`. Only integers
    that are data are above.
    """
    tensors = arguments.tensors
    for i, role in session.domain.integers.items() if len(tensors) == len(session.arguments.tensors) else ():
        counted = tensors[i] if role.ignored is None else tensors[i][tensors[i] != role.ignored]
        if not counted.numel() or role.kind == "bits":
            continue
        low, is_convention = int(counted.min()), is_special and role.kind in ("lengths", "numbers")
        if low < role.span[0] and (low < 0 <= role.span[0] or is_convention):
            return "below"
        if role.kind == "numbers" and int(counted.max()) > role.span[1]:
            return "above"
    return ""


def suspicion_of(session: Session, finding: Finding, arguments: CallArguments) -> Finding | None:
    """What is wrong at a call that the spec may take by chance, as no cause of a rejection; None of other findings."""
    wrong = finding.wrong
    if wrong is None or not finding.is_wrong:
        return None
    where = beyond_draws(session, arguments, is_special=wrong.code is Code.SPECIAL)
    line = f"range      integers {where} all given ones, which the spec may take by chance; no cause of a rejection"
    return replace(finding, outcome=Outcome.WEAK, wrong=wrong.with_lines(line)) if where else None


def forgetter_of(session: Session) -> Callable[[], None]:
    """What makes a session forget the outputs that are held from now on, as where nobody knows who is right."""
    history, records = session.history, session.records
    was, counts = (history.erring, history.strayed), (len(records.evidence), len(records.digests))

    def forget() -> None:
        history.erring, history.strayed = was
        del records.evidence[counts[0] :], records.digests[counts[1] :]

    return forget


def ask_within_signs(session: Session, ask: Asking) -> Finding:
    """The finding of a question; no cause of a rejection where all is right within the signs of every draw.

    That all numbers of a scale are positive may be chance or be meant. What is wrong among such numbers, too, is shown
    there. An exception at others, or above 1 where no draw is, is a refusal.
    """
    forget, finding = forgetter_of(session), ask(session)
    wrong, domain, packed = finding.wrong, session.domain, session.packed
    if wrong is None or not finding.is_wrong or finding.question not in _OF_VALUES or not domain.signs:
        return finding
    forget()
    raises = wrong.code is Code.RAISED
    (words, session.domain), session.packed = domain.within_signs(shares=raises), {}
    try:
        inside = ask(session)
    except SpecError:  # It takes no numbers of these signs alone.
        inside = finding
    finally:
        session.domain, session.packed = domain, packed
    every = f"{', '.join(f'{session.arguments.label(i)} {word}' for i, word in words.items())} in every draw"
    if inside.is_wrong:
        return inside
    if raises:
        texts = filter(None, [inside.left_out, f"{wrong.title}, and not with {every}"])
        return replace(inside, left_out="; ".join(texts))
    line = f"range      {every}, where all is right; no cause of a rejection"
    return replace(finding, outcome=Outcome.WEAK, wrong=wrong.with_lines(line))


def worth_reading(calls: Sequence[OtherCall], start: Shapes, least: float = -1.0) -> Iterator[OtherCall]:
    """The calls that differ most from torch, as far as there is time to read the spec there.

    Args:
        calls: some calls. start: shapes of the given one. Of calls in which the same axes have another size the one
            that differs most comes first, so that an axis along which every right candidate differs hides no other.
        least: only calls that are farther from torch than this.
    """
    count = max((len(call.distances) for call in calls), default=0)
    # Roundings of a zero are nothing beside the medians of the largest elements.
    usual = [statistics.median(c.distances[i].largest for c in calls if len(c.distances) > i) for i in range(count)]

    def rank(call: OtherCall) -> tuple[float, float]:
        needed = STANDS_OUT * call.seconds if call.seconds > _READING_SECONDS else 1.0
        return -call.distance(usual) / needed, call.seconds

    earlier, places = Counter[tuple[bool, ...]](), []
    for call in sorted((call for call in calls if call.distance(usual) > least), key=rank):
        pairs = zip(call.arguments.shapes, start, strict=False)
        moved = tuple(n != was for shape, own in pairs for n, was in itertools.zip_longest(shape, own))
        places.append((earlier[moved], call))
        earlier[moved] += 1
    seconds = _READING_SECONDS
    # How far those are that torch alone does not tell, as of written tensors, is infinite: they are read, too.
    ordered = [call for _, call in sorted(places, key=lambda place: place[0])]
    ranked = [each for i, each in enumerate(ordered) if i < _FARTHEST or math.isinf(each.distance(usual))]
    for i, each in enumerate(ranked):
        if i == 0 or each.seconds <= seconds:
            seconds -= each.seconds if i else 0.0
            yield each
