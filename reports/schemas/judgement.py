"""The line that `opassay judge --json` prints, as types; a number that JSON does not have is a text.

A command that came to no verdict prints the fields without a default, and no others.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

_Number = float | Literal["nan", "inf", "-inf"]


class Cause(msgspec.Struct, forbid_unknown_fields=True):
    """A question that is wrong; the worst element of an output, where there is one."""

    question: str
    code: str
    title: str
    text: str
    output: str | UnsetType = UNSET
    index: list[int] | UnsetType = UNSET
    computed: _Number | UnsetType = UNSET
    exact: _Number | UnsetType = UNSET
    bound: _Number | UnsetType = UNSET
    ratio: _Number | UnsetType = UNSET
    outside: int | UnsetType = UNSET
    elements: int | UnsetType = UNSET
    box: list[tuple[int, int]] | UnsetType = UNSET
    place: str | UnsetType = UNSET
    relation: str | UnsetType = UNSET
    share: _Number | UnsetType = UNSET


class Coverage(msgspec.Struct, forbid_unknown_fields=True):
    """How many elements of an output were judged at the given inputs, of how many."""

    judged: int
    elements: int


class JudgementLine(msgspec.Struct, forbid_unknown_fields=True):
    """The line."""

    verdict: Literal["accepted", "rejected", "suspect", "weak", "error"]
    causes: list[Cause]
    suspect: list[str]
    weaknesses: list[str]
    arithmetic: str
    error: str
    kept: str | UnsetType = UNSET
    contract: str | UnsetType = UNSET
    asked: list[str] | UnsetType = UNSET
    elements: int | UnsetType = UNSET
    coverage: dict[str, Coverage] | UnsetType = UNSET
    judged: dict[str, tuple[int, int]] | UnsetType = UNSET
    sampled: dict[str, str] | UnsetType = UNSET
    left_out: dict[str, str] | UnsetType = UNSET
    seed: int | UnsetType = UNSET
    seconds: float | UnsetType = UNSET
    candidate: str | UnsetType = UNSET
    spec: str | UnsetType = UNSET
    sha256: dict[str, str] | UnsetType = UNSET


#: What each field holds, for a reader of the schema.
ABOUT = {
    "question": "Its code: GIVEN, SAME, GRAD.",
    "code": "The reason code; `opassay explain OA101` tells one.",
    "title": "What the question asks, in a few words.",
    "text": "The card.",
    "output": "The name of the output; absent, as all below, where no element is wrong.",
    "index": "Of the worst element.",
    "computed": "Its value.",
    "exact": "Its value in real arithmetic, rounded to float64.",
    "bound": "The largest error that is accepted there.",
    "ratio": "Its error over the bound.",
    "outside": "How many elements are outside their accept sets.",
    "elements": "How many elements were judged in all questions together; or, of a cause and an output, of how many.",
    "box": "The first and the last index of these elements along every axis.",
    "place": "Where they lie, in words; or empty.",
    "relation": "How they go with the right values, in words; or empty.",
    "share": "The largest error as a share of the largest exact element.",
    "verdict": "What is said of the candidate.",
    "causes": "The questions that are wrong, in the table's order.",
    "suspect": "What is within its bound and not likely; no cause.",
    "arithmetic": "The strictest precision whose bound is kept, in words.",
    "kept": "The name of its terms; empty for none.",
    "contract": "What was allowed, in one line.",
    "weaknesses": "Why a verdict says little, a sentence each.",
    "asked": "Codes of the questions that were asked.",
    "sampled": "By question, the share of a large problem that was asked.",
    "left_out": "By question, what of it could not be asked.",
    "coverage": "By output, how many elements were judged at the given inputs, of how many.",
    "judged": "By question, how many elements were judged, of how many; or, of an output, how many.",
    "seed": "Of all inputs and parameters.",
    "seconds": "That the questions took.",
    "candidate": "Its name.",
    "spec": "Its name.",
    "error": "Why there is no verdict; else empty.",
    "sha256": "Of the bytes that were executed, by candidate and spec.",
}
