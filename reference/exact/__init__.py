"""The exact reading: the true value of a formula, on mpmath's numbers. See `reading`."""

from .numbers import DEFAULT_PRECISION as DEFAULT_PRECISION
from .numbers import Raw as Raw
from .numbers import precision as precision
from .reading import Exact as Exact
from .reading import PrecisionError as PrecisionError
from .reading import agree as agree
from .reading import evaluate as evaluate
from .reading import exact as exact
from .reading import to_float_pair as to_float_pair
