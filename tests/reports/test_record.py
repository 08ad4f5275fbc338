"""The run record: what goes in comes out, and what does not belong is refused."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.verdicts.verdict import MAX_CASE, Cell, Code, Failure, Measure, Outcome, Verdict, Worst, clean
from opassay.reports import record
from opassay.reports.record import RecordError, Run, decode, encode
from opassay.reports.store import files
from tests.reports.conftest import HOSTILE, failed, make_run, verdict


def _same(one: float, other: float) -> bool:
    return one.hex() == other.hex()


def test_a_run_survives_the_file(tmp_path: Path) -> None:
    run = replace(make_run(verdict(), failed()), exit_code=1, exit_reasons=("1 failed",), seconds=0.1)
    record.save(tmp_path / "run.json", run)
    assert record.load(tmp_path / "run.json") == run
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -0.0, 5e-324, 0.1, 1.7976931348623157e308])
def test_every_float_survives(value: float) -> None:
    worst = Worst("x", "vjp", "0", "0", value, value)
    measure = Measure(1, 0, 1, 0, value, value, value, value, worst, value, value, (), 0, (), value, value, value)
    back = decode(encode(make_run(replace(failed(), measure=measure)))).verdicts[0].measure
    floats = [item.name for item in fields(Measure) if item.type == "float"]
    assert len(floats) == 9
    assert all(_same(getattr(back, name), value) for name in floats)
    assert back.worst is not None
    assert _same(back.worst.ulp, value)


def test_hostile_text_survives_as_data() -> None:
    cell = Cell(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    failure = Failure(Code.VALUE, HOSTILE, HOSTILE, "id", HOSTILE, HOSTILE)
    content = encode(make_run(Verdict(cell, Outcome.FAIL, Code.VALUE, HOSTILE, failure=failure)))
    back = decode(content).verdicts[0]
    assert back.cell.op == HOSTILE.encode("utf-8", "replace").decode()
    assert encode(make_run(back)) == encode(make_run(decode(content).verdicts[0]))


def test_half_a_case_is_no_case() -> None:
    failure = Failure(Code.VALUE, "t", "m" * 10**6, "id", "x" * (MAX_CASE + 1), "s" * MAX_CASE)
    item = Verdict(verdict().cell, Outcome.FAIL, Code.VALUE, "r", failure=failure)
    back = decode(encode(make_run(item))).verdicts[0].failure
    assert back is not None
    assert (back.case, len(back.snippet)) == ("", MAX_CASE)


def _changed(path: list[Any], value: Any) -> bytes:
    data = json.loads(encode(make_run(verdict(), failed())))
    inner = data
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["unknown"], 1),
        (["schema"], 2),
        (["seed"], "0"),
        (["seconds"], 1.5),
        (["seconds"], "nan"),
        (["seconds"], "0x1p+99999"),
        (["started"], "yesterday"),
        (["verdicts", 0, "outcome"], "fine"),
        (["verdicts", 0, "code"], "OA999"),
        (["verdicts", 0, "cell", "op"], ""),
        (["verdicts", 0, "cell", "op"], "x" * 1000),
        (["verdicts", 0, "measure", "max_ulp"], None),
        (["verdicts", 0, "measure", "max_ulp"], "0x1.8p+1; rm"),
        (["verdicts", 0, "measure", "samples"], -1),
        (["verdicts", 0, "measure", "ulp_p99"], None),
        (["verdicts", 0, "measure", "ulp_p99"], 1.5),
        (["verdicts", 0, "measure", "ulp_median"], "0x1"),
        (["verdicts", 0, "measure", "ulp_p98"], "0x0.0p+0"),
        (["verdicts", 0, "cell", "property"], "VJP"),
    ],
)
def test_what_does_not_belong_is_refused(path: list[Any], value: Any) -> None:
    with pytest.raises(RecordError):
        decode(_changed(path, value))


def test_records_of_before_the_percentiles_are_read() -> None:
    data = json.loads(encode(make_run(verdict())))
    for name in ("ulp_median", "ulp_p99", "scaled_median", "scaled_p99", "scaled_max"):
        del data["verdicts"][0]["measure"][name]
    measure = decode(json.dumps(data).encode()).verdicts[0].measure
    assert math.isnan(measure.ulp_median)
    assert math.isnan(measure.ulp_p99)
    assert math.isnan(measure.scaled_max)
    assert measure.max_ulp == verdict().measure.max_ulp


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[" * 100_000, b"null", b'{"schema": NaN}'])
def test_what_is_no_record_is_refused(content: bytes) -> None:
    with pytest.raises(RecordError):
        decode(content)


def test_a_file_too_large_is_refused_unread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "MAX_FILE", 10)
    with pytest.raises(RecordError, match="at most 10"):
        decode(b" " * 11)
    (tmp_path / "x").write_bytes(b"0123")
    with pytest.raises(RecordError, match="more than 3 bytes"):
        files.read_capped(tmp_path / "x", 3)
    with pytest.raises(RecordError, match="no such file"):
        files.read_capped(tmp_path)


def test_the_schema_names_every_field() -> None:
    text = json.dumps(record.schema())
    assert all(f'"{item.name}"' in text for item in (*fields(Verdict), *fields(Measure), *fields(Worst)))
    assert {"exit_code", "exit_reasons"} <= {item.name for item in fields(Run)}


def test_the_digest_does_not_depend_on_order() -> None:
    cells = [verdict(name).cell for name in ("FWD", "VJP", "JVP")]
    assert record.plan_digest(cells) == record.plan_digest(cells[::-1])
    assert record.plan_digest(cells) != record.plan_digest(cells[:2])


def test_an_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "run.json"
    files.write_atomically(target, b"old")

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        files.write_atomically(target, b"new")
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_clean_takes_what_could_mislead() -> None:
    assert clean("a\x1b[31mb\x1b]0;title\x07c\x00\u202ed\te\r\nf\ud800") == "abcd\te\nf"
    assert clean("σ∘≥½✕") == "σ∘≥½✕"


def test_a_failure_is_told_on_its_scale_and_not_in_ulps_of_nearly_nothing() -> None:
    worst = Worst("out", "vjp", "0x1p-53", "0", math.nan, math.inf, 1e-16, 0.9)
    measure = Measure(max_ulp=2.0, scaled_max=0.3).reaching(worst)
    assert (measure.max_ulp, measure.max_ratio, measure.scaled_max) == (2.0, math.inf, 0.9)
    assert Measure().reaching(worst).scaled_max == 0.9
    assert math.isnan(Measure().reaching(replace(worst, roundoffs=None)).scaled_max)


def _contradicting(**changes: Any) -> bytes:
    item = verdict()
    measure = {name: changes.pop(name) for name in list(changes) if hasattr(item.measure, name)}
    return encode(make_run(replace(item, measure=replace(item.measure, **measure), **changes)))


_BROKEN = Failure(Code.VALUE, "worse than its bound", "line")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_ratio": 1.6e12}, "is verified with max_ratio=1.6e\\+12, need at most 1"),
        ({"max_ratio": math.inf}, "is verified with max_ratio=inf"),
        (
            {"max_ratio": 1 + 2**-52, "outcome": Outcome.WEAK, "code": Code.FEW_SAMPLES},
            "is weak with max_ratio=1, need",
        ),
        ({"judged": 0}, "is verified with judged=0 and samples=8"),
        ({"samples": 0}, "is verified with judged=100 and samples=0"),
        ({"code": Code.VALUE}, "is verified with code OA101"),
        ({"failure": _BROKEN}, "is verified with a failure"),
        ({"others": (_BROKEN,)}, "is verified with a failure"),
        ({"outcome": Outcome.FAIL, "code": Code.VALUE}, "is fail without a failure"),
        ({"outcome": Outcome.UNSTABLE}, "is unstable with code OA100"),
        ({"regimes": (("normal", 101, 0),)}, "regime normal of 101 and 0 elements"),
        ({"regimes": (("normal", 1, 4),)}, "regime normal of 1 and 4 elements"),
        ({"worst": Worst("out[0]", "vjp", "0x0p+0", "0", 0.0, 0.75)}, "worst element of ratio=0.75"),
        ({"bins": ("magnitude 0 4 0x1.0000p-1 0x1.8000p+0",)}, "need a ratio of at most 1"),
    ],
)
def test_a_verdict_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message) as error:
        decode(_contradicting(**changes))
    assert verdict().cell.key in str(error.value)


def test_a_verdict_at_the_edge_of_what_is_consistent_is_read() -> None:
    worst = Worst("out[0]", "vjp", "0x0p+0", "0", 0.0, 1.0)
    edge = {
        "max_ratio": 1.0,
        "worst": worst,
        "regimes": (("a", 100, 3), ("b", 100, 0)),
        "bins": ("length 0 1 0x1p+9 0x1p+0",),
    }
    assert decode(_contradicting(**edge)).verdicts[0].measure.max_ratio == 1.0
    nothing = {
        "outcome": Outcome.WEAK,
        "code": Code.FEW_SAMPLES,
        "judged": 0,
        "samples": 0,
        "max_ratio": 0.0,
        "worst": None,
    }
    assert decode(_contradicting(**nothing)).verdicts[0].outcome is Outcome.WEAK
    broken = {"outcome": Outcome.FAIL, "code": Code.VALUE, "failure": _BROKEN, "max_ratio": math.inf, "judged": 0}
    assert decode(_contradicting(**broken)).verdicts[0].outcome is Outcome.FAIL
