"""Keeps Hypothesis from drawing numbers that stand in the source of modules, as it does now and then."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def exclude() -> Iterator[None]:
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
