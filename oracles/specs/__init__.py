"""Specs in plain PyTorch: traced to aten operations, and read as formulas on arrays of any reading. See `tracing`."""

from .calls import ARGUMENT as ARGUMENT
from .calls import BUFFER as BUFFER
from .calls import PARAMETER as PARAMETER
from .calls import RESULT as RESULT
from .calls import Call as Call
from .calls import Operand as Operand
from .reader import UntraceableError as UntraceableError
from .rules import RULES as RULES
from .tracing import SpecFormula as SpecFormula
from .tracing import Traced as Traced
from .tracing import formula_of as formula_of
from .tracing import trace as trace
from .tracing import traced as traced
