"""Python imports this before a program begins, where this folder is on PYTHONPATH: it prepares the rehearsal.

The name is Python's. So every process that is started in this environment rehearses, workers and ranks among them.
Another module of this name, which this one hides, is executed as ever.
"""

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys


def _execute_hidden() -> None:
    """Execute the module that Python would have imported without this folder."""
    here = os.path.dirname(os.path.abspath(__file__))
    hidden = importlib.machinery.PathFinder.find_spec(__name__, [p for p in sys.path if os.path.abspath(p) != here])
    if hidden is not None and hidden.loader is not None:
        hidden.loader.exec_module(importlib.util.module_from_spec(hidden))


_execute_hidden()
if "OPASSAY_REHEARSAL" in os.environ:
    with contextlib.suppress(ModuleNotFoundError):  # an interpreter without opassay, which judges nothing
        importlib.import_module("opassay.properties.rehearsal.hook").install(os.environ["OPASSAY_REHEARSAL"])
