"""Runs planted kernels on the machine, with and without each fault, and prints what caught it; not a test itself.

How a fault must be caught: OA112 and OA113 by the machine; "values" by the judge, against a formula; OA104 by running
a row alone, which must give the same bits.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from opassay.impl.gpu import launching
from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.machine import interpreter
from opassay.oracles.op.declaration import Op, Promises, Sample
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation
from opassay.reference import activations, softmax

Tensor = torch.Tensor
Subject = Callable[..., Tensor]
VALUES = "values"
SEED = 112_113


def _tensor(*shape: int, dtype: torch.dtype = torch.float32, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    values = np.random.default_rng((SEED, *shape)).standard_normal(shape) * scale + shift
    return torch.from_numpy(values).to(dtype)


def _judge(formula: Callable[..., Any], subject: Subject, *args: Any) -> None:
    """Raises a Violation where the subject's value is wrong."""
    op = Op(
        "planted", formula, {"opassay": subject}, samples=lambda dtype, kind: None, differentiable=(),
        promises=Promises(lambda operands: (operands[0].dtype,)),
    )  # fmt: skip
    Judge(op, "opassay", contract(str(args[0].dtype).removeprefix("torch."))).hold(Sample(args, SEED))


def _same(computed: Tensor, expected: Tensor) -> None:
    if not torch.equal(computed, expected):
        raise Violation(Code.VALUE, "another element")


# --------------------------------------------------------------------------------------------------------- one by model


def _softmax(fault: str, scale: float = 1.0, shift: float = 0.0) -> None:
    def subject(x: Tensor, dim: int) -> Tensor:
        y = launching.empty(x.shape, x.dtype, x.device)
        rows, length = x.shape
        launching.launch(texts.softmax_rows, (rows,), (x, y, rows, length), {"FAULT": fault, "BLOCK": 16})
        return y

    _judge(lambda x, dim: softmax.softmax(x, dim), subject, _tensor(4, 13, scale=scale, shift=shift), 1)


def _sums(fault: str) -> None:
    def subject(x: Tensor) -> Tensor:
        parts, y = launching.empty((4,), x.dtype, x.device), launching.empty((), x.dtype, x.device)
        if fault == "atomic sum":
            y.zero_()
        fixed = {"PARTS": 4, "FAULT": fault}
        operands = x, parts, y, x.numel(), x.stride(0)
        launching.launch(texts.partial_sums, (4,), operands, {**fixed, "BLOCK": 16})
        if not fault.startswith("partials and"):
            launching.launch(texts.sum_of_partials, (1,), (parts, y), fixed)
        return y

    # The elements between belong to the storage and to no operand.
    _judge(lambda x: np.sum(x), subject, _tensor(2 * 141)[::2])


def _scatter(fault: str) -> None:
    g, targets = _tensor(3), torch.tensor([4, -7, 0])
    d = launching.empty((3, 6), g.dtype, g.device)
    launching.launch(texts.scatter_rows, (3,), (g, targets, d, 6), {"FAULT": fault, "BLOCK": 8})
    expected = torch.zeros(3, 6)
    expected[0, 4], expected[2, 0] = g[0], g[2]
    _same(d, expected)


def _log_sigmoid(fault: str) -> None:
    def subject(x: Tensor) -> Tensor:
        y = launching.empty(x.shape, x.dtype, x.device)
        constants = {"FAULT": fault, "BLOCK": 32}
        launching.launch(texts.log_sigmoid, (-(-x.numel() // 32),), (x, y, x.numel()), constants)
        return y

    _judge(activations.log_sigmoid, subject, torch.cat([_tensor(64, scale=8.0), torch.tensor([-100.0, 20.0, 0.0])]))


def _deviation(fault: str) -> None:
    epsilon = 1e-5

    def subject(x: Tensor) -> Tensor:
        y = launching.empty(x.shape[:1], x.dtype, x.device)
        bits = launching.as_operand(epsilon, torch.float64)
        operands = x, y, x.shape[1], epsilon, bits
        launching.launch(texts.reciprocal_deviation, (len(x),), operands, {"FAULT": fault, "BLOCK": 32})
        return y

    def formula(x: Any) -> Any:
        length = np.shape(x)[1]
        centred = x - np.sum(x, axis=1, keepdims=True) / length
        return 1.0 / np.sqrt(np.sum(np.square(centred), axis=1) / length + epsilon)

    _judge(formula, subject, _tensor(2, 21, dtype=torch.float64, scale=0.01, shift=1000.0))


def _copy(fault: str) -> None:
    x = _tensor(9, 13)
    y = launching.empty(x.shape, x.dtype, x.device)
    launching.launch(texts.copy_tiles, (3, 4), (x, y, 9, 13), {"FAULT": fault, "BLOCK": 4})
    _same(y, x)


def _far(fault: str) -> None:
    # In 32 bits the product of the last program is negative, and no two programs take one row.
    x = _tensor(3, 20_000)[:, :7]
    y = launching.empty(x.shape, x.dtype, x.device)
    operands = x, y, 7, x.stride(0), 2_000_000_011, 3
    launching.launch(texts.copy_far_rows, (3,), operands, {"FAULT": fault, "BLOCK": 8})
    _same(y, x)


def _rows(fault: str) -> None:
    def sums(x: Tensor) -> Tensor:
        y = launching.empty(x.shape[:1], x.dtype, x.device)
        constants = {"FAULT": fault, "ROWS": 4, "BLOCK": 64}
        launching.launch(texts.row_sums, (-(-len(x) // 4),), (x, y, *x.shape), constants)
        return y

    x = _tensor(6, 61)
    if not torch.equal(sums(x), torch.cat([sums(row) for row in x.split(1)])):
        raise Violation(Code.BITS, "another row alone")


def _softmax_tangent(fault: str) -> None:
    def subject(x: Tensor, t: Tensor) -> Tensor:
        d = launching.empty(x.shape, x.dtype, x.device)
        operands = x, t, d, x.shape[1]
        launching.launch(texts.softmax_tangent, (len(x),), operands, {"FAULT": fault, "BLOCK": 8})
        return d

    def formula(x: Any, t: Any) -> Any:
        p = softmax.softmax(x, 1)
        return p * (t - np.sum(p * t, axis=1, keepdims=True))

    _judge(formula, subject, _tensor(3, 21), _tensor(3, 21, shift=2.0))


def _norm_tangent(fault: str) -> None:
    epsilon, block = 0.125, 8

    def subject(x: Tensor, t: Tensor, t_weight: Tensor) -> Tensor:
        pieces = -(-x.numel() // block)
        partial = launching.empty((pieces, 4), x.dtype, x.device)
        d = launching.empty(x.shape, x.dtype, x.device)
        constants = {"FAULT": fault, "BLOCK": block}
        launching.launch(texts.pair_moments, (pieces,), (x, t, partial, x.numel()), constants)
        operands = x, t, t_weight, partial, d, x.numel(), pieces, epsilon
        launching.launch(texts.norm_tangent, (pieces,), operands, {**constants, "MOST": 4})
        return d

    def formula(x: Any, t: Any, t_weight: Any) -> Any:
        length = np.shape(x)[0]
        centred, moved = x - np.sum(x) / length, t - np.sum(t) / length
        r = 1.0 / np.sqrt(np.sum(np.square(centred)) / length + epsilon)
        normalized = centred * r
        return r * (moved - normalized * (np.sum(moved * normalized) / length)) + normalized * t_weight

    _judge(
        formula, subject, _tensor(29, scale=0.5), _tensor(29, 1)[:, 0].contiguous(), _tensor(29, 2)[:, 1].contiguous()
    )


def _large(fault: str) -> None:
    _softmax(fault, scale=60.0, shift=60.0)


def _negative(fault: str) -> None:
    _softmax(fault, shift=-200.0)


OA112, OA113, BITS = Code.OUT_OF_BOUNDS.value, Code.RACE.value, Code.BITS.value
#: The fault, what runs the kernel, how the fault must be caught.
FAULTS: tuple[tuple[str, Callable[[str], None], str], ...] = (
    ("mask one too high", _softmax, OA112),
    ("mask one too low", _softmax, VALUES),
    ("a row twice", _softmax, OA113),
    ("a row left out", _softmax, VALUES),
    ("masked lanes summed", _softmax, VALUES),
    ("masked lanes unknown", _softmax, VALUES),
    ("maximum begins at 0", _negative, VALUES),
    ("no maximum subtracted", _large, VALUES),
    ("sum in half precision", _softmax, VALUES),
    ("rounded to half before the store", _softmax, VALUES),
    ("tail left out", _sums, VALUES),
    ("no mask at the tail", _sums, OA112),
    ("blocks overlap", _sums, VALUES),
    ("stride forgotten", _sums, OA112),
    ("a partial not written", _sums, VALUES),
    ("a partial left out", _sums, VALUES),
    ("atomic sum", _sums, OA113),
    ("partials and their sum in one launch", _sums, OA113),
    ("two lanes of one store", _scatter, OA113),
    ("no barrier", _scatter, OA113),
    ("address before the mask", _scatter, OA112),
    ("one element too low", _log_sigmoid, OA112),
    ("one element too high", _log_sigmoid, OA112),
    ("exponential overflows", _log_sigmoid, VALUES),
    ("logarithm of 1 + z", _log_sigmoid, VALUES),
    ("wrong sign where x < 0", _log_sigmoid, VALUES),
    ("variance in one pass", _deviation, VALUES),
    ("masked lanes in the variance", _deviation, VALUES),
    ("divided by one less", _deviation, VALUES),
    ("epsilon in single precision", _deviation, VALUES),
    ("result in single precision", _deviation, VALUES),
    ("grid transposed", _copy, VALUES),
    ("tiles overlap", _copy, OA113),
    ("rows not masked", _copy, OA112),
    ("columns not masked", _copy, OA112),
    ("product in 32 bits", _far, OA112),
    ("offset in 16 bits", _far, OA112),
    ("neighbours in the last bits", _rows, BITS),
    ("order by the number of rows", _rows, BITS),
    ("tangent beyond its end", _softmax_tangent, OA112),
    ("sum not rescaled", _softmax_tangent, VALUES),
    ("mean not corrected", _softmax_tangent, VALUES),
    ("mean without weights", _softmax_tangent, VALUES),
    ("mean without its probability", _softmax_tangent, VALUES),
    ("masked lanes in the products", _norm_tangent, VALUES),
    ("products in the next piece's place", _norm_tangent, OA113),
    ("stale partial", _norm_tangent, VALUES),
    ("pieces not combined", _norm_tangent, VALUES),
    ("epsilon left out of the tangent", _norm_tangent, VALUES),
    ("statistics held constant", _norm_tangent, VALUES),
    ("weight's tangent times the input's", _norm_tangent, VALUES),
)


def catch_violation(run: Callable[[str], None], fault: str) -> str:
    """What catches a fault; "" where nothing does."""
    try:
        run(fault)
    except Violation as error:
        return VALUES if error.code in (Code.VALUE, Code.SPECIAL) else error.code.value
    return ""


if __name__ == "__main__":
    interpreter.prepare()
    import planted_kernels as texts

    launching.put_on(interpreter.Machine())
    runs = list(dict.fromkeys(run for _, run, _ in FAULTS))
    right = {run.__name__: catch_violation(run, "") for run in runs}
    print(
        json.dumps({"right": right, "faults": [(name, how, catch_violation(run, name)) for name, run, how in FAULTS]})
    )
