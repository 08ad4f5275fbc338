"""A failure as a program: exit status 1 while the fault is there, 0 for a right op, and no framework."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from opassay.oracles.bound.accept import Edges
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import Op, Sample
from opassay.oracles.op.script import NoProgram, Script
from opassay.oracles.programs.along import along_path
from opassay.oracles.programs.questions import of_element
from opassay.oracles.programs.values import literal
from opassay.oracles.programs.writing import LONGEST, defining_script, program, without
from opassay.oracles.verdicts.verdict import Cell
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.catalog.loading import load_op

from .planted_ops import declared, scaled, tensor
from .program_runner import REPOSITORY, Ran, run_program

pytestmark = pytest.mark.slow

Word = tuple[Any, ...]


def _sample(dtype: str) -> Sample:
    x, w, b = (tensor((5, i), shape, dtype) for i, shape in enumerate([(3, 7), (7,), (7,)]))
    return Sample((x, (7,), w, b, 1e-5), 11)


def _failure(op: Op, subject: str, sample: Sample, word: Word, dtype: str, engine: str = "func") -> Violation:
    with pytest.raises(Violation) as error:
        Judge(op, subject, contract(dtype)).hold(sample, word, engine)
    return error.value


def _text(op: Op, subject: str, violation: Violation) -> str:
    assert violation.make_script is not None
    return program(
        op, Cell(op.name, "FWD", "float32", "cpu", subject), violation.make_script(), violation.title, "1234-ab"
    )


def _by_a_wrong_op(op: Op, sample: Sample, word: Word, dtype: str, engine: str = "func") -> Violation:
    """The failure of another subject, for the same sample: a fault that the right op does not have."""
    right = op.subjects["opassay"]

    def scaled_outputs(*args: Any) -> Any:
        out = right(*args)
        return tuple(1.01 * y for y in out) if isinstance(out, tuple) else 1.01 * out

    return _failure(replace(op, subjects={"wrong": scaled_outputs}), "wrong", sample, word, dtype, engine)


def test_a_fault_of_torch_is_seen_again_by_a_program_that_is_a_file(tmp_path: Any) -> None:
    """torch 2.13: jvp of jvp of layer_norm misses terms that jvp of vjp has."""
    op, sample = load_op("layer_norm"), _sample("float64")
    failure = _failure(op, "torch", sample, ("jvp", "jvp"), "float64")
    assert failure.outlier is not None
    (tmp_path / "case.py").write_text(_text(op, "torch", failure))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "case.py"], capture_output=True, text=True, timeout=120, check=False,
        cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "")
    low, high, _ = failure.outlier.edges
    assert done.stdout.startswith("layer_norm t_t_out[")
    assert f", exact {failure.outlier.worst.exact}, allowed {low!r} to {high!r}" in done.stdout


def test_a_right_op_exits_with_zero() -> None:
    op = load_op("layer_norm")
    texts = []
    for word, dtype, engine in (
        ((), "bfloat16", "func"), (("vjp", "jvp", "vjp"), "float32", "func"), (("jvp",), "float32", "eager"),
        (("vjp", "vjp"), "float64", "eager"),
    ):  # fmt: skip
        texts.append(_text(op, "opassay", _by_a_wrong_op(op, _sample(dtype), word, dtype, engine)))
    overloaded, sample = load_op("native_layer_norm"), _sample("float32")
    texts.append(_text(overloaded, "torch", _by_a_wrong_op(overloaded, sample, ("jvp",), "float32")))
    assert "op = torch.ops.aten.native_layer_norm.default" in texts[-1]
    assert "op(x0, (7, ), x1, x2, 1e-05)" in texts[-1]
    for ran in map(run_program, texts):
        assert ran.status == 0, ran.printed
        assert ": computed " in ran.printed


def test_what_an_op_writes_is_an_output_of_the_program() -> None:
    op = load_op("batch_norm")
    x = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    sample = Sample((x, torch.zeros(2), torch.ones(2), None, None, True, 0.1, 1e-5))
    failure = _by_a_wrong_op(op, sample, (), "float32")
    variance = 0.9 + 0.1 * float(x.double()[:, 1].var())
    element = 2, (1,), repr(variance), Edges(variance - 1e-6, variance + 1e-6), "running_var"
    judge = Judge(op, "opassay", contract("float32"))
    path = functools.partial(along_path, judge.path(sample, (), ()))
    running_var = Violation(failure.code, "running_var").showing(lambda: of_element(path, *element))
    for ran in (run_program(_text(op, "opassay", each)) for each in (failure, running_var)):
        assert ran.status == 0, ran.printed
    assert torch.equal(sample.args[2], torch.ones(2))


def _of_edges(edges: Edges) -> str:
    args, op = _sample("float32").args, load_op("layer_norm")
    args[0][0, 0] = float("nan")
    sample = Sample(args)
    path = functools.partial(along_path, Judge(op, "opassay", contract("float32")).path(sample, (), ()))
    script = of_element(path, 0, (0, 0), "nan", edges, "out")
    return program(op, Cell("layer_norm", "SPECIAL", "float32", "cpu", "opassay"), script, "title", "1234-ab")


def test_a_nan_that_must_be_there_is_no_fault_and_another_number_is_one() -> None:
    nan, inf = float("nan"), float("inf")
    edges = (Edges(nan, nan), Edges(inf, inf, not_finite=True), Edges(-inf, inf))
    assert [run_program(_of_edges(each)).status for each in edges] == [0, 0, 1]


@pytest.mark.parametrize(
    ("subject", "lines"),
    [
        (lambda x, w: x * w, ()),
        (functools.partial(torch.mul), ()),
        (torch.mul, ("op = torch.mul",)),
        (torch.ops.aten.mul.Tensor, ("op = torch.ops.aten.mul.Tensor",)),
        (torch.nn.functional.relu, ("op = torch.nn.functional.relu",)),
        (torch._refs.softmax, ("op = torch._refs.softmax",)),
        (scaled, ("op = tests.oracles.planted_ops.scaled",)),
    ],
    ids=["lambda", "partial", "builtin", "overload", "function", "of another module", "of the user"],
)
def test_a_subject_is_named_where_a_fresh_process_can_import_it(
    subject: Callable[..., Any], lines: tuple[str, ...]
) -> None:
    if lines:
        assert defining_script(subject).lines == lines
    else:
        with pytest.raises(NoProgram, match=r"cannot|can be imported by its name"):
            defining_script(subject)


def test_a_call_of_torch_that_the_framework_wraps_is_written_out() -> None:
    op = load_op("nll_loss")
    result = defining_script(op.subjects["decomposition"])
    assert result.imports == ("import torch._refs.nn.functional as refs",)
    assert result.lines[-1] == "op = _refs_nll_loss"
    with pytest.raises(NoProgram, match=r"object of the framework|imported by its name"):
        defining_script(op.subjects["module"])


def test_why_there_is_no_program_stands_in_its_place() -> None:
    assert without("Nobody\ncan.") == "# No program: Nobody can."
    cell = Cell("scaled", "FWD", "float32", "cpu", "opassay")
    with pytest.raises(NoProgram, match="characters"):
        program(declared(torch.mul), cell, Script({"x": torch.randn(LONGEST // 4)}), "title", "1234-ab")


def test_the_program_is_the_same_every_time_and_keeps_every_bit() -> None:
    op, sample = load_op("layer_norm"), _sample("float16")
    failure = _by_a_wrong_op(op, sample, ("vjp",), "float16")
    assert _text(op, "opassay", failure) == _text(op, "opassay", failure)
    numbers = [
        torch.tensor([0.1, -0.0, float("inf"), 1e-45], dtype=torch.float32),
        torch.tensor([[1 / 3], [5e-324]], dtype=torch.float64),
        torch.tensor([0x7FC1, 0xFFC0, 1], dtype=torch.uint16).view(torch.bfloat16),
        torch.arange(100.0)[::3][1:],
        torch.arange(5)[:1].expand(4),
        torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).t(),
        torch.empty(0, 3),
    ]
    checks = ["def same(a, b):", "    return a.equal(b) and a.dtype == b.dtype", ""]
    text = program(op, Cell("", "", "", "", "torch"), Script({f"t{i}": t for i, t in enumerate(numbers)}), "", "")
    results: dict[str, Any] = {}
    exec("\n".join([text, *checks]), results)
    for i, t in enumerate(numbers):
        again = results[f"t{i}"]
        assert (again.dtype, again.shape, again.stride()) == (t.dtype, t.shape, t.stride())
        kind = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
        assert torch.equal(again.contiguous().view(kind), t.contiguous().view(kind))


def test_a_tensor_of_one_element_with_any_stride_is_written_out() -> None:
    one = torch.arange(4.0)[::2][:1]
    assert one.stride() == (2,)
    assert literal(one) == "torch.tensor([0.0], dtype=torch.float32)"


def test_a_tensor_without_values_is_written_by_what_it_has() -> None:
    one = torch.empty(2, 3, device="meta").t()
    again = eval(literal(one), {"torch": torch})
    assert (again.is_meta, again.shape, again.stride(), again.dtype) == (True, one.shape, one.stride(), one.dtype)


def test_the_runner_tells_an_import_of_the_framework_and_an_error() -> None:
    assert run_program("1 / 0").status == 99
    assert run_program("import sys; sys.exit(3)") == Ran(3, "")
    with pytest.raises(AssertionError, match="imports what judges"):
        run_program("import opassay.oracles.verdicts.verdict")
    assert (REPOSITORY / "pyproject.toml").is_file()
