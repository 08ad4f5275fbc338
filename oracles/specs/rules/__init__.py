"""What each aten operation means in NumPy's words, on arrays of any reading."""

from . import activations as activations  # The modules enter their rules into the table.
from . import alignment as alignment
from . import analytic as analytic
from . import codes as codes
from . import counting as counting
from . import elementwise as elementwise
from . import equations as equations
from . import fourier as fourier
from . import images as images
from . import indexing as indexing
from . import losses as losses
from . import norms as norms
from . import ordering as ordering
from . import parts as parts
from . import products as products
from . import reductions as reductions
from . import slopes as slopes
from . import steps as steps
from . import structure as structure
from .elementwise import truth_of as truth_of
from .equations import RESIDUALS as RESIDUALS
from .table import DECOMPOSED as DECOMPOSED
from .table import MOVES as MOVES
from .table import REPEATING as REPEATING
from .table import RULES as RULES
from .table import Rule as Rule
