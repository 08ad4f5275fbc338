"""The state of the process, which a subject must leave as it was; and whether an interrupt is the user's."""

from .attributes import Deep as Deep
from .forking import fork as fork
from .logs import without_measuring_guards as without_measuring_guards
from .pages import WatchedTensor as WatchedTensor
from .pages import watches as watches
from .settings import MODES as MODES
from .settings import SampleSettings as SampleSettings
from .settings import seeded as seeded
from .watch import DEEP as DEEP
from .watch import LEFTOVERS as LEFTOVERS
from .watch import MAX_LINE as MAX_LINE
from .watch import MAX_LINES as MAX_LINES
from .watch import SETTINGS as SETTINGS
from .watch import Pin as Pin
from .watch import Tier as Tier
from .watch import await_work as await_work
from .watch import make_canonical as make_canonical
from .watch import pinned as pinned
from .watch import settle as settle
from .watch import undisturbed as undisturbed
from .watch import watched as watched
