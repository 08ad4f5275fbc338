"""`python -m opassay.properties.rehearsal COMMAND...`: runs a command of Python on the rehearsal device.

`... run softmax --device cuda` is `python -m opassay run softmax --device cuda`; a command that begins with a file or
with -m is given to Python as it stands.
"""

from __future__ import annotations

import os
import sys

from .building import BuildError
from .environment import environment


def main(words: list[str]) -> None:
    """Become the command.

    Raises:
        SystemExit: there is none, or the device cannot be built.
    """
    if not words:
        raise SystemExit(__doc__)
    if not (words[0].startswith("-") or words[0].endswith(".py")):
        words = ["-m", __package__.partition(".")[0], *words]
    try:
        os.execve(sys.executable, [sys.executable, *words], environment())
    except BuildError as err:
        print(f"opassay: {err}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    main(sys.argv[1:])
