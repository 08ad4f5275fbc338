"""Random evaluations that a contract allows: what the rounding reading is attacked with. See `evaluation`."""

from .evaluation import Legal as Legal
from .evaluation import evaluate_at_random as evaluate_at_random
from .formats import Working as Working
