"""How a cell's samples are drawn: Hypothesis's settings, the seed, the clock that stops them, and what is left out."""

from __future__ import annotations

import hashlib
import importlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ...oracles.verdicts.verdict import Cell

if TYPE_CHECKING:
    import hypothesis


def limits_of(examples: int, steered: bool, shrunk: bool) -> hypothesis.settings:
    """Hypothesis's settings: how many examples, whether steered to the largest error, whether failures are shrunk."""
    import hypothesis  # here, because judgements need the clock alone
    from hypothesis import HealthCheck, Phase

    enabled = {Phase.generate: True, Phase.target: steered, Phase.shrink: shrunk}
    phases = tuple(phase for phase, on in enabled.items() if on)
    # Every field is set: Hypothesis's own profiles, and CI=1, must not change what is drawn.
    return hypothesis.settings(
        max_examples=examples, database=None, deadline=None, derandomize=False, print_blob=False,
        phases=phases, stateful_step_count=1, report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck), verbosity=hypothesis.Verbosity.quiet, backend="hypothesis",
    )  # fmt: skip


def seed_of(cell: Cell, seed: int, label: str = "") -> int:
    """The seed of a cell's samples in a run with a seed; with a label, that of samples besides the ordinary ones."""
    # Python's own `hash` of a text differs from process to process, and a cell has to be asked the same wherever it
    # is judged. The label keeps further samples from being the ordinary ones over again.
    digest = hashlib.sha256(f"{cell.key}:{seed}{label and ':'}{label}".encode()).digest()
    return int.from_bytes(digest[:8], "big")


def processor_seconds() -> float:
    """Seconds of a processor that this process has used so far, and the children that it waited for, as compilers are.

    By a clock on the wall, the load of the machine would decide which failures a report tells, and how simply.
    """
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


@contextmanager
def without_source_numbers() -> Iterator[None]:
    """Within this context, draws do not depend on which modules happen to be loaded.

    Hypothesis now and then draws a number that stands in the source of a module which is not installed (a checkout's,
    a user's own). Then the same cell asks for other inputs in another process, in a checkout and in an installed
    package, and after any change of any number in the source. There is no setting for it, so the function that collects
    those numbers is replaced, and put back for whatever else runs on Hypothesis in this process.
    """
    providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
    collect = getattr(providers, "_get_local_constants", None)
    # In another version of Hypothesis `tests/properties/test_source_numbers.py` says whether it draws such numbers.
    if collect is None:
        yield
        return
    # An instance of Hypothesis's own class without any numbers takes the place of those that it would collect.
    none = providers.Constants()
    providers._get_local_constants = lambda: none
    providers.CONSTANTS_CACHE.cache.clear()  # of the numbers that a draw may use; it is kept over all tests
    try:
        yield
    finally:
        providers._get_local_constants = collect
        providers.CONSTANTS_CACHE.cache.clear()
