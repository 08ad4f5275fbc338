"""Kernels of public libraries beside plain PyTorch, for `../league.py`: a table of calls for each library."""

from .contender import Contender as Contender
from .libraries import COMPILED as COMPILED
from .libraries import HALVES as HALVES
from .libraries import LIBRARIES as LIBRARIES
from .libraries import Absent as Absent
from .libraries import contenders as contenders
from .libraries import installed_version as installed_version
from .standing import describe_contender as describe_contender
from .standing import judge_contender as judge_contender
