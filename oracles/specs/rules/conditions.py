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
    def rule(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        axes, x = axes_of(dim), truth_of(x)
        if not isinstance(x, Condition):
            return reduce(np.asarray(x), axis=axes, keepdims=keepdim)
        every, some = (reduce(part, axis=axes, keepdims=keepdim) for part in (surely(x), possibly(x)))
        return condition(every, some, x.reading)

    return rule


enter(_over(np.any), aten.any.default, aten.any.dim, aten.any.dims)
enter(_over(np.all), aten.all.default, aten.all.dim, aten.all.dims)
RULES[aten.isnan.default] = lambda x: x != x
