"""The processes of ranks: made before anybody reads the spec, each for a rank of one world, of which there are several.

A rank of another world is another process, because a candidate may keep the number of ranks, or what it made for it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...oracles.bound.terms import Terms, TermsOfRanks
from ...reference.dtypes import HALF_TYPES
from ..names import WIRES
from ..table import KINDS, property_of
from ..worlds import World
from .arguments import CallArguments
from .host.apart import CandidateApart
from .host.module_files import GivenError
from .host.quarters import Confinement, Quarters
from .placements import placements_of
from .question_plan import RANKS, QuestionPlan
from .rank_parts import CallNames, CallParts
from .rank_world import RankGroup
from .specification import Specification

#: Other numbers of ranks that COMM:worlds asks.
_OTHERS = (1, 2, 3)


class RankProcesses:
    """The processes of a world, and of others of other sizes; or one process that is no rank.

    Args:
        mesh: how many ranks there are along each axis; empty for none.
        begin: (rank, how many there are, how many times they were begun before) -> a process.
        others: whether there are other worlds, too. wire: over what ranks talk, see `seats.WIRES`.
    """

    def __init__(
        self, mesh: Sequence[int], begin: Callable[[int, int, int], Quarters], others: bool = True, wire: str = WIRES[0]
    ) -> None:
        size = math.prod(mesh)
        more = [n for n in _OTHERS if n != size][:2] if len(mesh) == 1 and others else []
        self._mesh, self._worlds, self._wire = tuple(mesh), dict[int, list[Quarters]](), wire
        self._begin, self._times = begin, dict[int, int]()
        self._begun: list[RankGroup] = []
        try:
            for count in (size, *more):
                self._begin_world(count)
        except BaseException:
            self.close()
            raise

    def _begin_world(self, count: int) -> list[Quarters]:
        """The processes of a world, begun for the first time or once more."""
        times = self._times[count] = self._times.get(count, -1) + 1
        self._worlds[count] = rooms = list[Quarters]()
        for rank in range(count):
            rooms.append(self._begin(rank, count if self._mesh else 0, times))
        return rooms

    @property
    def first(self) -> Quarters:
        """The first process."""
        return self._worlds[math.prod(self._mesh)][0]

    def begin(
        self,
        make: Callable[[Quarters], CandidateApart],
        words: Mapping[str, Any],
        spec: Specification,
        arguments: CallArguments,
        until: float,
    ) -> RankGroup:
        """The candidates of all ranks.

        Args:
            make: (its process) -> the candidate of a rank. words: placements of the spec's file.
            until: see `CandidateApart`.

        Raises:
            GivenError: the placements do not fit. CandidateError: as `CandidateApart` does.
        """
        names = _names_of(spec, arguments)
        try:
            placements = placements_of(words, self._mesh).require_names([*names.tensors, *spec.state])
        except ValueError as err:
            raise GivenError(str(err)) from err

        def begin(size: int) -> RankGroup:
            places = placements if size == placements.size else placements.with_size(size)
            ranks = RankGroup(CallParts(places, names), self._wire).begin(self._worlds[size], make)
            ranks.until, ranks.renew = until, lambda: ranks.begin(self._begin_world(size), make)
            self._begun.append(ranks)
            return ranks

        first = begin(placements.size)
        first.others = {n: functools.partial(begin, n) for n in self._worlds if n != placements.size}
        return first

    def close(self) -> None:
        """End all processes."""
        for ranks in self._begun:
            ranks.close()
        for rooms in self._worlds.values():
            for each in rooms:
                each.close()


def _names_of(spec: Specification, arguments: CallArguments) -> CallNames:
    """The names of the tensors of a call, and of what the spec gives there."""
    tensors = [arguments.label(i) for i in range(len(arguments.tensors))]
    result = spec.run(arguments, spec.state).result
    places = [f"return{place}" if len(result.places) > 1 else "return" for place in result.places]
    return CallNames(tensors, [(place, y.dtype) for place, y in zip(places, result.tensors, strict=True)])


def plan_of_ranks(plan: QuestionPlan, confinement: Confinement, spec: str) -> QuestionPlan:
    """The plan with the questions of ranks, where others are not named.

    Raises:
        GivenError: it asks what no ranks are asked, or this machine lacks what their wire needs.
    """
    mesh, wire = confinement.mesh, confinement.wire
    if wire not in WIRES:
        raise GivenError(f"wire: got {wire!r}, need one of {', '.join(WIRES)}")
    if wire != WIRES[0] and not mesh:
        raise GivenError(f"wire: got {wire} without a world, need world=N ranks")
    if wire != WIRES[0] and (lacks := World(wire, size=math.prod(mesh)).lacks(plan.device or "cpu")):
        raise GivenError(f"wire: got {wire}, not run: {lacks}")
    if not mesh:
        return plan
    codes = {code for code in plan.questions if code not in map(property_of, KINDS) and code not in KINDS}
    odd = [*sorted(codes), *["--time"] * plan.timed, *["--beside"] * bool(plan.beside), *["no spec"] * (not spec)]
    if odd:
        raise GivenError(f"world: got {odd[0]}, which several ranks are not asked: need a spec and kinds of questions")
    # Its samples would be asked in a process that is no rank.
    kinds = tuple(kind for code in plan.questions for kind in KINDS if code in (kind, property_of(kind)))
    return replace(plan, questions=kinds) if kinds else replace(plan, others=(*plan.others, RANKS))


def terms_of_ranks(allowed: Terms, dtype: str, mesh: Sequence[int]) -> Terms:
    """The terms of ranks that send half types: each may round its sum to that, and so may each sum on the way."""
    size = math.prod(mesh)
    if size < 2 or dtype not in HALF_TYPES or allowed.partials:
        return allowed
    return TermsOfRanks(**{**vars(allowed), "partials": dtype, "hops": size - 1})
