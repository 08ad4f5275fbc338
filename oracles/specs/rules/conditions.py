"""Aten operations on truth values that hang on floating numbers, and so may be open."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ....reference.condition import Condition, condition, possibly, surely
from .elementwise import truth_of
from .table import RULES, Rule, axes_of, enter

aten = torch.ops.aten


def _over(reduce: Callable[..., Any]) -> Rule:
    def rule(found: Any, dim: Any = None, keepdim: bool = False) -> Any:
        axes, found = axes_of(dim), truth_of(found)
        if not isinstance(found, Condition):
            return reduce(np.asarray(found), axis=axes, keepdims=keepdim)
        every, some = (reduce(part, axis=axes, keepdims=keepdim) for part in (surely(found), possibly(found)))
        return condition(every, some, found.reading)

    return rule


enter(_over(np.any), aten.any.default, aten.any.dim, aten.any.dims)
enter(_over(np.all), aten.all.default, aten.all.dim, aten.all.dims)
RULES[aten.isnan.default] = lambda x: x != x
