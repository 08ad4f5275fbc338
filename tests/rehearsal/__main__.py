"""`python -m tests.rehearsal COMMAND...`: runs a command of Python under the rehearsal.

`python -m tests.rehearsal run softmax --device cuda` is `python -m opassay run softmax --device cuda`; a command that
begins with a file or with -m is given to Python as it stands.
"""

from __future__ import annotations

import os
import sys

from .environment import environment


def main(words: list[str]) -> None:
    """Become the command."""
    if not words:
        raise SystemExit(__doc__)
    if not (words[0].startswith("-") or words[0].endswith(".py")):
        words = ["-m", "opassay", *words]
    os.execve(sys.executable, [sys.executable, *words], environment())


main(sys.argv[1:])
