"""The JSON Schemas that are shipped, and the readers of these files, take the same documents and refuse the same."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterator
from datetime import date
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from jsonschema import SchemaError

from opassay.oracles.verdicts.verdict import Code
from opassay.reports.baseline import Known, KnownEntry, dump_budget, dump_known, load_budget, load_known, update
from opassay.reports.cli.main import main
from opassay.reports.record import RecordError, decode, encode
from opassay.reports.schemas.documents import NAMES, schema_of, text_of
from tests.reports.conftest import failed, make_run, verdict
from tests.reports.json_schema import schema_errors

RUN = make_run(verdict(), failed(ratio=math.inf))
_ACCEPTED = {"reason": "wide sum", "issue": "#12", "owner": "nobody", "expires": date(2026, 6, 1)}
KNOWN: Known = {
    name: KnownEntry(name, Code.VALUE, size, **_ACCEPTED)  # type: ignore[arg-type]
    for name, size in (("a", 4.5), ("b", "inf"), ("c", None))
}
FILES: dict[str, bytes] = {
    "run": encode(RUN),
    "known": dump_known(KNOWN),
    "budget": dump_budget(update(RUN, {})[0]),
    "judgement": b'{"verdict":"error","causes":[],"suspect":[],"weaknesses":[],"arithmetic":"","error":"no file"}',
}


def test_what_is_written_fits() -> None:
    assert set(FILES) == set(NAMES)
    for name, content in FILES.items():
        assert schema_errors(json.loads(content), schema_of(name)) == []


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_what_the_command_prints(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    shipped = resources.files("opassay.reports.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    assert shipped == text_of(name), f"opassay report schema {name} > reports/schemas/{name}.schema.json"
    assert main(["report", "schema", name]) == 0
    assert capsys.readouterr().out == shipped


def test_every_field_of_the_files_that_people_read_is_described() -> None:
    for name in ("known", "budget", "judgement"):
        for table in schema_of(name)["$defs"].values():
            for field, rule in table.get("properties", {}).items():
                assert rule["description"].endswith("."), field


# ------------------------------------------------------------------------------ the readers and the schemas agree

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 2, 0.5, -0.5, 1.5, 2**60, "", "x", "x" * 2001, "inf", "-inf", "nan", "OA101", "OA999",
    "2026-02-30", "2026-06-01", "2026-6-1", "20260601", "today", "0x1.8p+1", [], {}, [1], {"a": 1},
)  # fmt: skip


def _changed(document: Any, entry: Callable[[Any], dict[str, Any]]) -> Iterator[Any]:
    """The document with one field of its top, or of an entry, left out, added, or of another value."""
    for place in (lambda one: one, entry):
        for field in [*place(document), "other"]:
            for value in (*_VALUES, ...):
                result = copy.deepcopy(document)
                if value is ...:
                    place(result).pop(field, None)
                else:
                    place(result)[field] = value
                yield result


def _reads(reader: Callable[[Path], object], path: Path, content: bytes) -> bool:
    path.write_bytes(content)
    try:
        reader(path)
    except RecordError:
        return False
    return True


def _canonical(document: Any) -> bytes:
    """As `baseline update` writes a budget file; anything else in the place of its list as it is."""
    entries = document.get("budget")
    if not isinstance(entries, list) or list(document) != ["schema", "budget"]:
        return json.dumps(document).encode()
    for entry in entries:
        # A budget is a float, and is written as one: 0.0, never 0.
        if isinstance(entry, dict) and type(entry.get("budget")) is int:
            entry["budget"] = float(entry["budget"])
    lines = ",\n".join(json.dumps(entry, separators=(",", ":"), ensure_ascii=False) for entry in entries)
    body = f"[\n{lines}\n]" if entries else "[]"
    return f'{{"schema": {json.dumps(document["schema"])}, "budget": {body}}}\n'.encode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "reader", "encode"),
    [("known", load_known, lambda document: json.dumps(document).encode()), ("budget", load_budget, _canonical)],
)
def test_the_reader_takes_what_the_schema_takes(
    tmp_path: Path, name: str, reader: Callable[[Path], object], encode: Callable[[Any], bytes]
) -> None:
    schema, document = schema_of(name), json.loads(FILES[name])
    accepted_count = refusals = 0
    for changed in _changed(document, lambda one: one[name][0] if isinstance(one[name], list) else one):
        fits = not schema_errors(changed, schema)
        assert _reads(reader, tmp_path / f"{name}.json", encode(changed)) == fits, changed
        accepted_count, refusals = accepted_count + fits, refusals + (not fits)
    assert min(accepted_count, refusals) > 20, "both happen"


@pytest.mark.slow
def test_a_record_is_refused_by_both_or_by_its_reader_for_more_than_a_schema_can_say() -> None:
    document, schema = json.loads(FILES["run"]), schema_of("run")
    for changed in _changed(document, lambda one: one["verdicts"][0]["measure"]):
        try:
            decode(json.dumps(changed).encode())
        except RecordError:
            continue
        assert schema_errors(changed, schema) == [], "the reader took what the schema refuses"
    assert schema_errors(document | {"seed": "0"}, schema)
    assert schema_errors(document | {"seconds": "0x1p+9"}, schema) == []
    assert schema_errors(document | {"seconds": "9"}, schema)


def test_a_planted_difference_is_found(tmp_path: Path) -> None:
    schema, document = schema_of("known"), json.loads(FILES["known"])
    del schema["$defs"]["KnownEntry"]["properties"]["reason"]["minLength"]
    document["known"][0]["reason"] = ""
    assert schema_errors(document, schema) == []
    assert not _reads(load_known, tmp_path / "known.json", json.dumps(document).encode())
    with pytest.raises(SchemaError):
        schema_errors(3, {"type": "no type"})
