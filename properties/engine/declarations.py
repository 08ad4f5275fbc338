"""Whose fault an exception is that comes out of a check: that of the op's declaration, or of this package.

What this is for: the author of an op is told which line of the declaration is wrong, with exit code 2; "the framework
broke", with exit code 3, is kept for faults of ours.

What is hard here: a formula is called by our checks and calls our readings, so both are in the traceback of every
exception. The declaration is at fault if its author's line raised, itself or in a library; if a reading refused
what that line asked for (`NoReadingError`); or if what the author declared cannot take the arguments that we promise.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

from ...oracles.op.declaration import Op, Sample
from ...reference.missing import NoReadingError
from ..declaring.kinds import DeclarationError, author_frame, is_ours, line_of, place_of

#: Python's message where the arguments of a call do not fit the function: the function's name, and what is wrong.
_MISFIT = re.compile(
    r"([\w.<>]+)\(\) (takes (\d+) positional|takes|missing|got an unexpected|got multiple values|got some positional)"
)
_NEED = "give it the parameters that opassay.Op and its records say"
_ARRAYS = "docs/words.md lists what a formula may say: functions of NumPy, and methods and operators of its arrays"


def require_arguments(op: Op, sample: Sample) -> None:
    """DeclarationError unless the formula takes the samples' arguments, and has all that the declaration names."""
    signature = inspect.signature(op.reference)
    try:
        signature.bind(*sample.args)
    except TypeError as err:
        name = getattr(op.reference, "__name__", "formula")
        raise DeclarationError(
            f"reference: {name}{signature} does not take the {len(sample.args)} arguments that samples give: {err}"
            f" ({place_of(op.reference)}); give it the arguments of the op, in their order"
        ) from err
    unknown = [name for name in (*op.differentiable, *op.mutates) if name not in op.arguments]
    if unknown:
        raise DeclarationError(
            f"differentiable, mutates: got {unknown[0]!r}, need arguments of reference: {', '.join(op.arguments)}"
            f" ({place_of(op.reference)})"
        )


def fault_of(op: Op, err: Exception) -> str:
    """What is wrong with the declaration, where it is at fault for an exception; else empty."""
    text = (str(err).strip().splitlines() or [""])[0]
    if isinstance(err, NoReadingError):
        # The line comes first, because a list of all words may follow.
        return f"reference: {line_of(err)}: {text}"
    frames = traceback.extract_tb(err.__traceback__)
    # A call that does not fit its function raises in the line that calls, which is ours: the function has no frame in
    # the traceback then, and only the text names it.
    misfit = _MISFIT.match(text) if isinstance(err, TypeError) and frames and is_ours(frames[-1]) else None
    named = {path: f for path, f in _functions(op) if misfit and getattr(f, "__qualname__", "") == misfit[1]}
    if misfit and misfit[3] and len(named) > 1:  # lambdas are all of one name
        named = {path: f for path, f in named.items() if len(inspect.signature(f).parameters) == int(misfit[3])}
    if named:
        return f"{' or '.join(named)}: {text} ({place_of(next(iter(named.values())))}); {_NEED}"
    frame = author_frame(err)
    # Where lines of ours follow the author's last one, it was our code that raised when the author's line called it,
    # so the fault is ours.
    if frame is None or any(is_ours(later) for later in frames[frames.index(frame) + 1 :]):
        return ""
    # The declaration is at fault only if one of its functions is in the traceback. Other code of the author's file is
    # no part of the declaration.
    fields = [field for each in frames for field in _fields_at(op, each)]
    if not fields:
        return ""
    hint = f"; {_ARRAYS}" if isinstance(err, AttributeError | TypeError) and "reference" in fields else ""
    return f"{fields[-1]}: raised {type(err).__name__}: {text} ({frame.filename}:{frame.lineno}){hint}"


def _functions(record: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """(field, function) for every function of a declaration; for a wrapper also with the function that it wraps."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        for field in dataclasses.fields(record):
            yield from _functions(getattr(record, field.name), f"{path}.{field.name}".lstrip("."))
    elif isinstance(record, Mapping):
        for name, value in record.items():
            yield from _functions(value, f"{path}[{name!r}]")
    elif isinstance(record, tuple):
        for i, value in enumerate(record):
            yield from _functions(value, f"{path}[{i}]")
    elif callable(record):
        yield path, record
        wrapped = getattr(record, "__wrapped__", None) or getattr(record, "func", None)
        if wrapped is not None:
            yield from _functions(wrapped, path)


def _fields_at(op: Op, frame: traceback.FrameSummary) -> list[str]:
    """The fields of the declaration whose function has the line of a frame."""
    paths = []
    for path, function in _functions(op):
        code = getattr(function, "__code__", None)
        if code is not None and (code.co_filename, code.co_name) == (frame.filename, frame.name):
            # Lambdas of one file all have the same name, so the lines decide which of them this one is in.
            first = code.co_firstlineno
            if first <= (frame.lineno or 0) <= max((n for *_, n in code.co_lines() if n), default=first):
                paths.append(path)
    return list(dict.fromkeys(paths))
