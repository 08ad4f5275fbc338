"""What a judge and a candidate's process hand to each other: files in a folder, of which those of the candidate are a
stranger's data.

What is hard here: the candidate's process may write its part of the folder, so nothing in it need be what it was. The
judge writes through a file that it opened before the candidate ran; it reads regular files alone, without following
links, of a limited size, and looks at every field of an answer before anything is computed with it.
"""

from __future__ import annotations

import contextlib
import math
import os
import resource
import stat
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import torch

from ....oracles.verdicts.verdict import Code
from ....reference.meeting import Delivery, Turn
from ...places import wire
from ..ranks.collectives import POSTED
from .calls import DTYPES, Answer, CandidateCall, GoneError, Making, overwrite
from .temporary import TemporaryFolder

#: Bytes of an answer beyond which no more is read: so many, and so many times the memory that the judge itself has
#: needed so far. The judge has had the arguments and the outputs of the spec, and an answer repeats no more than these.
_FEW, _TIMES = 2**28, 4
#: Characters of an exception and of what was changed, which the process has cut to a few lines.
_MOST_TEXT = 2**18
#: Calls in a row that the variants of executed kernels may ask for.
_MOST_VARIANTS = 2**10


class Exchange:
    """The folder of a judge and a candidate's process, in which that has one of its own.

    Attributes:
        own: the folder in which the candidate's process writes.
    """

    def __init__(self) -> None:
        self._folder = TemporaryFolder()
        self.own = os.path.join(self._folder.path, "own")
        os.mkdir(self.own, 0o700)
        self._handle = os.open(self.own, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._questions = open(os.open("asked", new, 0o600, dir_fd=self._folder.handle), "wb")  # noqa: SIM115 (see `close`)
        self._number = 0

    def write(self, message: CandidateCall | Making | Delivery) -> str:
        """The path of the file that has this now."""
        overwrite(self._questions, message)
        return os.path.join(self._folder.path, "asked")

    def place(self) -> str:
        """The path of a file that is not there, for the next answer."""
        self._number += 1
        return os.path.join(self.own, self._name)

    @property
    def _name(self) -> str:
        return f"answer-{self._number}"

    def answer(self, call: CandidateCall | None) -> Answer:
        """What the process left at the last place.

        Args:
            call: that it answers; None for rows that were fetched.

        Raises:
            GoneError: it is no answer, whatever it is.
        """
        try:
            answer = wire.decode(self._content(self._name), Answer, placed=True)
            check(answer, call)
            return answer
        except Exception as err:  # whoever wrote it may have thought of something that raises anything
            raise GoneError(f"gave an answer that cannot be read: {str(err) or type(err).__name__}") from err
        finally:
            with contextlib.suppress(OSError):
                os.unlink(self._name, dir_fd=self._handle)

    def posted(self) -> Turn:
        """What the process of a rank has posted.

        Raises:
            GoneError: nothing that can be read.
        """
        try:
            return wire.decode(self._content(POSTED), Turn)
        except Exception as err:  # as above
            raise GoneError(f"posted what cannot be read: {str(err) or type(err).__name__}") from err

    def _content(self, name: str) -> memoryview:
        """The bytes of a file of the process, in memory of their own."""
        # What is no regular file may wait for ever when it is opened, or when it is read.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=self._handle), "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("it is no regular file")
            most = _FEW + _TIMES * 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            if status.st_size > most:
                raise ValueError(f"it has {status.st_size} bytes, need at most {most}")
            # The file is read and not mapped: whoever wrote it could cut it short later, and end the process that
            # looks at it.
            content = np.empty(status.st_size, np.uint8)
            rest = content.data
            while rest:
                count = file.readinto(rest)
                if not count:
                    raise ValueError("it was cut short")
                rest = rest[count:]
        return content.data

    def close(self) -> None:
        """Remove the folder; later calls do nothing."""
        with contextlib.suppress(OSError):
            self._questions.close()
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1
        self._folder.remove()


class Loaded(msgspec.Struct, frozen=True):
    """What a process says of the candidate that it was asked to load; the attributes are those of `Answering`.

    Attributes:
        changed: what the making changed in the process. refusal: why there is none, an exception of the candidate.
        lacks: why there is none, where the file or the name is not there. beyond: as in `Answer`.
    """

    loaded: str = ""
    changed: list[str] = []
    shapes: dict[str, tuple[int, ...]] = {}
    parameters: dict[str, bool] = {}
    refusal: str = ""
    lacks: str = ""
    beyond: str = ""


def loaded(line: dict[str, Any]) -> Loaded:
    """What a line of the process says.

    Raises:
        GoneError: nothing of a candidate.
    """
    try:
        answer = msgspec.convert(line, Loaded)
        texts = (answer.loaded, answer.refusal, answer.lacks, answer.beyond)
        _require_short(*texts, *answer.changed, *answer.shapes, *answer.parameters)
    except ValueError as err:
        raise GoneError(f"gave an answer that cannot be read: {err}") from err
    if not (answer.loaded or answer.refusal or answer.lacks):
        raise GoneError("gave an answer that cannot be read: it names no candidate")
    return answer


def check(answer: Answer, call: CandidateCall | None) -> None:
    """Require of an answer what every answer of a host has.

    Raises:
        ValueError: a field has something else; the text names it.
    """
    writes, pulled = answer.writes, answer.pulled
    for name, tensors in {
        "outputs": answer.outputs, "after": writes.after, "earlier": answer.earlier,
        "different": answer.repeat.different,
    }.items():  # fmt: skip
        _require_tensors(name, tensors)
    for name, tensors in {
        "buffers": writes.buffers, "gradients": pulled.gradients, "again": pulled.again
    }.items():  # fmt: skip
        _require_tensors(name, [tensor for tensor in tensors if tensor is not None])
    if not all(value is None or isinstance(value, (bool, int, float, str)) for value in answer.plain):
        raise ValueError("got plain with something else than numbers, texts and None")
    _require_short(answer.raised, pulled.spent, answer.form, *answer.changed, *map(str, answer.plain))
    if not (math.isfinite(answer.repeat.seconds) and answer.repeat.seconds >= 0):
        raise ValueError(f"got seconds={answer.repeat.seconds}, need a number from 0 on")
    if answer.executed is not None:
        executed = answer.executed
        _require_short(executed.variant, executed.fault, *executed.tale, *executed.text)
        if executed.fault and not (executed.fault in [*Code] and executed.text):
            raise ValueError(f"got fault={executed.fault}, need a code and its text")
        if not 0 < executed.variants <= _MOST_VARIANTS:
            raise ValueError(f"got variants={executed.variants}, need one to {_MOST_VARIANTS}")
    if any(n < 0 for shape in answer.shapes for n in shape):
        raise ValueError(f"got shapes={answer.shapes}, need extents from 0 on")
    if call is not None and not answer.raised:
        _require_of_call(answer, call)


def _require_of_call(answer: Answer, call: CandidateCall) -> None:
    """Require the counts that follow from what was asked."""
    tensors = call.arguments.tensors
    outputs = answer.shapes if call.sequel.fetched else answer.outputs
    shared, overlaps, differs = answer.aliases.shared, answer.aliases.overlaps, answer.repeat.differs
    _require_count("shared", shared, len(outputs))
    _require_count("buffers", answer.writes.buffers, len(call.sequel.writes.buffers))
    _require_count("after", answer.writes.after, len(tensors) if call.sequel.writes.after else 0)
    leaves = 0 if call.backward is None else len(call.backward.moving) + len(call.backward.wanted)
    for name, values in (("gradients", answer.pulled.gradients), ("again", answer.pulled.again)):
        if values:
            _require_count(name, values, leaves)
    if any(not -1 <= home < len(tensors) for home in shared):
        raise ValueError(f"got shared={shared}, need numbers of {len(tensors)} arguments, or -1")
    if any(not 0 <= i < len(outputs) for pair in overlaps for i in pair):
        raise ValueError(f"got overlaps={overlaps}, need pairs of {len(outputs)} outputs")
    if not 0 <= differs <= call.sequel.times:
        raise ValueError(f"got differs={differs}, need one of {call.sequel.times} calls, or 0")


def _require_count(name: str, values: Sequence[Any], need: int) -> None:
    if len(values) != need:
        raise ValueError(f"got {len(values)} of {name}, need {need}")


def _require_tensors(name: str, values: Sequence[Any]) -> None:
    for value in values:
        if not isinstance(value, torch.Tensor) or value.dtype not in DTYPES:
            kind = getattr(value, "dtype", type(value).__name__)
            raise ValueError(f"got {name} of a {kind}, need tensors of numbers")


def _require_short(*texts: str) -> None:
    if sum(map(len, texts)) > _MOST_TEXT:
        raise ValueError(f"got texts of {sum(map(len, texts))} characters, need at most {_MOST_TEXT}")
