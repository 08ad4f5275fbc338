"""The text of a PTX module without comments, and with what a pragma says of a load said by the load.

Source: NVIDIA, PTX ISA 9.1, chapter 4.4 (comments) and the pragma "used_bytes_mask" of section 11.
"""

from __future__ import annotations

import re

_USED = re.compile(
    r'(\.pragma\s+"used_bytes_mask\s+(\w+)"\s*;\s*(?:@!?[%\w$.]+\s+)?ld(?!\.param)[\w.:]*\.[busf](\d+)\s*)\{([^}]*)\}'
)


def simplify(text: str) -> str:
    """The text with as many lines.

    A compiler makes one load of a vector of two loads with something between, and says which of its bytes are used. The
    other ones are no read of the program: another thread may write them at the same time. Their registers become `_`.
    """
    text = re.sub(r"/\*.*?\*/", lambda match: "\n" * match[0].count("\n"), text, flags=re.DOTALL)
    return _USED.sub(_drop_unused, re.sub(r"//[^\n]*", "", text))


def _drop_unused(load: re.Match[str]) -> str:
    mask, width = int(load[2], 0), int(load[3]) // 8
    part = (1 << width) - 1
    names = [
        name if mask >> i * width & part else re.sub(r"\S+", "_", name) for i, name in enumerate(load[4].split(","))
    ]
    return f"{load[1]}{{{','.join(names)}}}"
