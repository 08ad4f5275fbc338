"""The derivative reading: jvp and vjp of any formula over any reading. See `levels`."""

from .levels import jvp as jvp
from .levels import store_contributions as store_contributions
from .levels import vjp as vjp
from .rules import DIAGONAL as DIAGONAL
from .rules import unbroadcast as unbroadcast
from .steps import format_of_steps as format_of_steps
from .steps import steps_stored as steps_stored
