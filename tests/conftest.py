"""What all tests need of the process that runs them."""

from __future__ import annotations

import signal

# A shell starts what runs in the background with SIGINT ignored, and so do all processes that it starts. Tests send it,
# to this process and to others, and would wait for ever for what it does.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
