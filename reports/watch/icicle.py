"""Geometry of the module tree: a box for each module, below the one that it is in, in percent of the width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .totals import SiteGroup, Totals

#: In percent of the width; a narrower box is drawn so wide where it holds a call outside, and else not at all.
_NARROWEST = 0.25
_DEEPEST = 40


@dataclass
class ModuleBranch:
    """A module with all within it.

    Attributes:
        name, path, depth: of it. sites: by position, of it and of all within it. own: calls of its own outside.
        children: by name, in the order of the program. group: of the sites, added up.
    """

    name: str
    path: str
    depth: int
    sites: list[int] = field(default_factory=list)
    own: int = 0
    children: dict[str, ModuleBranch] = field(default_factory=dict)
    group: SiteGroup = field(init=False)

    def within(self) -> list[ModuleBranch]:
        """This module and all in it, each before those in it."""
        return [self, *(each for child in self.children.values() for each in child.within())]


def tree_of(totals: Totals) -> ModuleBranch:
    """The tree of a program's modules; its root is the program."""
    root = ModuleBranch(totals.watched.program, "", 0)
    for i, site in enumerate(totals.watched.sites):
        branch = root
        branch.sites.append(i)
        for part in filter(None, site.place.module.split(".", _DEEPEST)):
            path = f"{branch.path}.{part}" if branch.path else part
            branch = branch.children.setdefault(part, ModuleBranch(part, path, branch.depth + 1))
            branch.sites.append(i)
        branch.own += totals.outside[i]
    for branch in root.within():
        branch.group = totals.group(branch.path, branch.sites)
    return root


def boxes_of(
    branch: ModuleBranch, size: Callable[[SiteGroup], float], left: float = 0.0, width: float = 100.0
) -> list[tuple[ModuleBranch, float, float]]:
    """The left ends and widths of a branch and of all within it, in percent.

    `size`: of a group, calls or seconds. What is left of a box at its right end are calls of its own.
    """
    whole = size(branch.group)
    if whole <= 0 or (width < _NARROWEST and not branch.group.outside):
        return []
    boxes, start = [(branch, round(left, 3), round(max(width, _NARROWEST), 3))], left
    for child in branch.children.values():
        mine = width * size(child.group) / whole
        boxes += boxes_of(child, size, start, mine)
        start += mine
    return boxes
