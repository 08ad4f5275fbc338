"""`watch`: a block of a program, recorded and judged."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import torch

from ...oracles.bound.terms import terms
from ...oracles.verdicts.watched import Watched
from .judging import CallJudge
from .keeping import Keep
from .ledger import CallLedger, Progress
from .naming import NameNotFound
from .recorder import Recorder
from .sweep import finish_recording


class Watcher:
    """Records a block of code, and judges it when it ends.

    Attributes:
        result: what was found; None before the block has ended.
        ledger: of the calls that were kept, from which cases are written.
        name: of the program. contract: by which calls are judged.
    """

    def __init__(self, recorder: Recorder, judge: CallJudge, name: str, progress: Progress | None) -> None:
        self.result: Watched | None = None
        self.ledger: CallLedger | None = None
        self.name, self.contract = name, judge.contract
        self._recorder, self._judge, self._progress = recorder, judge, progress

    def __enter__(self) -> Self:
        self._recorder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.stop()
        try:
            self.ledger = CallLedger(finish_recording(self._recorder), self._judge)
        except NameNotFound:
            if error is None:
                raise
            return  # What the block raised is the reason.
        try:
            self.ledger.judge_calls(self._progress)
        finally:
            self.result = self.ledger.result(self.name)


def watch(
    model: torch.nn.Module | None = None, *, contract: str = "torch", keep: Keep | None = None, name: str = "",
    progress: Progress | None = None, of: str = "",
) -> Watcher:  # fmt: skip
    """Hold every call of a program by the ball of its own operands, and follow the error of its loss to the calls.

    Every operation that torch dispatches in the block is recorded, forward and backward, and judged when the block
    ends; the values of the program do not change. As in::

        with opassay.watch(model) as watched:
            loss = model(x).pow(2).mean()
            loss.backward()
        print(watched.result.loss.explained)

    Args:
        model: whose modules have the names of its own; others have those of their class and their path.
        contract: what an evaluation may do (`opassay.PRESETS`); switches of torch, as TF32, are added as they stand.
        keep: which calls are kept to be judged; None for all.
        name: of the program in the report. progress: told how many calls are judged, of how many.
        of: the number whose error is followed in place of the loss: a variable ("logits", "model.head.weight.grad"), a
            module ("model.head"), whose output it is, or a line ("train.py:31"), whose last floating result it is; the
            last value that it has. Of a tensor an element, "logits[0, 3]", else its largest one.

    Raises:
        ValueError: `contract` is no name of terms, or `of` no name; at the end of the block, nothing has that name.
    """
    terms(contract)
    recorder = Recorder(keep, of=of)
    if model is not None:
        recorder.origins.modules.name(model)
        name = name or type(model).__name__
    return Watcher(recorder, CallJudge(contract), name or "program", progress)
