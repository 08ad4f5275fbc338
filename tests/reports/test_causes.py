"""Failures of one cause are one line, told by how severe it is; a page about it says what a maintainer needs."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.verdicts.verdict import Cell, Code, Failure, Outcome, Signs, Verdict
from opassay.reports import exit_codes, record
from opassay.reports.baseline import update
from opassay.reports.causes.grouping import causes_of, path_shape
from opassay.reports.causes.page import page
from opassay.reports.causes.severity import Severity
from opassay.reports.cli.main import main
from opassay.reports.collect import worse
from opassay.reports.exporting import to_xml
from opassay.reports.gate import Files, accept, find_regressions
from opassay.reports.page.html import render
from tests.reports.conftest import HOSTILE, make_run, verdict


def verdict_of(
    name: str = "VJP",
    dtype: str = "float32",
    code: Code = Code.VALUE,
    op: str = "softmax",
    case: str = '{"args": [{"dtype": "float32", "shape": [1], "bits": "0000803f"}, {"int": 3}]}',
    others: tuple[Failure, ...] = (),
    **signs: object,
) -> Verdict:
    """A verdict that failed, with the signs of its failure."""
    cell = Cell(op, name, dtype, "cpu", "torch")
    result = Signs(**{"path": "vjp (func)", "output": "d_input", "samples": 3, "share": 0.5, **signs})  # type: ignore[arg-type]
    failure = Failure(code, f"{op} vjp (func): d_input wrong", "line 1\nline 2", f"{cell.id}-0001", case, "", result)
    return Verdict(cell, Outcome.FAIL, code, "wrong", verdict().measure, failure, title="reverse mode", others=others)


def test_one_fault_is_one_cause_in_every_property_and_dtype() -> None:
    wrong = [verdict_of(name, dtype) for name in ("VJP", "LAYOUT") for dtype in ("float64", "float32", "bfloat16")]
    causes = causes_of([*wrong, verdict_of("ADJ", code=Code.ADJOINT, output="", path="adjoint")])
    assert [(cause.path, len(cause.cells), cause.samples) for cause in causes] == [("vjp", 7, 21)]
    assert causes[0].severity is Severity.WRONG


def test_the_op_of_torch_that_does_the_work_tells_causes_apart() -> None:
    same = [verdict_of(op=op, kernel="native_layer_norm") for op in ("layer_norm", "native_layer_norm")]
    assert len(causes_of(same)) == 1
    assert len(causes_of([verdict_of(op="layer_norm"), verdict_of(op="softmax")])) == 2
    assert len(causes_of([verdict_of(), verdict_of(path="forward", output="out")])) == 2
    assert len(causes_of([verdict_of(), verdict_of(code=Code.SPECIAL, output="d_weight")])) == 2
    # A NaN where values are wrong, too, is one of the wrong values.
    assert len(causes_of([verdict_of(), verdict_of(code=Code.SPECIAL)])) == 1


def test_an_error_is_one_cause_whatever_op_and_dtype_lead_to_it() -> None:
    texts = ["RuntimeError: expected scalar type Half but found Float", "RuntimeError: expected Double but found Float"]
    causes = causes_of(
        [
            verdict_of(code=Code.RAISED, error=texts[0], op="layer_norm"),
            verdict_of(code=Code.RAISED, error=texts[0].replace("Half", "BFloat16"), op="trace", dtype="bfloat16"),
            verdict_of(code=Code.RAISED, error=texts[1]),
        ]
    )
    assert sorted(len(cause.cells) for cause in causes) == [1, 2]
    assert {cause.severity for cause in causes} == {Severity.RAISES}


def test_names_shapes_and_lines_in_an_error_tell_no_causes_apart() -> None:
    def raised(text: str, op: str) -> Verdict:
        return verdict_of(code=Code.RAISED, error=f"RuntimeError: {text}", op=op)

    causes = causes_of(
        [
            raised("got None for argument 'self'", "a"), raised("got None for argument 'other'", "b"),
            raised("size [#, #]", "c"), raised("size [#, #, #]", "d"),
            raised('!mean INTERNAL ASSERT FAILED at "x/Rules.cpp":#', "e"),
            raised('!rstd INTERNAL ASSERT FAILED at "x/Rules.cpp":#', "f"),
        ]
    )  # fmt: skip
    assert [len(cause.cells) for cause in causes] == [2, 2, 2]


def test_half_types_alone_and_further_failures_of_a_cell_are_causes_of_their_own() -> None:
    other = Failure(Code.RAISED, "softmax: raised", "m", signs=Signs(error="ValueError: x", samples=2))
    causes = causes_of(
        [verdict_of(dtype="bfloat16", share=0.01), verdict_of("FWD", path="forward", output="out", others=(other,))]
    )
    assert {cause.path for cause in causes} == {"derivatives", "forward", "raises"}
    # Derivatives whose formula rounds at every step are one cause in all ops.
    several = [verdict_of(dtype="bfloat16", share=0.01, op=op) for op in ("softmax", "trace")]
    assert [cause.where for cause in causes_of(several)] == ["softmax and 1 more"]


def test_failures_without_elements_and_negligible_ones_are_one_cause_of_a_kernel_and_of_all() -> None:
    empty = [
        verdict_of("EMPTY", dtype, path=path) for dtype in ("float32", "float16") for path in ("forward", "vjp (func)")
    ]
    assert [(cause.path, len(cause.occurrences)) for cause in causes_of(empty)] == [("without elements", 4)]
    # The errors are less than one rounding of the largest number of a float32 tensor.
    small = [verdict_of("JVP", op=op, path=path, share=1e-9) for op, path in (("a", "jvp (func)"), ("b", "vjp (func)"))]
    assert [(cause.severity, len(cause.occurrences)) for cause in causes_of(small)] == [(Severity.NEGLIGIBLE, 2)]


def test_the_format_that_an_output_was_judged_in_counts_and_not_the_cell_s() -> None:
    item = verdict_of("FWD", path="forward", output="out", share=1e-3)
    assert item.failure is not None
    wide, narrow = (replace(item.failure, message=f"out wrong\n  format    {name}, accumulating in float32") for name in
                    ("float32", "bfloat16"))  # fmt: skip
    severities = [causes_of([replace(item, failure=failure)])[0].severity for failure in (wide, narrow)]
    assert severities == [Severity.INACCURATE, Severity.NEGLIGIBLE]
    half = verdict_of("FWD", "bfloat16", path="forward", output="out", share=1e-3)
    assert [len(causes_of([replace(item, failure=failure), half])) for failure in (wide, narrow)] == [1, 1]
    other = replace(half, cell=replace(half.cell, op="other"))
    assert [len(causes_of([replace(item, failure=failure), other])) for failure in (wide, narrow)] == [2, 1]


def test_slices_of_an_output_are_that_output() -> None:
    wrong = verdict_of("VMAP", path="slices of vmap", output="slices of out")
    assert len(causes_of([wrong, verdict_of("LAYOUT", code=Code.SPECIAL, path="forward", output="out")])) == 1


def test_what_overflows_a_half_type_is_where_that_loses_digits() -> None:
    digits = verdict_of("FWD", "float16", path="forward", output="out", share=1e-3)
    overflow = verdict_of("LAYOUT", "float16", code=Code.SPECIAL, path="forward", output="out", share=math.inf)
    assert len(causes_of([digits, overflow])) == 1
    assert len(causes_of([digits, replace(overflow, cell=replace(overflow.cell, op="other"))])) == 2


def _second(samples: int = 3, share: float = 0.5, output: str = "t_t_out[1]", op: str = "norm") -> Verdict:
    item = verdict_of("ORD2", op=op, path="jvp∘jvp (func)", output="t_t_out", samples=samples, share=share)
    assert item.failure is not None
    return replace(item, failure=replace(item.failure, title=f"norm: {output} outside its accept set, 9x bound"))


def _first(samples: int = 3, share: float = 0.5) -> Verdict:
    item = verdict_of("JVP", op="norm", path="jvp (func)", output="t_out", samples=samples, share=share)
    assert item.failure is not None
    return replace(item, failure=replace(item.failure, title="norm: t_out[1] outside its accept set, 9x bound"))


@pytest.mark.parametrize(
    ("second", "first", "causes"),
    [
        (_second(), _first(), 1),
        # Another output, another op, a graver failure, and a more frequent one have causes of their own.
        (_second(output="t_t_out[0]"), _first(), 2),
        (_second(op="other"), _first(), 2),
        (_second(), _first(share=1e-3), 2),
        (_second(samples=4), _first(), 2),
    ],
)  # fmt: skip
def test_a_derivative_of_what_is_wrong_is_no_cause_of_its_own(second: Verdict, first: Verdict, causes: int) -> None:
    assert len(causes_of([second, first])) == causes


def test_outputs_behind_one_that_is_wrong_were_not_looked_at() -> None:
    first = _first()
    assert first.failure is not None
    before = replace(first, failure=replace(first.failure, title="norm jvp (func): t_out[0] outside its accept set"))
    assert len(causes_of([_second(), before])) == 1
    assert len(causes_of([_second(output="t_t_out[0]"), first])) == 2


def test_a_broken_law_is_the_wrong_kernel_of_whichever_op() -> None:
    law = verdict_of(
        "LAW", "float16", path="law: a row less", output="out", op="cross_entropy", kernel="nll", share=0.3
    )
    other = verdict_of("FWD", "float16", path="forward", output="out", op="nll_loss", kernel="nll", share=0.3)
    assert len(causes_of([law, other])) == 1
    assert len(causes_of([law, verdict_of("FWD", "float16", path="forward", output="out", op="softmax")])) == 2


@pytest.mark.parametrize(
    ("signs", "causes"),
    [
        ({}, 1),
        # An op that is not called, one that is less wrong, and another output have nothing to do with it.
        ({"kernel": "other"}, 2),
        ({"share": 1e-3}, 2),
        ({"output": "d_weight"}, 2),
    ],
)  # fmt: skip
def test_a_derivative_of_the_second_order_is_one_of_the_op_that_the_first_calls(
    signs: dict[str, Any], causes: int
) -> None:
    calls = ("log_sigmoid_forward", "log_sigmoid_backward")
    second = verdict_of("ORD2", op="log_sigmoid", path="vjp∘vjp (func)", kernel=calls[0], calls=calls)
    first = verdict_of("VJP", op="log_sigmoid_backward", path="vjp (func)", **{"kernel": calls[1], **signs})
    assert len(causes_of([second, first])) == causes
    third = verdict_of("ORD3", op="log_sigmoid", path="vjp∘jvp∘vjp (func)", kernel=calls[0], calls=calls)
    assert len(causes_of([third, first])) == 2
    third = verdict_of("ORD3", op="log_sigmoid", path="jvp∘vjp∘vjp (func)", kernel=calls[0], calls=calls)
    assert len(causes_of([third, first])) == causes


def test_an_op_that_is_made_of_a_wrong_one_is_no_cause_of_its_own() -> None:
    kernel = verdict_of("JVP", op="nll_loss", path="jvp (func)", output="t_out", kernel="nll_loss_forward")
    for dtype in ("float32", "float16"):
        verdicts = verdict_of("JVP", dtype, op="cross_entropy", path="jvp (func)", output="t_out")
        assert len(causes_of([verdicts, kernel])) == 2
        assert verdicts.failure is not None
        signs = replace(verdicts.failure.signs, calls=("_log_softmax", "nll_loss_forward"))
        assert len(causes_of([replace(verdicts, failure=replace(verdicts.failure, signs=signs)), kernel])) == 1
        # What one op does all the work of has its own cause.
        alone = replace(signs, kernel="_log_softmax")
        assert len(causes_of([replace(verdicts, failure=replace(verdicts.failure, signs=alone)), kernel])) == 2


def test_a_half_type_that_is_wrong_is_where_the_op_loses_digits() -> None:
    few = verdict_of("FWD", "bfloat16", path="forward", output="out", share=0.005)
    many = verdict_of("WAYS", "bfloat16", path="forward", output="out", share=0.3)
    assert len(causes_of([few, many])) == 1
    assert (
        len(causes_of([few, verdict_of("WAYS", "bfloat16", path="forward", output="out", share=0.3, op="norm")])) == 2
    )


def test_a_wrong_number_of_outputs_is_one_cause_also_where_vmap_complains_of_it() -> None:
    items = []
    for path in ("jvp (func)", "jvp (eager) with a special value"):
        item = verdict_of("JVP", code=Code.ATTRIBUTE, path=path, op=f"op {path}")
        assert item.failure is not None
        items.append(replace(item, failure=replace(item.failure, title=f"op {path}: got 3 outputs, need 2")))
    message = "ValueError: vmap(f): out_dims is not compatible with the structure of `outputs`. out_dims has structure"
    assert len(causes_of([*items, verdict_of("VMAP", code=Code.RAISED, error=message)])) == 1


def test_a_crash_is_the_gravest_cause() -> None:
    def crash(op: str, how: str, snippet: str = "") -> Verdict:
        cell = Cell(op, "EMPTY", "float32", "cpu", "torch")
        failure = Failure(Code.CRASHED, how, "stacks", f"{cell.id}-1", "{}", snippet, Signs(error=how))
        return Verdict(cell, Outcome.CRASH, Code.CRASHED, how, failure=failure)

    program = "import torch\n"
    causes = causes_of(
        [verdict_of(), crash("a", "killed by SIGFPE"), crash("b", "killed by SIGFPE", program), crash("c", "x")]
    )
    assert [(cause.severity, len(cause.cells)) for cause in causes[:2]] == [(Severity.CRASH, 2), (Severity.CRASH, 1)]
    assert causes[0].example.failure.snippet == program
    assert "killed by SIGFPE" in causes[0].title


def test_the_gravest_comes_first_and_facts_are_those_of_all() -> None:
    small = verdict_of("FWD", path="forward", output="out", share=1e-12, common=("weight=None", "row > 1"))
    again = verdict_of("SIZE", path="forward", output="out", share=1e-13, common=("weight=None",))
    first, second = causes_of([small, again, verdict_of()])
    assert (first.severity, second.severity) == (Severity.WRONG, Severity.NEGLIGIBLE)
    assert second.common == ["weight=None"]
    assert "with weight=None" in second.line
    assert "2 cells, 6 samples" in second.line
    # A cell where several samples failed and had nothing in common has seen the fault without those facts.
    (both,) = causes_of([small, verdict_of("SIZE", path="forward", output="out", share=1e-13, samples=2)])
    assert both.common == []
    (both,) = causes_of([small, verdict_of("SIZE", path="forward", output="out", share=1e-13, samples=1)])
    assert both.common == ["row > 1", "weight=None"]
    assert causes_of([verdict()]) == []


def test_a_page_tells_which_ops_were_called() -> None:
    (cause,) = causes_of([verdict_of(calls=("_log_softmax", "nll_loss_forward"))])
    assert "- calls: `_log_softmax`, `nll_loss_forward`\n" in page(cause, make_run(verdict_of()))
    (cause,) = causes_of([verdict_of()])
    assert "- calls:" not in page(cause, make_run(verdict_of()))


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        ("vjp (laid out)", "vjp"), ("vmap∘jvp∘jvp (func)", "higher derivatives"), ("compiled, jvp", "jvp"),
        ("primal of func.vjp", "forward"), ("slice of vmap over slices", "forward"),
    ],
)  # fmt: skip
def test_the_shape_of_a_path(path: str, shape: str) -> None:
    assert path_shape(path) == shape


def test_findings_writes_a_page_per_cause(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = "import sys\nsys.exit(1)\n"
    item = verdict_of()
    assert item.failure is not None
    item = replace(item, failure=replace(item.failure, snippet=program))
    record.save(tmp_path / "run.json", make_run(item, verdict_of("FWD", path="forward", output="out", share=1e-3)))
    assert main(["report", "causes", str(tmp_path / "run.json"), "--out", str(tmp_path / "pages")]) == 0
    assert "2 causes of 2 failed cells" in capsys.readouterr().out
    names = sorted(file.name for file in (tmp_path / "pages").iterdir())
    assert names == ["01-softmax-vjp.md", "02-softmax-forward.md", "index.md"]
    text = (tmp_path / "pages" / names[0]).read_text()
    for part in (program, "line 2", "2.13.0", "float32 of shape [1]: 0000803f", "severity: wrong", item.cell.key):
        assert part in text
    assert names[1] in (tmp_path / "pages" / "index.md").read_text()


def test_hostile_text_stays_text() -> None:
    item = verdict_of(op=HOSTILE[:60], error=HOSTILE, code=Code.RAISED, common=(HOSTILE,), case=HOSTILE)
    run = make_run(item)
    (cause,) = causes_of(run.verdicts)
    assert "\x1b" not in page(cause, run)
    # Between backticks Markdown shows text as it stands.
    assert "<img" not in re.sub(r"```.*?```|`[^`]*`", "", page(cause, run), flags=re.DOTALL)
    assert "<img" not in render(run)


def test_a_record_keeps_further_failures_and_what_was_refused() -> None:
    signs = Signs("p", "o", "k", ("c", "d"), "e", 2, ("a", "b"), 0.25)
    other = Failure(Code.RAISED, "t", "m", "id-0002", "{}", "s", signs)
    refusal = verdict("FWD", Outcome.REFUSED, Code.REFUSED)
    refusal = replace(refusal, measure=replace(refusal.measure, refused=7))
    run = make_run(refusal, verdict_of(others=(other,)))
    assert record.decode(record.encode(run)) == run


def test_refused_is_neither_held_nor_failed() -> None:
    refusal = verdict("FWD", Outcome.REFUSED, Code.REFUSED, judged=0, reason="no float16 (the manual)")
    assert exit_codes.run_reasons([refusal])[0][0] == exit_codes.NOTHING
    assert exit_codes.run_reasons([refusal, verdict("VJP")]) == []
    run = make_run(refusal)
    assert b"<skipped" in to_xml(run)
    assert "refused, as documented" in render(run)
    assert worse(refusal, verdict("FWD")).outcome is Outcome.VERIFIED
    assert worse(refusal, verdict("FWD", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0)) == refusal


def test_a_cell_that_was_checked_and_is_refused_now_is_a_loss() -> None:
    passing, other = verdict("FWD"), verdict("VJP")
    budget, _ = update(make_run(passing, other), {})
    refusal = verdict("FWD", Outcome.REFUSED, Code.REFUSED, judged=0)
    results = [finding for finding in find_regressions(make_run(refusal, other), Files(budget=budget)) if finding.code]
    assert [(finding.kind, finding.cell) for finding in results] == [("coverage", refusal.cell.key)]
    assert "is now refused" in results[0].text
    # Such a loss can be accepted by its key, and by no pattern.
    accepted, _ = accept(
        make_run(refusal, other), {}, [refusal.cell.key], reason="r", issue="i", owner="o", expires=date(2026, 4, 1)
    )
    assert [f for f in find_regressions(make_run(refusal, other), Files(accepted, budget)) if f.code] == []


def test_the_size_of_an_error_that_is_no_number_is_told_in_words() -> None:
    (cause,) = causes_of([verdict_of(share=math.inf)])
    assert cause.size == "NaN or ∞"
    assert "(NaN or ∞)" in cause.line
    (cause,) = causes_of([verdict_of(share=0.25)])
    assert "(0.25 of the largest number)" in cause.line
