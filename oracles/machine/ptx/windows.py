"""Where state spaces are among generic addresses."""

from __future__ import annotations

#: Where global memory begins, so that a null pointer, and an offset without its pointer, are outside.
BASE = 1 << 40
#: Where state spaces begin among generic addresses. An address of global memory is a generic one in any instruction.
WINDOWS = {"shared": 1 << 34, "local": 1 << 36, "param": 1 << 38, "global": BASE}
