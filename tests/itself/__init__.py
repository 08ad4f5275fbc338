"""Functions of torch that stand on both sides: each must be accepted, judged by itself, by every way of asking."""

from .functions import FUNCTIONS as FUNCTIONS
from .functions import SAMPLE as SAMPLE
from .functions import Itself as Itself
from .ways import WAYS as WAYS
