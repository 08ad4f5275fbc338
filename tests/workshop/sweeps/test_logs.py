"""Logs of sweeps: how they are written and joined, and what breaks a contract."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workshop.sweeps.test_reading import PLACE, make_log
from workshop.sweeps.logs import file_of, is_broken, join, write_log
from workshop.sweeps.reading import Key, SweepError, read_log, swept


def test_a_log_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_log(tmp_path, make_log(0, 5))
    assert read_log(tmp_path / "exp-float32-cpu.jsonl") == make_log(0, 5)
    assert file_of(Key("power:0.75", "float16", "cuda")) == "power_0.75-float16-cuda.jsonl"


def test_folders_of_one_kind_of_machine_are_joined() -> None:
    (joined,) = join([make_log(0, 1), make_log(1, 7)])
    assert sorted(joined.shards) == [0, 1, 7]
    assert len(joined.missing) == 253


def test_logs_of_different_machines_are_not_joined() -> None:
    with pytest.raises(SweepError, match=r"exp-float32-cpu\.jsonl: logs of one sweep differ in cpu: 'one' and 'two'"):
        join([make_log(0), make_log(1, place={**PLACE, "cpu": "two"})])


def test_a_contract_is_broken_just_above_what_it_allows() -> None:
    for ulps, broken in ((0.606, True), (0.6, False), (0.594, False)):
        (row,) = swept([make_log(0, ulps=ulps)], {"exp": 0.6})
        assert is_broken(row) is broken


def test_a_function_that_no_contract_names_breaks_none() -> None:
    (row,) = swept([make_log(0, ulps=1e6)], {"log": 1.0})
    assert not is_broken(row)
