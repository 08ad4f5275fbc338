"""Aten operations that are products of matrices."""

from __future__ import annotations

import numpy as np
import torch

from .table import RULES, enter

aten = torch.ops.aten

enter(np.matmul, aten.mm.default, aten.mv.default, aten.dot.default)
RULES[aten.addmm.default] = lambda c, a, b: np.matmul(a, b) + c
