"""Prints the names of torch's operations that patterns mean: `python -m opassay.properties.torch_ops.names_of NAME`."""

from __future__ import annotations

import sys
from fnmatch import fnmatchcase

from .operator_calls import operators
from .patterns import PREFIX

if __name__ == "__main__":
    names = [f"{PREFIX}{name}" for name in operators()]
    print("\n".join(name for name in names if any(fnmatchcase(name, pattern) for pattern in sys.argv[1:])))
