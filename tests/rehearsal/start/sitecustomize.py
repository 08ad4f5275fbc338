"""Python imports this before a program begins, where this folder is on PYTHONPATH: it prepares the rehearsal.

The name is Python's. So every process that is started in this environment rehearses, workers and ranks among them.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path


def _prepare() -> None:
    folder = Path(__file__).resolve().parents[1]
    spec = importlib.util.spec_from_file_location(
        "opassay_rehearsal", folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["opassay_rehearsal"] = package
    spec.loader.exec_module(package)
    importlib.import_module("opassay_rehearsal.hook").install(os.environ["OPASSAY_REHEARSAL"])


if "OPASSAY_REHEARSAL" in os.environ:
    _prepare()
