"""JSON Schemas of run.json, known.json and budget.json, made from the types by which these files are read; and of the
line of a judgement.

The files beside this module hold the same text, for editors and other programs. `opassay report schema known` prints
one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from typing import Any

from ..baseline import budget_schema, known_schema
from ..record import schema as run_schema

#: What each field holds, for a reader of the schema and for editors that show it.
_KNOWN = {
    "schema": "The version of this format.",
    "known": "The accepted failures; no cell twice. `opassay gate accept` writes one per line, sorted by cell.",
    "cell": "The key of the cell, as `opassay list OP` shows it: op::PROPERTY[dtype-device-subject].",
    "code": "The reason code of the failure; `opassay explain OA101` tells one. Another code is a new failure.",
    "at_most": 'The largest error that is accepted, as a multiple of its bound; "inf" for an infinite one; null where'
    " the code has no such measure, as with an exception.",
    "reason": "Why the failure is accepted for now.",
    "issue": "Where it is tracked.",
    "owner": "Who sees to it.",
    "expires": "The last day on which the entry holds, at most 180 days after the run that is judged.",
}
_BUDGET = {
    "schema": "The version of this format.",
    "budget": "The budgets, one per line, sorted by cell and device class, none twice; or, of an entry, the largest"
    " error/bound that the cell may show.",
    "cell": "The key of the cell, as `opassay list OP` shows it.",
    "device_class": "What an accuracy may depend on beside the code: cpu-x86_64, sm90.",
    "metric": "What is bounded: max error/bound.",
    "kind": "searched: the largest error that was found, which is a lower bound of the true one.",
    "profile": "The profile of the run that set the budget.",
    "seed": "Its seed.",
    "samples": "How many samples of the cell it judged.",
    "judged": "How many elements it judged; a run that judges less than half as many has lost coverage.",
    "commit": "The commit that was judged; empty outside a repository.",
    "date": "The day of the run.",
    "raised": "Why the budget went up, if it did; else empty.",
}


def schema_of(name: str) -> dict[str, Any]:
    """The JSON Schema of a file, which is one of `NAMES`."""
    schema: dict[str, Any] = json.loads(text_of(name)) if name == _DOCUMENT else _MAKERS[name]()
    return schema


def text_of(name: str) -> str:
    """The same as the text of the file that is shipped."""
    if name == _DOCUMENT:
        return resources.files(__package__).joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return json.dumps(schema_of(name), indent=1) + "\n"


def _known_schema() -> dict[str, Any]:
    return _describe_fields(known_schema(), "opassay known failures", _KNOWN)


def _budget_schema() -> dict[str, Any]:
    schema = _describe_fields(budget_schema(), "opassay accuracy budgets", _BUDGET)
    # A budget file is read in the form alone in which it is written, and that has every field.
    for table in schema["$defs"].values():
        if "properties" in table:
            table["required"] = list(table["properties"])
    return schema


def _describe_fields(schema: dict[str, Any], title: str, about: dict[str, str]) -> dict[str, Any]:
    for table in schema["$defs"].values():
        for field, rule in table.get("properties", {}).items():
            rule["description"] = about[field]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


_MAKERS: dict[str, Callable[[], dict[str, Any]]] = {"run": run_schema, "known": _known_schema, "budget": _budget_schema}
#: A judgement is printed and not read, so that no type has its fields: its schema is written by hand.
_DOCUMENT = "judgement"
NAMES = (*_MAKERS, _DOCUMENT)
