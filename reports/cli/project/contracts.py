"""Contracts in words: what each allows a kernel to do, and what each allowance adds."""

from __future__ import annotations

from pathlib import Path

from ....oracles.bound.terms import ALGORITHMS, ALLOWANCES, PRESETS, TermsError, terms
from ....oracles.verdicts.explanations import Page
from ... import exit_codes, explain
from ...explain import paragraphs
from ..host import Stop


def allowance_names() -> list[str]:
    return sorted([*ALLOWANCES, *ALGORITHMS])


def contract_lines() -> dict[str, str]:
    """What each preset allows, in a line."""
    return {name: str(row).partition(": ")[2] for name, row in PRESETS.items()}


def contract_texts() -> dict[str, str]:
    """The texts of all presets and allowances."""
    presets = {name: describe_contract(name) for name in PRESETS}
    return presets | {name: describe_allowance(name) for name in allowance_names()}


def describe_contract(name: str) -> str:
    """A contract as lines for a terminal: what it allows, and how it is chosen.

    Args:
        name: a preset, or one with allowances after a plus. Raises Stop where it is neither.
    """
    try:
        allowed = str(terms(name)).partition(": ")[2]
    except TermsError as err:
        raise Stop(exit_codes.USAGE, str(err)) from err
    command = f"opassay judge CANDIDATE --spec SPEC --contract {name}"
    return paragraphs(f"{name}, a contract: what a kernel may do", f"It allows: {allowed}.", command)


def describe_allowance(name: str) -> str:
    """An allowance as lines for a terminal: what it lets a kernel do, and where that is from."""
    page = Page(Path(explain.__file__).with_name("contracts.md"))
    tables = ("Allowances", "Algorithms that an allowance may name")
    allows, source = (
        {k: v for table in tables for k, v in page.rows(table, column).items()}[name] for column in (1, 2)
    )
    texts = f"It allows: {allows}.", f"Source: {source}.", f"--contract torch+{name}"
    return paragraphs(f"{name}, an allowance", *(text.replace("`", "") for text in texts))
