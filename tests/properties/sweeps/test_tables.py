"""Logs of sweeps: what they must hold, how they are continued and joined, and what their table says of a contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from opassay.properties.sweeps import tables
from opassay.properties.sweeps.tables import Key, Log, SweepError

PLACE = {"torch": "2.13.0", "cpu": "one"}


def _shard(number: int, ulps: float = 0.6) -> dict[str, Any]:
    worst = {"ulps": ulps, "bits": "3f800001", "layout": "contiguous"}
    none = {"ulps": -1.0, "bits": "", "layout": ""}
    return {"shard": number, "inputs": 100, "misrounded": 3, "normal": worst, "subnormal": none}


def _log(*shards: int, dtype: str = "float32", place: dict[str, str] | None = None, ulps: float = 0.6) -> Log:
    key = Key("exp", dtype, "cpu")
    return Log(key, PLACE if place is None else place, {number: _shard(number, ulps) for number in shards})


def _write(path: Path, log: Log) -> Path:
    path.write_text("\n".join([log.heading(), *(json.dumps(shard) for shard in log.shards.values()), ""]))
    return path


def test_a_log_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert tables.read_log(_write(tmp_path / "log", _log(0, 5))) == _log(0, 5)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = _write(tmp_path / "log", _log(0, 5))
    path.write_text(path.read_text()[:-9])
    assert tables.read_log(path) == _log(0)


@pytest.mark.parametrize(
    "content",
    ["", "{}\n", "[1]\n", '{"tool": "opassay", "schema": 1}\n', _log().heading() + '\n{"shard": 0}\n',
     _log().heading() + "\nno JSON\n", _log(dtype="float7").heading() + "\n" + json.dumps(_shard(0)) + "\n"],
    ids=["empty", "no heading", "a list", "another tool", "a shard without figures", "no JSON", "an unknown dtype"],
)  # fmt: skip
def test_what_is_no_log_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "log").write_text(content)
    with pytest.raises(SweepError, match="is no log of opassay sweep"):
        tables.read_log(tmp_path / "log")


def test_folders_of_one_kind_of_machine_are_joined() -> None:
    (joined,) = tables.join([_log(0, 1), _log(1, 7)])
    assert sorted(joined.shards) == [0, 1, 7]
    assert len(joined.missing) == 253


def test_logs_of_different_machines_are_not_joined() -> None:
    with pytest.raises(SweepError, match="differ in cpu: 'one' and 'two'"):
        tables.join([_log(0), _log(1, place={**PLACE, "cpu": "two"})])


def test_a_table_says_whether_all_arguments_were_measured() -> None:
    part, whole = tables.swept([_log(0), _log(*range(256))], {})
    assert (part.complete, whole.complete) == (False, True)
    assert whole.inputs == 25600
    assert whole.misrounded == 3 / 200
    assert tables.swept([_log()], {}) == []
    (draws,) = tables.swept([_log(*range(64), dtype="float64")], {})
    assert not draws.complete, "no sweep has every argument of float64"


@pytest.mark.parametrize(
    ("dtype", "allowed"), [("float32", 0.6), ("float16", 0.5 + 0.6 / 2**13), ("bfloat16", 0.5 + 0.6 / 2**16)]
)
def test_a_contract_is_broken_just_above_what_it_allows(dtype: str, allowed: float) -> None:
    contract = {"exp": 0.6}
    for ulps, broken in ((allowed * 1.01, True), (allowed, False), (allowed * 0.99, False)):
        (row,) = tables.swept([_log(0, dtype=dtype, ulps=ulps)], contract)
        assert (row.promised, row.is_broken) == (allowed, broken)


def test_a_function_that_no_contract_names_is_not_held_against_one() -> None:
    (row,) = tables.swept([_log(0, ulps=1e6)], {"log": 1.0})
    assert row.promised is None
    assert not row.is_broken
