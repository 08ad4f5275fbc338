"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal

from opassay.properties.collector import set_imports_aside

# A shell starts what runs in the background with SIGINT ignored, and nohup starts everything with SIGHUP ignored; so do
# all processes that these start. Tests send both, to this process and to others, and would wait for ever for what they
# do.
for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:
        signal.signal(number, handler)


def pytest_collection_finish() -> None:
    """Set aside what the imports and the collection made: every collection of garbage would look at all of it."""
    set_imports_aside()
