"""What is called wrongly says so by the exception and in the words that users of torch know: name, value, rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import opassay
from opassay.properties.declaring import strategies
from opassay.properties.verification import Settings, verify
from opassay.pytest import assert_verified, questions

X = torch.ones(3)


def square(x: Any) -> Any:
    return x * x


def declared(**changes: Any) -> Any:
    given = {"name": "square", "subjects": {"opassay": square}, **changes}
    subjects = given.pop("subjects")
    return opassay.declare(
        square, subjects, samples=strategies.same_shape(1), differentiable=("x",), dtypes=lambda x: (x.dtype,), **given
    )


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: opassay.bound(square, X.to(torch.float8_e4m3fn)), opassay.SpecError, "is of float8_e4m3fn"),
        (lambda: opassay.bound(square, X.to("meta")), opassay.SpecError, "meta device"),
        (lambda: opassay.bound(square, X.to_sparse()), opassay.SpecError, "sparse_coo"),
        (lambda: opassay.bound(square, X + 1j), opassay.SpecError, "is complex"),
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
        (lambda: Settings("brif"), ValueError, "profile='brif'"),
        (lambda: declared(subjects={"opassay": 5}), TypeError, "got 'opassay' of type int"),
        (lambda: declared(name="a/b"), ValueError, "name: got 'a/b'"),
        (lambda: declared(name="a\x1b[31m"), ValueError, "printable"),
        (lambda: declared(name="a\u202eb"), ValueError, "printable"),
    ],
)  # fmt: skip
def test_wrong_use_is_told_by_name_value_and_rule(call: Callable[[], Any], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def test_operands_that_are_not_judged_yet_are_no_verdict() -> None:
    found = opassay.judge(square, square, (X.to(torch.float8_e4m3fn),))
    assert found.verdict == "error"
    assert "is of float8_e4m3fn" in found.error
