"""What all tests need of the process that runs them."""

from __future__ import annotations

import gc
import signal
from collections import Counter

import pytest

from opassay.properties.collector import set_imports_aside

# A shell starts what runs in the background with SIGINT ignored, and nohup starts everything with SIGHUP ignored; so do
# all processes that these start. Tests send both, to this process and to others, and would wait for ever for what they
# do.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)

# The collection makes millions of objects, and almost all of them stay: it takes two thirds of its time without the
# collector of garbage, which looks at them again and again.
gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of the parameters of a test with the mark `one_fast_in`, the first and one in so many after it stay fast."""
    counts: Counter[str] = Counter()
    for item in items:
        mark = item.get_closest_marker("one_fast_in")
        if mark is None:
            continue
        name = item.nodeid.partition("[")[0]
        if counts[name] % mark.args[0]:
            item.add_marker(pytest.mark.slow)
        counts[name] += 1


def pytest_collection_finish() -> None:
    """Set aside what the imports and the collection made: every collection of garbage would look at all of it."""
    set_imports_aside()
    gc.enable()
