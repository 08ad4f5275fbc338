"""What is counted of a watched program: calls that held, groups of sites, operators that cannot be the cause."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from ...oracles.verdicts.verdict import Outcome, quantity
from ...oracles.verdicts.watched import LossFacts, Site, Watched
from ...reference.dtypes import FORMATS
from ..text import by_key, number, one_line

#: Kinds of calls whose results have errors; those that must be equal to the bit; and calls of which none was recorded.
COMPUTING = frozenset({"computes", "casts", "region"})
EXACT = frozenset({"moves", "integers"})
UNKEPT = frozenset({"unkept"})


def grouped(count: int, noun: str = "") -> str:
    """`1,200`; with a noun `1,200 calls`."""
    return f"{count:,} {noun}{'s' * (count != 1)}" if noun else f"{count:,}"


def percent(share: float) -> str:
    """A share in percent; `–` where it is not known."""
    return f"{number(100 * share, 3 if share >= 0.995 else 2)} %" if math.isfinite(share) else "–"


def ratio_text(ratio: float) -> str:
    """An error over its bound; `< 1` or `> 1` where its digits would not say on which side it is."""
    text = number(ratio)
    return text if text != "1" or ratio == 1 else "> 1" if ratio > 1 else "< 1"


@dataclass(frozen=True)
class SiteGroup:
    """Sites that share something: a module, an operator, a line.

    Attributes:
        name: what they share. sites: by position. calls, judged, outside: how many of their calls.
        weak: how many sites of whose results too little could be judged. ratio: the largest error over its bound.
        contribution: signed, to the error of the loss, and size, of the magnitudes; NaN where none is known.
    """

    name: str
    sites: tuple[int, ...]
    calls: int
    judged: int
    outside: int
    weak: int
    ratio: float
    contribution: float
    size: float
    seconds: float


@dataclass(frozen=True)
class Totals:
    """The numbers that the page, the summary and the verdicts of a watched program share."""

    watched: Watched

    @cached_property
    def outside(self) -> Counter[int]:
        """Calls outside their bounds, by site."""
        counts = Counter(call.site for call in self.watched.calls if call.ratio > 1)
        # What is wrong in another way than by its values has no ratio.
        counts.update(i for i, site in enumerate(self.watched.sites) if site.outcome is Outcome.FAIL and not counts[i])
        return counts

    @cached_property
    def failing(self) -> list[int]:
        """Sites outside, the largest error first."""
        sites = self.watched.sites
        return sorted((i for i in range(len(sites)) if self.outside[i]), key=lambda i: -sites[i].ratio)

    @cached_property
    def computing(self) -> SiteGroup:
        """The sites whose results have errors."""
        return self.group("", self.of_kinds(COMPUTING))

    @cached_property
    def exact(self) -> SiteGroup:
        """The sites whose results must be equal to the bit."""
        return self.group("", self.of_kinds(EXACT))

    def of_kinds(self, kinds: Iterable[str]) -> list[int]:
        """The sites of some kinds."""
        return [i for i, site in enumerate(self.watched.sites) if site.kind in kinds]

    def group(self, name: str, numbers: Iterable[int]) -> SiteGroup:
        """Sites, by position, added up."""
        at = tuple(numbers)
        sites = [self.watched.sites[i] for i in at]
        parts = [site.totals for site in sites if not math.isnan(site.totals.contribution)]
        return SiteGroup(
            name,
            at,
            calls=sum(site.totals.calls for site in sites),
            judged=sum(site.totals.judged for site in sites),
            outside=sum(self.outside[i] for i in at),
            weak=sum(site.outcome is Outcome.WEAK for site in sites),
            ratio=max((site.ratio for site in sites if site.totals.judged), default=math.nan),
            contribution=math.fsum(part.contribution for part in parts) if parts else math.nan,
            size=math.fsum(part.size for part in parts) if parts else math.nan,
            seconds=math.fsum(site.totals.seconds for site in sites),
        )

    def groups(self, key: Callable[[Site], str], numbers: Iterable[int] | None = None) -> list[SiteGroup]:
        """One group for each name, of all sites or of some, those with the largest part in the error first."""
        at = range(len(self.watched.sites)) if numbers is None else numbers
        names = by_key(at, lambda i: key(self.watched.sites[i]))
        groups = [self.group(name, mine) for name, mine in names.items()]
        return sorted(groups, key=lambda group: -group.size if group.size > 0 else 0.0)

    def share(self, value: float) -> float:
        """A part in the sum of the magnitudes of all contributions to the loss; NaN where none is known."""
        size = self.watched.loss.size if self.watched.loss else math.nan
        return value / size if size > 0 else math.nan

    def share_of(self, site: Site) -> str:
        """A site's part in words, with `≈` where first order may be wrong."""
        known = not math.isnan(site.totals.contribution)
        return f"{'≈ ' * self.is_doubtful(site)}{percent(self.share(site.totals.size))}" if known else "–"

    def is_doubtful(self, site: Site) -> bool:
        """Whether an error is as large as the value that has it, so that its share of the loss may be wrong in sign.

        A bound is at least half a spacing of the format, so at least u/2 of the value: from 1/u bounds on, an error is
        half of its value or more, and the derivative at the value says nothing of how the loss follows it there. No
        share is first order where the error of the loss itself is known.
        """
        if self.is_known:
            return False
        fmt = FORMATS.get(site.dtype)
        return fmt is not None and site.ratio * fmt.unit_roundoff >= 1 and site.totals.size > 0

    @property
    def is_known(self) -> bool:
        """Whether the error of the loss itself is known."""
        return self.watched.loss is not None and not math.isnan(self.watched.loss.error)

    @property
    def followed(self) -> str:
        """The number whose error was followed, as sentences call it."""
        loss = self.watched.loss
        return one_line(loss.name, 80) if loss and loss.about else "the loss"

    @cached_property
    def operators(self) -> list[tuple[SiteGroup, str]]:
        """Each operator with numbers, and why it cannot be ruled out; those first that can, whose reason is empty."""
        groups = self.groups(lambda site: site.place.op, self.of_kinds(COMPUTING | EXACT | UNKEPT))
        return sorted(((group, self._doubt(group)) for group in groups), key=lambda each: (bool(each[1]), each[0].name))

    def _doubt(self, group: SiteGroup) -> str:
        special, loss = self.watched.special, self.watched.loss
        if group.outside:
            return f"is outside in {grouped(group.outside)} of {grouped(group.calls, 'call')}"
        if special is not None and special.site in group.sites:
            return "gives the first NaN or infinity"
        if group.judged < group.calls:
            missing = f"{grouped(group.calls - group.judged)} of {grouped(group.calls, 'call')}"
            return f"cannot be ruled out: {missing} not judged"
        if group.weak:
            return "cannot be ruled out: no call is outside, but some elements have no bound"
        if loss is not None and group.name in loss.unknown:
            return (
                f"held in every one of {grouped(group.calls, 'call')}, but what it adds to {self.followed} is not known"
            )
        return ""

    @cached_property
    def unread(self) -> list[SiteGroup]:
        """Calls with numbers that were not judged, by reason; never counted as held."""
        at = self.of_kinds(COMPUTING | EXACT | UNKEPT)
        return self.groups(_reason, [i for i in at if _missing(self.watched.sites[i])])


def _missing(site: Site) -> int:
    return site.totals.calls - site.totals.judged


def _reason(site: Site) -> str:
    whole = site.outcome in (Outcome.VERIFIED, Outcome.FAIL)
    return "not every call of these sites was kept and read" if whole else site.reason or "no reason is known"


def headline(totals: Totals) -> str:
    """`4,675 of 4,680 computing calls held; 2 outside, at 1 site; 3 not judged`."""
    group, unkept = totals.computing, totals.group("", totals.of_kinds(UNKEPT)).calls
    good, wrong, missing = group.judged - group.outside, sum(totals.outside.values()), group.calls - group.judged
    if not group.calls and not wrong:
        return "no computing call was recorded"
    moved = f", {grouped(totals.exact.outside)} of them of bits that must be equal" if totals.exact.outside else ""
    share = f"{grouped(good)} of " if good < group.calls else "all " if good > 1 else ""
    parts = (
        (True, f"{share}{grouped(group.calls, 'computing call')} held"),
        (group.weak, f"at {quantity(group.weak, 'site')} only in part"),
        (wrong, f"{grouped(wrong)} outside, at {quantity(len(totals.failing), 'site')}{moved}"),
        (missing, f"{grouped(missing)} not judged"),
        (unkept, f"{grouped(unkept, 'call')} not kept"),
        (totals.watched.special, "a NaN or an infinity begins"),
    )
    return "; ".join(text for is_told, text in parts if is_told)


def loss_sentences(totals: Totals) -> list[str]:
    """What the calls explain of the error of the loss, and how far that is to be trusted."""
    loss = totals.watched.loss
    if loss is None:
        return [
            "No backward pass was run, so no error of a loss could be traced to calls; --of NAME names another number."
        ]
    value = "NaN" if math.isnan(loss.value) else number(loss.value, 6)
    name = f"{totals.followed}, {loss.about}," if loss.about else f"The {loss.name}"
    if math.isnan(loss.size):
        return [f"{name} is {value}; no derivative of it is known, so its error was not traced."]
    size = f"the magnitudes of all of them add up to {number(loss.size)}"
    if not totals.is_known:
        moved = f"The errors of the calls move it by {number(loss.explained)} to first order"
        return [f"{name} is {value}.", f"{moved}; {size}.", *_limits(totals, loss)]
    rest = f", and {percent(abs(loss.error - loss.explained) / loss.size)} of that is left" if loss.size else ""
    moved = f"The errors of the calls explain {number(loss.explained)} of it; {size}{rest}."
    off = f"{number(loss.error)} off that of the same calls in float64"
    return [f"{name} is {value}, {off}.", moved, *_limits(totals, loss)]


def _limits(totals: Totals, loss: LossFacts) -> list[str]:
    lines, doubtful = [], sum(map(totals.is_doubtful, totals.watched.sites))
    if doubtful:
        lines.append(
            f"Shares are first order: error times derivative. At {quantity(doubtful, 'site')}, marked ≈, an error is"
            " half of its value or more, so that the share may be wrong in size and in sign."
        )
    if loss.size >= abs(loss.value) and not totals.is_known:
        lines.append(
            f"The errors add up to {totals.followed} itself or more, where first order says nothing of any share."
        )
    if loss.unknown:
        names = ", ".join(loss.unknown[:12]) + (" and others" if len(loss.unknown) > 12 else "")
        lines.append(f"What these add to the error is not known: {names}.")
    return lines
