"""Which calls of two programs may be one call: those of the same operation in the same module, in the same order."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from difflib import SequenceMatcher
from typing import Any

from .program_graph import GraphCall

#: What wrappers of torch add to the paths of modules.
_WRAPPERS = frozenset({"_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})


def align(there: Sequence[GraphCall], here: Sequence[GraphCall]) -> dict[int, int]:
    """Position of a call here -> that of the call there that may be the same."""
    rows = [[(_module_of(call), *_form_of(call)) for call in calls] for calls in (there, here)]
    pairs: dict[int, int] = {}
    for i, j, count in _blocks(*rows):
        pairs |= {j + k: i + k for k in range(count)}
    # What is left between them may stand in modules of other names.
    known = [(-1, -1), *sorted((i, j) for j, i in pairs.items()), (len(there), len(here))]
    for (i, j), (end, last) in itertools.pairwise(known):
        forms = [[_form_of(call) for call in part] for part in (there[i + 1 : end], here[j + 1 : last])]
        for k, m, count in _blocks(*forms):
            pairs |= {j + 1 + m + n: i + 1 + k + n for n in range(count)}
    return pairs


def _blocks(there: Sequence[Any], here: Sequence[Any]) -> list[tuple[int, int, int]]:
    matcher = SequenceMatcher(None, there, here, autojunk=False)
    return [(block.a, block.b, block.size) for block in matcher.get_matching_blocks()]


def _form_of(call: GraphCall) -> tuple[Any, ...]:
    """The operation, whether it is of a backward pass, and the shapes of its operands and results."""
    name, tensors = call.call.name.removesuffix("_"), (*call.call.tensors, *call.call.results)
    return name, bool(call.call.origin.node), tuple(tuple(y.shape) for y in tensors)


def _module_of(call: GraphCall) -> str:
    """The path of the module without the class of the model and wrappers."""
    first, *rest = call.call.origin.module.split(".")
    parts = rest if first[:1].isupper() else [first, *rest]
    return ".".join(part for part in parts if part not in _WRAPPERS)
