"""Logs of sweeps: what they must hold, and what their table says of a contract."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from workshop.sweeps import reading
from workshop.sweeps.reading import Key, Log, SweepError

PLACE = {"torch": "2.13.0", "cpu": "one"}


def _shard(number: int, ulps: float = 0.6) -> dict[str, Any]:
    worst = {"ulps": ulps, "bits": "3f800001", "layout": "contiguous"}
    none = {"ulps": -1.0, "bits": "", "layout": ""}
    return {"shard": number, "inputs": 100, "misrounded": 3, "normal": worst, "subnormal": none}


def make_log(*shards: int, dtype: str = "float32", place: dict[str, str] | None = None, ulps: float = 0.6) -> Log:
    """A log of `exp` with these shards, each with an error of `ulps`; of `PLACE`, unless another one is named."""
    key = Key("exp", dtype, "cpu")
    return Log(key, PLACE if place is None else place, {number: _shard(number, ulps) for number in shards})


def _heading(log: Log) -> str:
    return json.dumps({"tool": "opassay sweep", "schema": 1, **vars(log.key), "environment": log.environment})


def _write(path: Path, log: Log) -> Path:
    path.write_text("\n".join([_heading(log), *(json.dumps(shard) for shard in log.shards.values()), ""]))
    return path


def test_a_log_comes_back_as_it_was_written(tmp_path: Path) -> None:
    assert reading.read_log(_write(tmp_path / "log", make_log(0, 5))) == make_log(0, 5)


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    path = _write(tmp_path / "log", make_log(0, 5))
    path.write_text(path.read_text()[:-9])
    assert reading.read_log(path) == make_log(0)


@pytest.mark.parametrize(
    "content",
    ["", "{}\n", "[1]\n", '{"tool": "opassay", "schema": 1}\n', _heading(make_log()) + '\n{"shard": 0}\n',
     _heading(make_log()) + "\nno JSON\n", _heading(make_log(dtype="float7")) + "\n" + json.dumps(_shard(0)) + "\n"],
    ids=["empty", "no heading", "a list", "another tool", "a shard without figures", "no JSON", "an unknown dtype"],
)  # fmt: skip
def test_what_is_no_log_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "log").write_text(content)
    with pytest.raises(SweepError, match="is no log of opassay sweep"):
        reading.read_log(tmp_path / "log")


def test_a_table_says_whether_all_arguments_were_measured() -> None:
    part, whole = reading.swept([make_log(0), make_log(*range(256))], {})
    assert (part.complete, whole.complete) == (False, True)
    assert whole.inputs == 25600
    assert whole.misrounded == 3 / 200
    assert reading.swept([make_log()], {}) == []
    (draws,) = reading.swept([make_log(*range(64), dtype="float64")], {})
    assert not draws.complete, "no sweep has every argument of float64"


@pytest.mark.parametrize(
    ("dtype", "allowed"), [("float32", 0.6), ("float16", 0.5 + 0.6 / 2**13), ("bfloat16", 0.5 + 0.6 / 2**16)]
)
def test_a_contract_allows_a_half_type_its_rounding_and_the_ulps_of_float32(dtype: str, allowed: float) -> None:
    (row,) = reading.swept([make_log(0, dtype=dtype)], {"exp": 0.6})
    assert row.promised == allowed


def test_a_function_that_no_contract_names_is_promised_nothing() -> None:
    (row,) = reading.swept([make_log(0, ulps=1e6)], {"log": 1.0})
    assert row.promised is None
