"""Logs of torch that would be shown in hundreds of lines beside what a verdict tells in one."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def silent(name: str) -> Iterator[None]:
    """Without what one logger says; afterwards it is as it was.

    Args:
        name: of the logger, as `logging.getLogger` takes it.
    """
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
