"""What is called wrongly says so by the exception and in the words that users of torch know: name, value, rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import opassay
from opassay import Offer
from opassay.properties.candidates.host.module_files import GivenError, candidate_of
from opassay.properties.declaring import strategies
from opassay.properties.engine.plan import Selection, plan
from opassay.properties.verification import Settings, verify
from opassay.pytest import assert_verified, questions
from opassay.reference.dtypes import FORMATS, dtype_name

X = torch.ones(3)
#: Two numbers of four bits in each byte, of which torch has products of matrices alone.
PAIRS = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)


def square(x: Any) -> Any:
    return x * x


class Half(torch.autograd.Function):
    """x / 2, without derivatives."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x / 2


def half(samples: Any, **options: Any) -> Any:
    return opassay.custom_function(Half, samples, **options)


def kernel(**options: Any) -> Any:
    return opassay.verify_kernel(square, square, **options)


def declared(**changes: Any) -> Any:
    options = {"name": "square", "subjects": {"opassay": square}, **changes}
    subjects = options.pop("subjects")
    return opassay.declare(
        square,
        subjects,
        samples=strategies.same_shape(1),
        differentiable=("x",),
        dtypes=lambda x: (x.dtype,),
        **options,
    )


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: opassay.bound(square, PAIRS), opassay.SpecError, "not implemented for 'Float4_e2m1fn_x2'"),
        (lambda: opassay.bound(square, X.to("meta")), opassay.SpecError, "device meta"),
        (lambda: opassay.bound(square, X.to_sparse()), opassay.SpecError, "sparse_coo"),
        (lambda: opassay.bound(square, (X + 1j).to(torch.complex32)), opassay.SpecError, "is complex"),
        (lambda: opassay.bound(square, X, contract=None), ValueError, "contract: got None"),  # type: ignore[arg-type]
        (lambda: opassay.bound(square, X.int()), opassay.SpecError, "gives int32, need a floating tensor"),
        (lambda: opassay.bound(square, 3.0), opassay.SpecError, "nothing to judge"),
        (lambda: opassay.bound(square, np.ones(3)), opassay.SpecError, "need"),
        (lambda: opassay.judge(square, square, (X,), seed=-1), ValueError, "seed=-1"),
        (lambda: opassay.judge(square, square, (X,), contract=None), ValueError, "contract: got None"),  # type: ignore[arg-type]
        (lambda: verify(None), TypeError, "op: got a NoneType"),  # type: ignore[arg-type]
        (lambda: verify(declared(), properties=["VPJ"]), ValueError, r"property='VPJ' \(did you mean 'VJP'\?\)"),
        (lambda: verify(declared(), dtypes=["bflaot16"]), ValueError, r"did you mean 'bfloat16'\?"),
        (lambda: verify(declared(), device="cdua"), ValueError, r"did you mean 'cuda'\?"),
        (lambda: assert_verified(declared(), properties=("FWD", "VPJ")), ValueError, r"did you mean 'VJP'\?"),
        (lambda: questions(declared(), properties=("FWD", "VPJ")), ValueError, r"did you mean 'VJP'\?"),
        (lambda: Settings(max_examples=-5), ValueError, "max_examples=-5"),
        (lambda: Settings("brif"), ValueError, r"profile='brif' \(did you mean 'brief'\?\)"),
        (lambda: verify(declared(), settings="brif"), ValueError, r"profile='brif' \(did you mean 'brief'\?\)"),
        (lambda: verify(declared(), settings=3), TypeError, "settings: got int, need opassay.Settings, or the name"),  # type: ignore[arg-type]
        (lambda: verify(declared(), dtypes=[torch.int32]), ValueError, "dtype='int32', need one of float64"),
        (lambda: opassay.judge(square, square, X), TypeError, r"inputs: got a Tensor of shape \(3,\), need .*\(x,\)"),
        (lambda: half(X), TypeError, r"samples: got a Tensor of shape \(3,\), need tuples"),
        (lambda: half((X,)), TypeError, r"samples: got a Tensor, need tuples .* \[\(x, w\)"),
        (lambda: half(lambda rng: X), TypeError, "samples: got a Tensor, need tuples"),
        (lambda: half([(X,)], constant="y"), ValueError, "constant='y', need one of x"),
        (lambda: half([(X,)], offer=Offer(outputs=(0,))), ValueError, "outputs: got"),
        (lambda: declared(subjects={"opassay": 5}), TypeError, "got 'opassay' of type int"),
        (lambda: declared(name="a/b"), ValueError, "name: got 'a/b'"),
        (lambda: declared(name="a\x1b[31m"), ValueError, "printable"),
        (lambda: declared(name="a\u202eb"), ValueError, "printable"),
    ],
)  # fmt: skip
def test_wrong_use_is_told_by_name_value_and_rule(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()


@pytest.mark.parametrize("dtype", [torch.float32, "float32", "torch.float32", "f32", "fp32"])
def test_a_dtype_has_each_of_its_names(dtype: Any) -> None:
    few = Settings("brief", max_examples=1)
    (result,) = verify(declared(), properties="FWD", dtypes=dtype, settings=few)
    (again,) = assert_verified(declared(), properties=("FWD",), dtypes=(dtype,), settings=few)
    (verdicts,) = opassay.verify_kernel(
        square, square, {"x": ("n",)}, properties=("FWD",), dtypes=[dtype], settings=few
    )
    (question,) = questions(declared(), ("FWD",), (dtype,))
    alone = opassay.run_cell(replace(result.cell, dtype=dtype), few, declared())
    assert {v.cell.dtype for v in (result, again, verdicts, alone)} == {"float32"}
    assert (question.id, *question.values) == ("FWD-float32", result.cell)
    assert {v.outcome for v in (result, again, verdicts, alone)} == {"verified"}
    assert opassay.Documented(dtypes=(dtype, "bf16")).dtypes == ("float32", "bfloat16")


def test_every_dtype_has_its_short_names() -> None:
    names = {"f64", "fp64", "f32", "fp32", "bf16", "f16", "fp16"}
    assert {dtype_name(name) for name in names} == set(FORMATS)
    assert [dtype_name(getattr(torch, name)) for name in FORMATS] == list(FORMATS)
    assert dtype_name("fp31") == "fp31"


def test_operands_that_are_not_judged_yet_are_no_verdict() -> None:
    judgement = opassay.judge(square, square, (PAIRS,))
    assert judgement.verdict == "error"
    assert "not implemented for 'Float4_e2m1fn_x2'" in judgement.error


def test_names_of_the_command_line_are_read_as_people_write_them() -> None:
    cells = plan(Selection(("trace",), ("fwd,VJP",), ("fp32", "bf16")))
    assert [(cell.property, cell.dtype) for cell in cells] == [
        (code, dtype) for code in ("FWD", "VJP") for dtype in ("float32", "bfloat16")
    ]
    with pytest.raises(ValueError, match=r"property='VPJ' \(did you mean 'VJP'\?\)"):
        plan(Selection(("trace",), ("FWD,VPJ",)))


def test_a_declaration_may_be_named_by_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "named_by_its_file.py").write_text("from opassay import load_op\nOP = load_op('trace')\n")
    monkeypatch.chdir(tmp_path)
    assert opassay.load_op("named_by_its_file.py:OP").name == "trace"


def test_a_name_that_a_file_lacks_is_said_with_the_nearest(tmp_path: Path) -> None:
    file = tmp_path / "lacking.py"
    file.write_text("def kernel(x):\n    return x\n")
    with pytest.raises(GivenError, match=r"has no kernl \(did you mean 'kernel'\?\)"):
        candidate_of(f"{file}:kernl", (), 0)
