"""What a formula may say, and how one text of it is read in several ways: see `kind`.

The modules beside `kind` are the words: what each NumPy function means in primitives.
"""

from . import contractions as contractions  # The modules of words enter themselves into the table of words.
from . import ordering as ordering
from . import products as products
from . import rearranging as rearranging
from . import selection as selection
from .constants import LOG_2 as LOG_2
from .constants import LOG_10 as LOG_10
from .constants import TWO_OVER_ROOT_PI as TWO_OVER_ROOT_PI
from .constants import Irrational as Irrational
from .constants import Precise as Precise
from .constants import one_less as one_less
from .elementwise import choose as choose
from .elementwise import erf as erf
from .elementwise import erfc as erfc
from .elementwise import gammaln as gammaln
from .elementwise import polygamma as polygamma
from .elementwise import polygamma_in as polygamma_in
from .elementwise import sigmoid as sigmoid
from .fourier import fourier as fourier
from .fourier import fourier_of_numbers as fourier_of_numbers
from .kind import BILINEAR as BILINEAR
from .kind import ELEMENTWISE as ELEMENTWISE
from .kind import MOVING as MOVING
from .kind import PRIMITIVES as PRIMITIVES
from .kind import SCANS as SCANS
from .kind import SPECIAL as SPECIAL
from .kind import STORAGE as STORAGE
from .kind import STRUCTURAL as STRUCTURAL
from .kind import WORDS as WORDS
from .kind import Array as Array
from .kind import Operands as Operands
from .kind import Params as Params
from .kind import among as among
from .kind import attach as attach
from .kind import attach_slopes as attach_slopes
from .kind import bind as bind
from .kind import cast as cast
from .kind import constant as constant
from .kind import is_special as is_special
from .kind import one_of_several as one_of_several
from .kind import order_of as order_of
from .kind import scatter as scatter
from .kind import store as store
from .ordering import extreme_at as extreme_at
from .ordering import sorting_order as sorting_order
from .products import contract_pair as contract_pair
from .reductions import amax as amax
from .scans import scanned as scanned
from .shapes import normalize_axes as normalize_axes
from .windows import windows as windows
