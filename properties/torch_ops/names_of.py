"""Prints the names of torch's operations: `python -m opassay.properties.torch_ops.names_of`."""

from __future__ import annotations

from .operator_calls import operators
from .patterns import PREFIX

if __name__ == "__main__":
    print("\n".join(f"{PREFIX}{name}" for name in operators()))
