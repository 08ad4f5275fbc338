"""A second exact reading, on arb's intervals, that shares no arithmetic and no derivative rule with the first one.

What this is for: `exact` says what is true, and everything else believes it. Its numbers are mpmath's and its
derivatives are the tapes of `derivative`, so a mistake of either would be a truth here. This reading has other numbers
(`intervals`: arb's, whose radius counts every rounding), other derivatives (`jets`: truncated Taylor series, forward
alone, with no tape and no rule per primitive) and another way from text to numbers: NumPy's own functions run on arrays
of objects, so that what the words of `array` make of a formula is under test as well (`reading`).

Sources: F. Johansson, Arb: efficient arbitrary-precision midpoint-radius interval arithmetic, IEEE Transactions on
Computers 66, 2017; A. Griewank, A. Walther, Evaluating Derivatives, 2nd ed., SIAM 2008, chapter 13, for the series.
"""

from .intervals import Interval as Interval
from .intervals import Undecided as Undecided
from .intervals import precision as precision
from .reading import enclosures as enclosures
from .words import along as along
