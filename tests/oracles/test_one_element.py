"""One element of an output, read exactly by itself: the value that the reading of the whole gives, and in failures."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from mpmath import libmp
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding.one_element import exact_element
from opassay.oracles.judge.judge import Judge
from opassay.oracles.judge.tally import LARGE
from opassay.oracles.op.declaration import Sample
from opassay.oracles.verdicts.violation import Violation
from opassay.reference import array
from opassay.reference.derivative import vjp
from opassay.reference.exact import agree, evaluate

from .planted_ops import declared

Formula = Callable[..., Any]


def _softmax(x: Any, w: Any) -> Any:
    powers = np.exp(x - np.max(x, axis=1, keepdims=True))
    return powers / np.sum(powers, axis=1, keepdims=True)


def _moved(x: Any, w: Any) -> Any:
    picked = np.concatenate([np.transpose(x)[1:], np.zeros((1, 4)), np.broadcast_to(w[:4], (2, 4))], axis=0)
    terms = np.reshape(picked, (-1,))[::3]
    return array.scatter(terms * 2.0, np.arange(terms.size) % 4, (4,))


FORMULAS: dict[str, Formula] = {
    "product": lambda x, w: x * w,
    "softmax": _softmax,
    "choice": lambda x, w: np.where(x > 0.0, x, np.expm1(x)) + np.power(np.abs(w), 0.75),
    "moments": lambda x, w: (x - np.mean(x, -1, keepdims=True)) / np.sqrt(np.mean(np.square(x), -1, keepdims=True)),
    "moved": _moved,
    "sum": lambda x, w: np.sum(x * w),
}


@pytest.mark.parametrize("name", FORMULAS)
@pytest.mark.parametrize("differentiated", [False, True])
def test_an_element_alone_is_what_it_is_in_the_whole(name: str, differentiated: bool) -> None:
    rng = np.random.default_rng(3)
    operands = [rng.standard_normal((4, 6)), rng.standard_normal(6)]

    def formula(*operands: Any) -> Any:
        if not differentiated:
            return (FORMULAS[name](*operands),)
        out, pull = vjp(lambda *xs: (FORMULAS[name](*xs),), operands)
        return pull(*out)

    for number, whole in enumerate(evaluate(formula, *operands)[0]):
        for index in np.ndindex(whole.shape):
            alone = exact_element(formula, operands, contract("float32"), number, index)
            assert alone is not None
            assert agree(alone.values[()], whole.values[index], 200, 1), (number, index)


def test_products_of_matrices_and_too_long_sums_have_no_element_alone() -> None:
    long = np.ones(200_000)
    assert exact_element(lambda x: x @ x, [np.eye(3)], contract("float32"), 0, (1, 1)) is None
    assert exact_element(lambda x: np.sum(x), [long], contract("float32"), 0, ()) is None
    assert exact_element(lambda x: x * 2.0, [long], contract("float32"), 0, (7,)) is not None


def test_a_failure_of_a_large_sample_is_told_by_the_exact_value_of_its_worst_element() -> None:
    x = torch.randn(2000, 100, generator=torch.Generator().manual_seed(3))

    def off(x: Tensor, w: Tensor) -> Tensor:
        y = x * w
        y[1234, 56] *= 1.0 + 2.0**-20
        return y

    judge = Judge(declared(off), "opassay", contract("float32"))
    judge.tally.part = LARGE
    with pytest.raises(Violation) as error:
        judge.hold(Sample((x, x[0].clone())))
    product = evaluate(lambda a, b: a * b, np.float64(x[1234, 56].item()), np.float64(x[0, 56].item()))[0][0].values[()]
    card = re.search(r"element    out\[1234, 56\]\n.*\n +exact +(\S+)", error.value.message)
    assert card is not None
    assert error.value.outlier is not None
    assert error.value.outlier.index == (1234, 56)
    assert card.group(1) == libmp.to_str(product, 25)
