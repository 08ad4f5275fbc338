"""The program of `prepared.Worker`: it is prepared once, and judges cells and case files by itself."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from ...oracles.verdicts.case import load_case
from ...oracles.verdicts.data import as_data
from ...oracles.verdicts.verdict import Cell, Verdict
from ..engine import cells, samples
from ..engine.guard import guard
from .serving import serve


def prepare(hello: dict[str, Any]) -> dict[str, str]:
    """Call what the owner names as "module:function", if anything; it holds for this process and for good."""
    torch.set_num_threads(1)
    if hello["prepare"]:
        module, _, function = hello["prepare"].partition(":")
        getattr(importlib.import_module(module), function)()
    return {}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The verdict of a question: a case to replay, or a cell and how much to ask."""
    return {"verdict": as_data(_verdict(question))}


def _verdict(question: dict[str, Any]) -> Verdict:
    if "case" in question:
        cell, sample = load_case(question["case"])
        return guard(cell, lambda: cells.judge_sample(cell, sample))
    cell = Cell(*question["cell"])
    return guard(cell, lambda: cells.judge_cell(cell, samples.Settings(**question["settings"])))


if __name__ == "__main__":
    serve(prepare, answer)
