"""`opassay certificate`: what it says, that it says the same each time, and that what no longer holds is told."""

from __future__ import annotations

import copy
import importlib
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.certificates.facts import facts
from opassay.properties.certificates.source_files import elementary_functions, files_of_formula, files_of_subject
from opassay.properties.engine.environment import digest_sources
from opassay.reports import record
from opassay.reports.certificate.page import certificate_page
from opassay.reports.certificate.statement import CertificateError, as_json, broken_by, from_json, statement
from opassay.reports.cli import certificate as gathering
from opassay.reports.cli.main import main
from opassay.reports.record import Run
from tests.reports.conftest import failed, make_run, verdict

ALLOWED = {"accumulate": "float32", "ulps": {"exp": 1.0}, "roundings": 1.0, "algorithms": [], "flush": False}
FACTS: dict[str, Any] = {
    "sources": {"op": {"a/op.py": "1" * 64}, "formula": {"a/f.py": "2" * 64}, "declaration": {"a/d.py": "3" * 64}},
    "functions": ["exp"],
    "contract": {"float32": ALLOWED},
    "properties": {"FWD": "forward values", "VJP": "reverse mode"},
    "environment": {"torch": "2.13.0", "platform": "Linux 6 x86_64", "source": "s"},
}


def _make_certificate(run: Run | None = None) -> dict[str, Any]:
    run = run or make_run(verdict(), verdict("ORD2", Outcome.NOT_RUN))
    known = {**FACTS, "environment": {**FACTS["environment"], "opassay": run.version}}
    return statement(run, "d" * 64, run.verdicts, known, {})


def _now(**changes: Any) -> dict[str, Any]:
    result = copy.deepcopy(FACTS)
    result["environment"]["opassay"] = "0.1.0"
    return {**result, **changes}


def test_it_is_an_in_toto_statement() -> None:
    """The fields of https://github.com/in-toto/attestation/blob/main/spec/v1/statement.md, and no others."""
    document = json.loads(as_json(_make_certificate()))
    assert set(document) == {"_type", "subject", "predicateType", "predicate"}
    assert document["_type"] == "https://in-toto.io/Statement/v1"
    assert re.fullmatch(r"[a-z][a-z0-9+.-]*:\S+", document["predicateType"]), "a URI"
    assert isinstance(document["predicate"], dict)
    assert document["subject"]
    for descriptor in document["subject"]:
        assert set(descriptor) == {"name", "digest"}
        assert re.fullmatch("[0-9a-f]{64}", descriptor["digest"]["sha256"])
    assert [descriptor["name"] for descriptor in document["subject"]] == ["softmax (opassay)", "a/op.py"]
    assert len({descriptor["digest"]["sha256"] for descriptor in document["subject"]}) == 2


def test_the_same_record_gives_the_same_bytes() -> None:
    one, other = verdict(), failed()
    assert as_json(_make_certificate(make_run(one, other))) == as_json(_make_certificate(make_run(one, other)))
    assert from_json(as_json(_make_certificate())) == json.loads(json.dumps(_make_certificate()))


def test_what_was_found_is_told() -> None:
    predicate = _make_certificate(make_run(verdict(), failed()))["predicate"]
    assert predicate["asked"]["properties"] == {"FWD": "forward values", "VJP": "reverse mode"}
    assert (predicate["judged"]["elements"], predicate["asked"]["samples"]) == (200, 16)
    assert predicate["judged"]["largest_error"]["error_over_bound"] == 3.9
    assert predicate["judged"]["detectability"]["float32"]["widest_ulp"] == "inf", "JSON has no infinities"
    assert predicate["outcomes"] == {"verified": 1, "fail": 1}
    assert _make_certificate()["predicate"]["asked"]["not_asked"] == ["VJP"]


def test_a_page_tells_what_is_not_asked() -> None:
    page = certificate_page(_make_certificate())
    assert "Not asked: VJP." in page
    assert "| FWD | forward values | verified 0.5 |" in page
    assert "The record does not say that these are what was judged." in page


def test_a_record_of_another_source_is_refused() -> None:
    run = make_run(verdict())
    with pytest.raises(CertificateError, match="another source"):
        _make_certificate(replace(run, environment={**run.environment, "source": "t"}))
    assert _make_certificate(replace(run, environment={**run.environment, "source": "s"}))["predicate"]["record"][
        "source_known"
    ]


# ------------------------------------------------------------------------------------------------ what no longer holds


def test_nothing_is_held_against_a_certificate_that_holds() -> None:
    certificate = _make_certificate()["predicate"]
    assert broken_by(certificate, _now(), None) == []
    assert broken_by(certificate, _now(), [verdict(ratio=0.7)]) == [], (
        "another error below the bound is no other outcome"
    )


def _with(path: str, value: Any) -> Callable[[], dict[str, Any]]:
    """Facts with one value changed; None takes it out."""

    def changed() -> dict[str, Any]:
        result = _now()
        *names, last = path.split("|")
        at = result
        for name in names:
            at = at[name]
        at[last] = value
        if value is None:
            del at[last]
        return result

    return changed


@pytest.mark.parametrize(
    ("now", "message"),
    [
        (_with("sources|op|a/op.py", "4" * 64), f"source of op a/op.py: was {'1' * 64}, and is {'4' * 64}"),
        (_with("sources|formula|a/f.py", "4" * 64), f"source of formula a/f.py: was {'2' * 64}, and is {'4' * 64}"),
        (_with("sources|declaration|a/d.py", None), f"source of declaration a/d.py: was {'3' * 64}, and is not there"),
        (_with("sources|op|a/new.py", "4" * 64), f"source of op a/new.py: was not there, and is {'4' * 64}"),
        (_with("environment|torch", "2.14.0"), "version torch: was 2.13.0, and is 2.14.0"),
        (_with("environment|torch", None), "version torch: was 2.13.0, and is not there"),
        (_with("properties|BITS", "equal bits"), "property BITS: was not there, and is equal bits"),
        (_with("properties|FWD", "values"), "property FWD: was forward values, and is values"),
        (_with("contract|float32|ulps", {"exp": 2.0}), "contract in float32 ulps exp: was 1.0, and is 2.0"),
    ],
)
def test_what_has_changed_is_told(now: Callable[[], dict[str, Any]], message: str) -> None:
    (line,) = broken_by(_make_certificate()["predicate"], now(), None)
    assert line.startswith(message)


def test_another_outcome_of_a_newer_record_is_told() -> None:
    (line,) = broken_by(_make_certificate()["predicate"], _now(), [failed("FWD"), failed("VJP")])
    assert line.startswith("outcome: softmax::FWD[float32-cpu-opassay] was verified, and is fail")
    assert broken_by(_make_certificate()["predicate"], None, None) == ["there is no such op any more"]


# -------------------------------------------------------------------------------------------------------- the command


def _facts_here(self: gathering.Facts, op: str, subject: str, device: str) -> dict[str, Any]:
    return facts({"op": op, "subject": subject, "device": device})


def test_a_certificate_of_a_real_op_holds_until_something_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # In a process of its own the facts are the same; it takes seconds to import torch there.
    monkeypatch.setattr(gathering.Facts, "of", _facts_here)
    monkeypatch.chdir(tmp_path)
    environment = _facts_here(gathering.Facts([]), "softmax", "opassay", "cpu")["environment"]
    assert environment["source"] == digest_sources()
    run = replace(make_run(verdict(), failed()), environment=environment, version=environment["opassay"])
    record.save(tmp_path / "opassay-report/run.json", run)
    Path("second-opinion.json").write_text('{"ops": {"softmax": {"samples": 10000, "largest": 0.25}}}')
    assert main(["certificate", "--op", "softmax", "--evidence", "second-opinion.json"]) == 0
    path = tmp_path / "certificates/softmax.json"
    certificate = from_json(path.read_bytes())
    assert certificate["predicate"]["functions"] == ["exp"]
    assert certificate["predicate"]["sources"]["op"]["opassay/impl/softmax/public.py"]
    assert certificate["predicate"]["evidence"]["second-opinion"]["samples"] == 10000
    assert "opinion: largest 0.25, samples 10000" in path.with_suffix(".md").read_text()
    assert main(["certificate", "--check", str(path), "--record", "opassay-report/run.json"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"{path}: holds"
    forged = copy.deepcopy(certificate)
    forged["predicate"]["judged"]["elements"] = 10**9
    forged["predicate"]["cells"][1]["outcome"] = "verified"
    forged["predicate"]["outcomes"] = {"verified": 2}
    path.write_bytes(as_json(forged))
    assert main(["certificate", "--check", str(path), "--record", "opassay-report/run.json"]) == 1
    out = capsys.readouterr().out
    assert "predicate.judged: the record that it was made of gives something else" in out
    certificate["predicate"]["versions"]["torch"] = "1.0"
    certificate["predicate"]["sources"]["op"]["opassay/impl/softmax/public.py"] = "0" * 64
    path.write_bytes(as_json(certificate))
    assert main(["certificate", "--check", str(path)]) == 1
    out = capsys.readouterr().out
    assert "2 of what it says no longer hold" in out
    assert f"source of op opassay/impl/softmax/public.py: was {'0' * 64}, and is" in out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--check"], 2, "need FILES with it"),
        (["some.json"], 2, "need FILES with it, and none without"),
        (["--check", "gone.json"], 2, "no such file"),
        (["--check", "other.json"], 2, "other.json: is no certificate"),
        (["--record", "gone.json"], 2, "no such file"),
        (["--record", "run.json", "--evidence", "run.json"], 2, "run.json: is no file of results by op"),
        (["--record", "run.json", "--op", "trace"], 2, "op: got 'trace', and the record has softmax"),
        (["--record", "run.json", "--subject", "torch"], 5, "no cell of these ops and subjects"),
    ],
)
def test_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], code: int,
    message: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    record.save(tmp_path / "run.json", make_run(verdict()))
    (tmp_path / "other.json").write_text('{"_type": "https://in-toto.io/Statement/v1", "predicateType": "other"}')
    assert main(["certificate", *words]) == code
    assert message in capsys.readouterr().err


# -------------------------------------------------------------------------------------------------- files of an op


def test_the_files_of_somebody_elses_op_and_the_functions_of_its_formula(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helper_of_mine.py").write_text(
        "import numpy as np\n\n\ndef slow(x):\n    return np.log1p(x) + x**0.5\n"
    )
    text = (
        "import numpy as np\nfrom helper_of_mine import slow\n\n\ndef formula(x):\n    return np.exp(slow(x)) + x**2\n"
    )
    (tmp_path / "formula_of_mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    module = importlib.import_module("formula_of_mine")
    try:
        assert elementary_functions(module.formula, ("exp", "log1p", "power", "tanh")) == ["exp", "log1p", "power"]
        before = files_of_formula(module.formula)
        assert list(before) == ["formula_of_mine.py", "helper_of_mine.py"]
        (tmp_path / "helper_of_mine.py").write_text("slow = abs\n")
        assert files_of_subject(module.formula, ships=True)["helper_of_mine.py"] != before["helper_of_mine.py"]
        assert elementary_functions(lambda x: x**2, ("power",)) == []
    finally:
        for name in ("formula_of_mine", "helper_of_mine"):
            sys.modules.pop(name, None)


def test_what_is_built_into_torch_has_no_files() -> None:
    import torch

    assert files_of_subject(torch.ops.aten.trace.default, ships=False) == {}
