"""A change of the process's state is held against PURE, wherever it was seen."""

from __future__ import annotations

from opassay.oracles.verdicts.verdict import Cell, Code, Outcome, Verdict, charged, failure_text

LINE = "default dtype: torch.float32 -> torch.float64"


def verdict(code: str, outcome: Outcome = Outcome.VERIFIED, *changed: str, op: str = "f", dtype: str = "float32",
            subject: str = "torch", device: str = "cpu") -> Verdict:  # fmt: skip
    return Verdict(Cell(op, code, dtype, device, subject), outcome, Code.HELD, "as asked", changed=changed)


def failed(verdicts: list[Verdict]) -> list[int]:
    return [i for i, v in enumerate(charged(verdicts)) if v.code is Code.MUTATED]


def test_nothing_changed_changes_nothing() -> None:
    verdicts = [verdict("FWD"), verdict("PURE")]
    assert charged(verdicts) == verdicts


def test_pure_of_the_same_dtype_answers() -> None:
    verdicts = [verdict("PURE", dtype="float64"), verdict("PURE"), verdict("FWD", Outcome.FAIL, LINE)]
    assert failed(verdicts) == [1]
    result = charged(verdicts)
    assert (result[1].outcome, result[2]) == (Outcome.FAIL, verdicts[2])
    assert result[1].reason == f"f: changed the process: {LINE}, seen in FWD[float32]"
    assert LINE in failure_text(result[1])
    assert charged(result) == result


def test_else_the_first_pure_that_passed() -> None:
    verdicts = [
        verdict("PURE", Outcome.UNSUPPORTED),
        verdict("PURE", Outcome.NOT_RUN, dtype="float16"),
        verdict("PURE", Outcome.WEAK, dtype="bfloat16"),
        verdict("FWD", Outcome.VERIFIED, LINE, "another"),
    ]
    assert failed(verdicts) == [2]
    assert "and 1 more" in charged(verdicts)[2].reason


def test_else_the_cell_that_saw_it() -> None:
    verdicts = [verdict("VJP"), verdict("FWD", Outcome.VERIFIED, LINE)]
    assert failed(verdicts) == [1]
    assert "seen in" not in charged(verdicts)[1].reason


def test_an_op_answers_for_itself_alone() -> None:
    others = [verdict("PURE", op="g"), verdict("PURE", subject="opassay"), verdict("PURE", device="cuda")]
    assert failed([*others, verdict("PURE"), verdict("FWD", Outcome.VERIFIED, LINE)]) == [3]


def test_what_has_failed_stays_as_it_is() -> None:
    for outcome in (Outcome.FAIL,):
        verdicts = [verdict("PURE", outcome), verdict("FWD", Outcome.VERIFIED, LINE)]
        assert charged(verdicts) == verdicts
    assert failed([verdict("PURE", Outcome.UNSTABLE), verdict("FWD", Outcome.VERIFIED, LINE)]) == [0]


def test_one_failure_answers_for_all_cells() -> None:
    verdicts = [verdict(code, Outcome.VERIFIED, LINE) for code in ("FWD", "VJP")]
    assert failed([*verdicts, verdict("PURE"), verdict("PURE", dtype="float64")]) == [2]
