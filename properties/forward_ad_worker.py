"""The process behind `forward_ad.Worker`: a question per line in, a verdict per line out, until the input ends."""

from __future__ import annotations

import base64
import importlib
import json
import os
import pickle
import sys
from collections.abc import Iterable
from typing import Any, TextIO

import torch

from ..oracles.verdict import Cell, Verdict
from . import cells
from .lifeline import end_with


def answer(question: dict[str, Any]) -> Verdict:
    """The verdict of a question: a case to replay, or a cell and how much to ask."""
    if "case" in question:
        return cells.replay_case(question["case"], here=True)
    return cells.run_cell(Cell(*question["cell"]), cells.Settings(**question["settings"]), here=True)


def serve(questions: Iterable[str], answers: TextIO) -> None:
    """Answer every question, in order."""
    for line in questions:
        question = json.loads(line)
        verdict = base64.b64encode(pickle.dumps(answer(question))).decode()
        answers.write(json.dumps({"number": question["number"], "verdict": verdict}) + "\n")
        answers.flush()


def main(prepare: str, owner: int) -> None:
    """Call `prepare` ("module:function"; nothing where it is empty), then serve standard input.

    Args:
        prepare: what this process is prepared with. owner: the process that asks; this one ends with it.
    """
    end_with(owner)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not be taken for an answer
    torch.set_num_threads(1)
    if prepare:
        module, _, function = prepare.partition(":")
        getattr(importlib.import_module(module), function)()
    serve(sys.stdin, answers)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
