"""What was seen of a watched program, in lines for a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from ...oracles.verdicts.verdict import REPORT_FOLDER
from ...oracles.verdicts.watched import ProgramComparison, Watched
from ..text import by_key, number, one_line
from .totals import EXACT, SiteGroup, Totals, grouped, headline, loss_sentences, ratio_text

_MOST = 8  # that a part lists
_FOLDER = "opassay-report"  # where no other is named


def lines_of(watched: Watched, wanted: Sequence[str] = ()) -> list[str]:
    """The summary of a watched program; its first line has the numbers.

    `wanted`: operators of which to say whether they can be the cause, "aten::cos" or "cos".
    """
    totals = Totals(watched)
    lines = [f"{watched.program}: {headline(totals)}"]
    for part in (
        _failing(totals),
        _against(watched),
        _special(watched),
        _accuracy(totals),
        _operators(totals, wanted),
        _unread(totals),
    ):
        lines += part
    return [f"{'  ' * line.startswith('  ')}{one_line(line, 500)}" for line in lines]


def again(case: str) -> str:
    """The command that judges the call of a case alone, or runs its program; both are files of the report folder."""
    command, name = ("python", case) if case.endswith(".py") else ("opassay watch --call", f"{case}.bin")
    return f"{command} {shlex.quote(f'{REPORT_FOLDER.get() or _FOLDER}/cases/{name}')}"


def _failing(totals: Totals) -> Iterator[str]:
    sites = totals.watched.sites
    for op, mine in list(by_key(totals.failing, lambda i: sites[i].place.op).items())[:_MOST]:
        site, others = sites[mine[0]], [sites[i].place.module or sites[i].place.line for i in mine[1:]]
        wrong = (
            f"{ratio_text(site.ratio)} times its bound" if site.ratio > 1 and site.kind not in EXACT else site.reason
        )
        calls = f"{grouped(totals.outside[mine[0]])} of {grouped(site.totals.calls, 'call')}"
        moved = (
            f", {totals.share_of(site)} of the error of {totals.followed}" if totals.share(site.totals.size) > 0 else ""
        )
        yield f"outside: {site.place.text}: {wrong}, {calls}{moved}"
        if site.case:
            yield f"  {again(site.case)}"
        if others:
            more = f", and {len(others) - _MOST} more" if len(others) > _MOST else ""
            yield f"  {op} also in {', '.join(others[:_MOST])}{more}"
    if len({sites[i].place.op for i in totals.failing}) > _MOST:
        yield "  and more operators outside, in the report"


def _against(watched: Watched) -> Iterator[str]:
    against = watched.against
    if against is None:
        return
    yield describe_comparison(against)
    for difference in against.differences[:_MOST]:
        yield f"differs: {difference.line}"
    if len(against.differences) > _MOST:
        yield f"  and {grouped(len(against.differences) - _MOST)} more, in the report"
    for reason, count in against.unknown[:_MOST]:
        yield f"not compared: {grouped(count, 'value')}: {reason}"


def describe_comparison(against: ProgramComparison) -> str:
    """How much of a program another form of it has as well, in a sentence."""
    own, theirs = grouped(against.here, "call"), grouped(against.there, "call")
    differences = grouped(len(against.differences), "difference")
    return f"against {against.other}: {grouped(against.same)} of {own} give values of its {theirs}; {differences}"


def _special(watched: Watched) -> Iterator[str]:
    special = watched.special
    if special is not None:
        place = watched.sites[special.site].place.text
        yield f"first NaN or infinity: call {grouped(special.call)}, {place}: {special.what}: {special.why}"
        yield from (f"  {line}" for line in special.operands[:_MOST])
        through = [watched.sites[i].place.op for i in special.chain]
        if through:
            yield f"  goes on through {' → '.join(through[:_MOST])}{' → …' * (len(through) > _MOST)}"


def _accuracy(totals: Totals) -> Iterator[str]:
    yield from loss_sentences(totals)
    sites = sorted((site for site in totals.watched.sites if site.totals.size > 0), key=lambda site: -site.totals.size)
    if sites and totals.share(1.0) > 0:
        yield "where the accuracy went, by share of the sum of the magnitudes (and signed):"
        for site in sites[:_MOST]:
            yield f"  {totals.share_of(site)} ({number(site.totals.contribution)})  {site.place.text}"


def _operators(totals: Totals, wanted: Sequence[str]) -> Iterator[str]:
    for name in wanted:
        named = [each for each in totals.operators if name in (each[0].name, each[0].name.rpartition("::")[2])]
        yield from (_operator_line(group, doubt, totals.followed) for group, doubt in named)
        if not named:
            yield f"{name}: the program makes no call of it that has numbers to hold"


def _operator_line(group: SiteGroup, doubt: str, followed: str) -> str:
    if doubt:
        return f"{group.name} {doubt}"
    most = f", largest error/bound {ratio_text(group.ratio)}" if group.ratio > 0 else ""
    sizes = f", together at most {number(group.size)} of {followed}" if group.size >= 0 else ""
    return f"{group.name} cannot be the cause: {grouped(group.calls, 'call')}, each within its bound{most}{sizes}"


def _unread(totals: Totals) -> Iterator[str]:
    for group in totals.unread[:_MOST]:
        ops = sorted({totals.watched.sites[i].place.op for i in group.sites})
        names = f"{', '.join(ops[:_MOST])}{', …' * (len(ops) > _MOST)}"
        yield f"not judged: {grouped(group.calls - group.judged, 'call')} of {names}: {group.name}"
    for name, count in totals.watched.regions[:_MOST]:
        yield f"not held as a whole: {name} has no spec, {grouped(count, 'call')}"
    yield f"recorded: {totals.watched.choice}, {grouped(len(totals.watched.calls), 'call')}"
