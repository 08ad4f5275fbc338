"""Specs in plain PyTorch: traced to aten operations, and read as formulas on arrays of any reading. See `tracing`."""

from .calls import ARGUMENT as ARGUMENT
from .calls import BUFFER as BUFFER
from .calls import PARAMETER as PARAMETER
from .calls import RESULT as RESULT
from .calls import Operand as Operand
from .calls import SpecCall as SpecCall
from .calls import UntraceableError as UntraceableError
from .calls import ValuesNeededError as ValuesNeededError
from .calls import preserve_attributes as preserve_attributes
from .rules import RULES as RULES
from .stand_ins import uncompiled as uncompiled
from .traces import Traces as Traces
from .traces import Values as Values
from .tracing import SpecFormula as SpecFormula
from .tracing import Traced as Traced
from .tracing import check as check
from .tracing import formula_of as formula_of
from .tracing import rewritten as rewritten
from .tracing import trace as trace
from .tracing import traced as traced
