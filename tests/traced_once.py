"""Specs that several tests judge by: each is one object, so that it is traced once for every shape."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from opassay.properties.candidates.specification import Specification, specification


@functools.cache
def traced_once(spec: Callable[..., Any]) -> Specification:
    """The specification of a function of plain PyTorch that stays as it is while tests run."""
    return specification(spec)
