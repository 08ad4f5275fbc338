"""What a JSON Schema says against a document, by the package jsonschema."""

from __future__ import annotations

from typing import Any

from jsonschema import Draft202012Validator, FormatChecker


def schema_errors(document: Any, schema: dict[str, Any]) -> list[str]:
    """What a schema of draft 2020-12 says against a document, as `json.loads` gives it; empty where it is right."""
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema, format_checker=FormatChecker(["date"]))
    return [error.message for error in validator.iter_errors(document)]
