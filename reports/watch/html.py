"""One HTML file of a watched program: offline, readable without scripts, safe with hostile names.

As on the page of a run every text is escaped, and the browser is told to run no script but ours. What is drawn is drawn
here; a script only sorts and filters.
"""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass
from functools import cache

import jinja2
from markupsafe import Markup

from ...oracles.verdicts.verdict import HELD, Outcome
from ...oracles.verdicts.watched import Site, Watched
from .. import page
from ..page.html import policy_of
from ..record import Run
from ..templates import source_of, templates_of
from ..text import GLYPHS
from .icicle import ModuleBranch, boxes_of, tree_of
from .step import step_plot, stretches_of
from .text import again, describe_comparison
from .totals import COMPUTING, EXACT, UNKEPT, SiteGroup, Totals, grouped, headline, loss_sentences, percent, ratio_text

_ROWS = 2000  # call sites on the page, those outside first; the record has all
_CARDS = 1_200_000  # characters of cards
_CARD = 6000  # of one
_FRAME = 600  # what stands around it
_GROUPS = 200  # rows of a table of shares
_SHARES = (0.001, 0.01, 0.05, 0.2)  # of the loss's error: where a colour ends
_RATIOS = (0.125, 0.5, 1.0)  # of error over bound
#: What is asked of a kind of call.
_ABOUT = {
    "computes": "held by the bound of its operands",
    "casts": "held by the rounding to its format",
    "region": "held by a spec of the program's own",
    "moves": "equal to the bit",
    "integers": "exact",
    "random": "drawn; what follows is held by what was drawn",
    "memory": "has no values yet",
    "unkept": "not recorded",
    "view": "the same memory, seen in another shape",
}


@dataclass(frozen=True)
class SiteRow:
    """A call site on the page: its number, what was found as styles name it, and whether it has a card."""

    number: int
    site: Site
    state: str
    has_card: bool

    @property
    def glyph(self) -> str:
        return GLYPHS[self.site.outcome]

    @property
    def command(self) -> str:
        return again(self.site.case) if self.site.case else ""

    @property
    def card(self) -> str:
        text = textwrap.dedent(self.site.card[:_CARD])
        return f"{text}\n…" if len(self.site.card) > _CARD else text


def render(watched: Watched, run: Run | None = None) -> str:
    """The page of a watched program; `run`: the record of the same verdicts, for versions and the machine."""
    totals, tree = Totals(watched), tree_of(Totals(watched))
    script = source_of(page.__name__, "tables.js") + source_of(__package__, "watch.js")
    style = source_of(page.__name__, "report.css") + source_of(__package__, "watch.css")
    rows, modules = _rows(watched), tree.within()[:_ROWS]
    boxes = {"called": boxes_of(tree, lambda g: float(g.calls)), "timed": boxes_of(tree, lambda g: g.seconds)}
    stretches, missing = stretches_of(watched)
    cleared = [group for group, doubt in totals.operators if not doubt]
    sizes = [group.size for group in cleared if not math.isnan(group.size)]
    return _templates().get_template("watch.html").render(
        watched=watched,
        run=run,
        total=totals,
        loss=watched.loss,
        special=watched.special,
        headline=headline(totals),
        comparison=describe_comparison(watched.against) if watched.against is not None else "",
        sentences=loss_sentences(totals),
        rows=rows,
        row_at={row.number: row for row in rows},
        uncarded=len(watched.sites) - sum(row.has_card for row in rows),
        modules=modules,
        module_at={branch.path: i for i, branch in enumerate(modules)},
        uncounted=len(tree.within()) - len(modules),
        boxes=boxes,
        depth=1 + max(branch.depth for each in boxes.values() for branch, _, _ in [*each, (tree, 0, 0)]),
        plot=step_plot(watched),
        stretches=stretches,
        missing=missing,
        tables=_share_tables(totals) if totals.share(1.0) > 0 else (),
        cleared=cleared,
        cleared_size=math.fsum(sizes) if sizes else math.nan,
        about=_ABOUT,
        # These are files of ours and not text from a program, so they alone are not escaped.
        style=Markup(style),
        script=Markup(script),
        policy=policy_of(script),
    )  # fmt: skip


def _rows(watched: Watched) -> list[SiteRow]:
    """The sites: what is outside first, then what was not judged, then what held, by error over bound."""
    order = sorted(enumerate(watched.sites), key=lambda each: (_gravity(each[1]), -each[1].ratio, each[0]))
    room, rows = _CARDS, []
    for i, site in order[:_ROWS]:
        room -= min(len(site.card), _CARD) + sum(map(len, site.operands)) + _FRAME
        rows.append(SiteRow(i, site, _state(site), room > 0))
    return rows


def _gravity(site: Site) -> int:
    if site.outcome is Outcome.FAIL or site.outcome in HELD:
        return (Outcome.FAIL, None, Outcome.WEAK, Outcome.VERIFIED).index(site.outcome)
    return 4 if _state(site) == "other" else 1


def _state(site: Site) -> str:
    if site.outcome is Outcome.FAIL or site.outcome in HELD:
        return str(site.outcome)
    return "unread" if site.kind in COMPUTING | EXACT | UNKEPT else "other"


def _share_tables(totals: Totals) -> list[tuple[str, str, list[SiteGroup], SiteGroup | None]]:
    """Where the accuracy went, by what sites share: name, title, the largest groups, and the others together."""
    keys = (
        ("module", "By module", lambda site: site.place.module or "(program)"),
        ("op", "By operator", lambda site: site.place.op),
        ("line", "By line", lambda site: site.place.line or "(not known)"),
        ("site", "By call site", lambda site: f"{site.place.text}{f' #{n + 1}' if (n := site.place.number) else ''}"),
    )
    tables = []
    for name, title, key in keys:
        groups = [group for group in totals.groups(key) if group.size > 0]
        rest = [i for group in groups[_GROUPS:] for i in group.sites]
        others = totals.group(f"{grouped(len(groups) - _GROUPS)} more", rest) if rest else None
        tables.append((name, title, groups[:_GROUPS], others))
    return tables


@cache
def _templates() -> jinja2.Environment:
    return templates_of(
        __package__, grouped=grouped, percent=percent, ratio=ratio_text, warmth=_warmth, portion=_portion,
        known=lambda value: not math.isnan(value), short_op=lambda op: op.rpartition("::")[2] or op,
    )  # fmt: skip


def _warmth(branch: ModuleBranch) -> str:
    """The class of a module by its largest error over its bound; one that holds a module outside has its own."""
    group = branch.group
    if group.outside:
        return "r5" if branch.own else "r4"
    return f"r{1 + sum(group.ratio > end for end in _RATIOS)}" if group.judged else "r0"


def _portion(share: float) -> str:
    """The class of a module by its share of the loss's error."""
    return f"l{1 + sum(share >= end for end in _SHARES)}" if share > 0 else "l0"
