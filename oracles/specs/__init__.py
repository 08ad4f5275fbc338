"""Specs in plain PyTorch: traced to aten operations, and read as formulas on arrays of any reading. See `tracing`."""

from .reader import UntraceableError as UntraceableError
from .rules import RULES as RULES
from .tracing import Traced as Traced
from .tracing import formula_of as formula_of
from .tracing import traced as traced
