"""JSON Schemas of run.json, known.json and budget.json, made from the types by which these files are read; and of the
line of a judgement.

The files beside this module hold the same text, for editors and other programs. `opassay report schema known` prints
one.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

from ...oracles.verdicts.explanations import Page
from ..baseline import budget_schema, known_schema
from ..record import schema as run_schema

_PAGE = Page(Path(__file__).with_name("gate.md"))


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
    return _describe_fields(known_schema(), "opassay known failures", "known.json")


def _budget_schema() -> dict[str, Any]:
    schema = _describe_fields(budget_schema(), "opassay accuracy budgets", "budget.json")
    # A budget file is read in the form alone in which it is written, and that has every field.
    for table in schema["$defs"].values():
        if "properties" in table:
            table["required"] = list(table["properties"])
    return schema


def _describe_fields(schema: dict[str, Any], title: str, headline: str) -> dict[str, Any]:
    """The schema, with what the table of docs/gate.md below a headline says of each field."""
    about = {field: f"{text[:1].upper()}{text[1:]}." for field, text in _PAGE.rows(headline).items()}
    for table in schema["$defs"].values():
        for field, rule in table.get("properties", {}).items():
            rule["description"] = about[field]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}


_MAKERS: dict[str, Callable[[], dict[str, Any]]] = {"run": run_schema, "known": _known_schema, "budget": _budget_schema}
#: A judgement is printed and not read, so that no type has its fields: its schema is written by hand.
_DOCUMENT = "judgement"
NAMES = (*_MAKERS, _DOCUMENT)
