"""torch's own functions, each with itself as the spec: one call of every function that the collections know."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from benchmarks.itself import sources

from .contender import Contender

#: Of functions of rows at several lengths, the length that is taken.
_LENGTH = "97"
#: Those that the collection calls with fewer arguments than they take.
_LACKING = ("special.xlog1py", "special.log_softmax")


def contenders() -> Iterator[Contender]:
    for source in sources(("examples", "functional")):
        name, _, size = source.name.partition(" of ")
        if size not in ("", _LENGTH):
            continue
        try:
            function, *arguments = source.build(torch.float32)
        except NotImplementedError:  # the CPU build has no kernel
            continue
        if name not in _LACKING or len(arguments) > 1:
            yield Contender("torch", name, "itself", function, function, tuple(arguments))
