"""A reader of JSON Schema for the few words that our schemas use; another word is an error, and not passed over."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from typing import Any

#: Words that say nothing about which documents are right.
_SILENT = {"$schema", "$defs", "title", "description", "default"}
_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "null": (type(None),), "boolean": (bool,),
    "number": (int, float), "integer": (int,),
}  # fmt: skip


def wrong(document: Any, schema: dict[str, Any], top: dict[str, Any] | None = None) -> list[str]:
    """What a schema says against a document; empty where it is right.

    Args:
        document: as `json.loads` gives it. schema: of the document. top: the whole schema, if `schema` is a part of it.
    """
    top = schema if top is None else top
    return [text for word, rule in schema.items() for text in _found(document, word, rule, schema, top)]


def _found(value: Any, word: str, rule: Any, schema: dict[str, Any], top: dict[str, Any]) -> Iterator[str]:
    match word:
        case "$ref":
            yield from wrong(value, top["$defs"][rule.removeprefix("#/$defs/")], top)
        case "anyOf":
            if all(wrong(value, one, top) for one in rule):
                yield f"{value!r} is none of {rule}"
        case "type":
            # In JSON true is no number, and 2.0 is an integer.
            whole = rule == "integer" and isinstance(value, float) and value.is_integer()
            if not (isinstance(value, _TYPES[rule]) or whole) or (isinstance(value, bool) and rule != "boolean"):
                yield f"{value!r} is no {rule}"
        case "enum":
            if not any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in rule):
                yield f"{value!r} is none of {rule}"
        case "required":
            yield from (f"{name} is missing" for name in rule if isinstance(value, dict) and name not in value)
        case "additionalProperties":
            others = [
                name for name in (value if isinstance(value, dict) else ()) if name not in schema.get("properties", {})
            ]
            for name in others:
                yield from [f"{name} is unknown"] if rule is False else wrong(value[name], rule, top)
        case "propertyNames":
            names = value if isinstance(value, dict) else ()
            yield from (text for name in names for text in wrong(name, rule, top))
        case "prefixItems":
            parts = value if isinstance(value, list) else []
            yield from (text for item, one in zip(parts, rule, strict=False) for text in wrong(item, one, top))
        case "properties":
            fields = value if isinstance(value, dict) else {}
            yield from (text for name in fields if name in rule for text in wrong(fields[name], rule[name], top))
        case "items" if rule is False:
            if isinstance(value, list) and len(value) > len(schema["prefixItems"]):
                yield f"{len(value)} items are too many"
        case "items":
            yield from (text for item in (value if isinstance(value, list) else ()) for text in wrong(item, rule, top))
        case _:
            yield from _limits(value, word, rule)


def _limits(value: Any, word: str, rule: Any) -> Iterator[str]:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    match word:
        case "minimum" | "maximum":
            if number and (value < rule if word == "minimum" else value > rule):
                yield f"{value!r} is beyond the {word} {rule}"
        case "minLength" | "maxLength":
            if isinstance(value, str) and (len(value) < rule if word == "minLength" else len(value) > rule):
                yield f"{len(value)} characters are beyond {word} {rule}"
        case "maxItems" | "minItems":
            if isinstance(value, list) and (len(value) < rule if word == "minItems" else len(value) > rule):
                yield f"{len(value)} items are beyond {word} {rule}"
        case "maxProperties":
            if isinstance(value, dict) and len(value) > rule:
                yield f"{len(value)} fields are beyond {word} {rule}"
        case "pattern":
            if isinstance(value, str) and not re.search(rule, value):
                yield f"{value!r} does not fit {rule}"
        case "format":
            assert rule == "date"
            if isinstance(value, str) and not _is_date(value):
                yield f"{value!r} is no date"
        case _:
            assert word in _SILENT, f"the schema has a word that is not read here: {word}"


def _is_date(text: str) -> bool:
    try:
        return bool(re.fullmatch(r"\d{4}-\d{2}-\d{2}", text)) and bool(date.fromisoformat(text))
    except ValueError:
        return False
