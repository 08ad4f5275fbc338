"""Formula of the identity through which module hooks see gradients."""

from __future__ import annotations

from typing import Any


def backward_hook_identity(*args: Any) -> tuple[Any, ...]:
    """y_i = x_i."""
    return args
