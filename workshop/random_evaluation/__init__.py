"""Random evaluations that a contract allows: what the rounding reading is attacked with. See `evaluation`."""

from .evaluation import Legal as Legal
from .evaluation import evaluated as evaluated
from .formats import Working as Working
