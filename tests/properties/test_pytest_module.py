"""`opassay.pytest` in a user's own session: a card for each failure, ids that paste, skips with their reason."""

from __future__ import annotations

import logging
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.outcomes import Skipped

import opassay
import opassay.impl
from opassay import Cell, Code, Outcome, Verdict
from opassay.pytest import assert_verified, questions

THEIRS = """
import opassay, pytest, torch
from opassay.pytest import assert_conforms, assert_verified, questions

pytest_plugins = ("opassay.pytest",)


def double(x):
    return x + x


def wrong(x):
    return torch.cat([double(x)[:64], x[64:]])


RIGHT, WRONG = (opassay.custom_kernel(k, double, {"x": ("n",)}) for k in (double, wrong))
FEW = opassay.Settings("brief", max_examples=12, simpler=False)


@pytest.mark.parametrize("question", questions(WRONG, ("FWD", "JVP")))
def test_wrong(question):
    assert_verified(WRONG, question, settings=FEW)


def test_right(opassay_settings):
    assert opassay_settings.profile == "brief"
    assert_verified(RIGHT, properties=("FWD", "VJP"), settings=FEW)


def test_one_output():
    x = torch.ones(3)
    assert_conforms(x + x, double, x)
"""


@pytest.mark.slow
def test_failures_are_cards_in_a_users_session(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIRS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-v", "-rs", "-p", "no:cacheprovider", "test_theirs.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 2 passed, 1 skipped" in done.stdout
    assert "test_theirs.py::test_wrong[FWD-float32] FAILED" in done.stdout
    assert "wrong offers no jvp" in done.stdout
    report = done.stdout.partition("= FAILURES =")[2].partition("= warnings summary")[0].partition("= short test")[0]
    assert "AssertionError: 1 of 1 questions failed: FWD-float32" in report
    assert "wrong::FWD[float32-cpu-opassay]: fail, OA101" in report
    assert "element    out[" in report
    assert "api/pytest.py" not in report
    assert "replay" not in report
    assert len(report.splitlines()) < 30


def test_what_is_not_verified_is_no_pass() -> None:
    cell = Cell("k", "FWD", "float32", "cpu", "opassay")
    weak = Verdict(cell, Outcome.WEAK, Code.FEW_SAMPLES, "no sample could be drawn")
    with pytest.raises(Skipped, match=r"FWD is weak: no sample could be drawn; settings=\"commit\" asks"):
        assert_verified(weak)
    with pytest.raises(AssertionError, match="none of 0 questions"):
        assert_verified([])
    verdict = Verdict(cell, Outcome.VERIFIED, Code.HELD, "held")
    assert assert_verified([verdict, weak]) == [verdict, weak]
    assert not opassay.ok([verdict, Verdict(cell, Outcome.ERROR, Code.HARNESS, "broke")])
    assert [p.id for p in questions(opassay.load_op("trace"), ("FWD", "VJP"))] == ["FWD-float32", "VJP-float32"]


def test_what_is_no_question_is_no_pass() -> None:
    verdict, unknown = (Cell("op", code, "float32", "cpu", "opassay") for code in ("FWD", "VJPP"))
    verdicts = [
        Verdict(verdict, Outcome.VERIFIED, Code.HELD, "held"),
        Verdict(unknown, Outcome.UNSUPPORTED, Code.NOT_BUILT, "no check is built for VJPP"),
    ]
    assert opassay.ok(verdicts[0])
    assert not opassay.ok(verdicts)
    for judged in (verdicts, verdicts[1:]):
        with pytest.raises(AssertionError, match=f"1 of {len(judged)} questions failed: VJPP-float32"):
            assert_verified(judged)


def test_an_op_is_verified_by_its_name() -> None:
    few = opassay.Settings("brief", max_examples=2)
    (result,) = assert_verified("trace", properties=("FWD",), settings=few)
    assert result.cell.key == "trace::FWD[float32-cpu-opassay]"
    with pytest.raises(ValueError, match="did you mean 'trace'"):
        assert_verified("trase")


def test_public_names_alone_are_listed_and_others_can_be_had() -> None:
    framework = {name for name in dir(opassay) if name != "__version__"}
    assert {"impl", "judge", "verify", "Verdict", "pytest", "strategies"} <= framework
    assert not [name for name in framework if name.startswith("_")]
    assert not framework & {"Any", "importlib", "annotations", "TYPE_CHECKING", "oracles", "properties", "reference"}
    assert all(hasattr(opassay, name) for name in framework)
    ops = set(dir(opassay.impl))
    assert {"layer_norm", "Function", "comm", "decompositions", "LayerNorm"} <= ops
    assert not ops & {"norms", "operator", "gpu", "losses", "types", "hooks", "function"}
    assert opassay.impl.norms.layer_norm.layer_norm is opassay.impl.layer_norm


def test_torch_s_log_of_its_compilers_is_silent_while_an_op_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    log, silent = logging.getLogger("torch.__trace"), []
    verdict = Verdict(Cell("trace", "FWD", "float32", "cpu", "opassay"), Outcome.VERIFIED, Code.HELD, "held")

    def judge(*_args: object, **_named: object) -> list[Verdict]:
        silent.append(log.disabled)
        return [verdict]

    monkeypatch.setattr("opassay.pytest.judge_kernel", judge)
    before = log.disabled
    assert assert_verified("trace") == [verdict]
    assert silent == [True]
    assert log.disabled == before
