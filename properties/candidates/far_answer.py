"""What a candidate answers to a call beyond 2^31 elements, of whose launches some blocks ran."""

from __future__ import annotations

import contextlib
from typing import Any

import msgspec

from ...oracles.machine.far_tensors import far_call
from ...oracles.machine.ptx.far import FarCall
from .arguments import CallArguments
from .host.calls import Aliases, Answer, Executed, Manner
from .results import Result, homes_of


def surround(manner: Manner) -> contextlib.AbstractContextManager[Any]:
    """What surrounds a candidate that is called in a manner, for its launches."""
    return far_call() if manner is Manner.FAR else contextlib.nullcontext()


def answer_far(call: FarCall, result: Result, arguments: CallArguments, executed: Executed) -> Answer:
    """The answer to a call whose outputs are left where they are: which rows of them were written, and what wrapped."""
    outputs = [y.detach() for y in result.tensors]
    rows = call.rows_of(outputs, arguments.tensors)
    executed = msgspec.structs.replace(executed, rows=rows, wraps=call.wraps)
    shapes, aliases = [tuple(y.shape) for y in outputs], Aliases(homes_of(outputs, arguments.tensors))
    return Answer([], result.form, list(result.plain), aliases=aliases, executed=executed, shapes=shapes)
