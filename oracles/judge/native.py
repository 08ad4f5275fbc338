"""torch's own evaluation of a reference in plain PyTorch: what it refuses, does not keep or has wrong is not asked.

What is hard here: an excuse must not hide a fault. So an element is excused only where torch's own evaluation has the
same bits, an exception only where that raises the same, and bits only where it does not keep its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ..op.bits import different
from ..op.copies import copied
from ..op.declaration import Tensor, flat_outputs
from ..op.documented import Documented
from ..op.paths import Expected
from ..verdicts.violation import error_lines, error_name
from .holding import Standing
from .tally import Tally

_OUTSIDE = "torch's own evaluation of the reference is outside of the bound with the same bits, which is not judged: "


def set_aside(tally: Tally, expected: Expected, index: int, computed: Tensor, standing: Standing) -> Standing:
    """The standing of an output with elements outside, of which those are not judged that torch's own has as well."""
    elements = standing.in_sets
    if elements is None:
        return standing
    as_native = match_native(tally, expected, index, computed, ~elements.accepted)
    return replace(standing, in_sets=elements.without(as_native))


def match_native(tally: Tally, expected: Expected, index: int, computed: Tensor, outside: Any) -> Any:
    """Of the elements outside, those that torch's own evaluation has with the same bits; the tally notes the first.

    Args:
        computed: the output with the number `index`. outside: booleans of its shape.
    """
    nowhere = np.zeros_like(outside)
    try:
        own = None if expected.native is None else expected.native()[index].detach()
    except Exception:  # What raises excuses nothing.
        return nowhere
    if own is None or (own.shape, own.dtype) != (computed.shape, computed.dtype):
        return nowhere
    same = outside & ~different(computed.detach(), own).cpu().numpy()
    if same.any():
        at = tuple(int(i) for i in np.argwhere(same)[0])
        tally.note_first(_OUTSIDE, f"{expected.names[index]}{list(at) or ''} is {float(own[at])} along {expected.path}")
    return same


def shares(judge: Any, args: Sequence[Any], index: int, own: int) -> bool:
    """Whether an output of torch's own evaluation has the memory at an address, as an output of the subject has it.

    Args:
        args: of both calls. index: of the output. own: the address, of an argument.
    """
    native = judge.op.documented_by(judge.subject_name).native
    if native is None:
        return False
    outputs = flat_outputs(native(*args))
    return len(outputs) > index and outputs[index].untyped_storage().data_ptr() == own


def judge_of_native(judge: Any) -> Any:
    """The `Judge` of torch's own evaluation of what a subject means, with an empty tally; None where there is none."""
    native = judge.op.documented_by(judge.subject_name).native
    if native is None:
        return None
    other = judge.again()
    # Its own values are not what it is asked for: with what it is outside of bounds it would never come to its bits.
    own = {judge.subject_name: Documented(native=native)}
    other.op = replace(judge.op, subjects={**judge.op.subjects, judge.subject_name: native}, documented=own)
    other.subject = other.op.subject(judge.subject_name)
    return other


def refusal_of_native(judge: Any, args: Sequence[Any]) -> str:
    """Why torch's own evaluation of what a subject means refuses arguments; empty where it takes them."""
    native = judge.op.documented_by(judge.subject_name).native
    if native is None:
        return ""
    try:
        with torch.no_grad():
            native(*map(copied, args))
    except Exception as err:
        return ": ".join([error_name(err), *error_lines(err)[:1]])[:200]
    return ""
