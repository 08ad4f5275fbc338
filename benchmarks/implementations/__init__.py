"""Specs that people write, with right and wrong implementations of each: `../judged_implementations.py`."""

from . import activations as activations
from . import attention as attention
from . import losses as losses
from . import moving as moving
from . import norms as norms
from . import products as products
from . import scans as scans
from .judging import ImplementationVerdict as ImplementationVerdict
from .judging import differing as differing
from .judging import judge_one as judge_one
from .problem import DTYPES as DTYPES
from .problem import HALF_TYPES as HALF_TYPES
from .problem import Implementation as Implementation
from .problem import Problem as Problem

_MODULES = (attention, norms, activations, losses, products, scans, moving)
PROBLEMS: dict[str, Problem] = {problem.name: problem for module in _MODULES for problem in module.PROBLEMS}
