"""Tasks, right and wrong candidates for them, and the tools that are held against each other by `../candidates.py`."""

from .right import right_candidates
from .tasks import TASKS, Task
from .tools import Outcome, judged_by_all
from .wrong import wrong_candidates

__all__ = ["TASKS", "Outcome", "Task", "judged_by_all", "right_candidates", "wrong_candidates"]
