"""How an item is run, by its kind; cells are not here, because every worker knows how to judge one.

A further kind of work is one line in `RUNNERS` here, and a class in `reports/cli/campaign/`, which says what items
there are and what becomes of their results (`work.Work`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Data = dict[str, Any]


def _shard(item: Data) -> Data:
    """One shard of the sweep of an elementary function: what `measure` gives, and what the contracts promise."""
    from ..sweeps.measure import measure  # imports torch, which belongs into the process that runs the item alone
    from ..sweeps.program import greeting

    shard = measure(item["function"], item["dtype"], item["shard"], item["device"])
    return {"shard": shard, **greeting(item["device"])}


def _facts(item: Data) -> Data:
    """What is known of an op without asking it anything."""
    from ..certificates.facts import facts

    return facts(item)


def _mutants(item: Data) -> Data:
    """Some mutants of the ops, asked by the ops of one module; each worker keeps a prepared process for them."""
    from ..mutation.campaign import some_of_a_group

    return some_of_a_group(item)


#: kind -> a function of an item and its result, both as JSON has them.
#: It runs in a worker process (`places/worker.py`), which has one thread and a limit on its memory. What it raises is a
#: fault of the program, and ends the campaign with code 3; what it finds out belongs into its result.
RUNNERS: dict[str, Callable[[Data], Data]] = {"shard": _shard, "facts": _facts, "mutants": _mutants}
