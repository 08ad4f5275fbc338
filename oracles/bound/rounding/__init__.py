"""The rounding reading: a ball around each value that holds every sensible evaluation.

What this is for: it gives the tolerance of every output element, from the formula alone. An array of this kind is a
centre c (float64, or the widest float of the machine where float64 itself is judged) and a radius r. The ball
[c - r, c + r] contains the exact value *and* the result of every evaluation that the contract allows: any order of
summation, FMA or not, elementary functions within their stated ulps. Centre and radius are those of ball arithmetic;
each operation adds u (|c| + r) + η for the evaluation's rounding and u_c |c| for the centre's own. Nothing is first
order, nothing is estimated, and no tree height is assumed: the sum of n terms costs (n - 1) u Σ(|x_i| + r_i) in any
order (Rump, BIT 52, 2012; Jeannerod & Rump, SIMAX 34, 2013).

What is hard here: some radii measure no distance. A radius is infinite where an evaluation may overflow the accumulate
format, although the centre does not; such an element is not judged. Where the centre is NaN or infinite, the radius is
0 if every evaluation gives that same value, and NaN if some evaluation may give another one, as for ∞ times a number
that may be zero (`ball._settle`). A product of ∞ and a zero that a reading inserts, such as the margin of a
convolution, need not be formed: see `insertions.py`.
"""

from . import casts as casts  # The modules of rules enter themselves into the table of rules.
from . import common_errors as common_errors
from . import fourier as fourier
from . import functions as functions
from . import gamma as gamma
from . import insertions as insertions
from . import lattice as lattice
from . import products as products
from . import recurrences as recurrences
from . import scans as scans
from .ball import Ball as Ball
from .ball import ball as ball
from .choices import joined as joined
from .reading import balls as balls
from .reading import balls_with_systematic as balls_with_systematic
