"""A failure as a program: exit status 1 while the fault is there, 0 for a right op."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
import torch

from opassay.oracles.contract import contract
from opassay.oracles.judge import Judge
from opassay.oracles.op import Op, Sample
from opassay.oracles.snippet import _tensor, snippet
from opassay.oracles.verdict import Code
from opassay.oracles.violation import Fault, Violation
from opassay.properties.engine.plan import load_op

from .planted_ops import declared, scaled, tensor

Word = tuple[Any, ...]


def _sample(dtype: str) -> Sample:
    x, w, b = (tensor((5, i), shape, dtype) for i, shape in enumerate([(3, 7), (7,), (7,)]))
    return Sample((x, (7,), w, b, 1e-5), 11)


def _failure(op: Op, subject: str, sample: Sample, word: Word, dtype: str) -> Violation:
    with pytest.raises(Violation) as caught:
        Judge(op, subject, contract(dtype)).hold(sample, word)
    return caught.value


def _run(program: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.stderr == ""
    return done.returncode, done.stdout


def _by_a_wrong_op(op: Op, sample: Sample, word: Word, dtype: str) -> Violation:
    """The failure of another subject, for the same sample: a fault that the right op does not have."""
    right = op.subjects["opassay"]

    def scaled_outputs(*args: Any) -> Any:
        out = right(*args)
        return tuple(1.01 * y for y in out) if isinstance(out, tuple) else 1.01 * out

    wrong = replace(op, subjects={"wrong": scaled_outputs})
    return _failure(wrong, "wrong", sample, word, dtype)


def test_a_fault_of_torch_is_seen_again() -> None:
    """torch 2.13: jvp of jvp of layer_norm misses terms that jvp of vjp has."""
    op, sample = load_op("layer_norm"), _sample("float64")
    failure = _failure(op, "torch", sample, ("jvp", "jvp"), "float64")
    assert failure.fault is not None
    assert failure.fault.word == ("jvp", "jvp")
    status, printed = _run(snippet(op, "torch", sample, failure, "id"))
    assert status == 1, printed
    assert printed.startswith("layer_norm jvp∘jvp (func): got ")
    assert f"exact {failure.fault.exact}, bound " in printed


@pytest.mark.parametrize(("word", "dtype"), [((), "bfloat16"), (("vjp", "jvp", "vjp"), "float32")])
def test_a_right_op_exits_with_zero(word: Word, dtype: str) -> None:
    op, sample = load_op("layer_norm"), _sample(dtype)
    failure = _by_a_wrong_op(op, sample, word, dtype)
    status, printed = _run(snippet(op, "opassay", sample, failure, "id"))
    assert status == 0, printed
    assert ": got " in printed


def test_an_operator_with_several_outputs_is_named_by_its_overload() -> None:
    op, sample = load_op("native_layer_norm"), _sample("float32")
    failure = _by_a_wrong_op(op, sample, ("jvp",), "float32")
    program = snippet(op, "torch", sample, failure, "id")
    assert "torch.ops.aten.native_layer_norm.default(x0, (7,), x1, x2, float.fromhex(" in program
    assert _run(program)[0] == 0


def test_what_an_op_writes_is_an_output_of_the_program() -> None:
    op = load_op("batch_norm")
    x = torch.randn(3, 2, 4, generator=torch.Generator().manual_seed(0))
    sample = Sample((x, torch.zeros(2), torch.ones(2), None, None, True, 0.1, 1e-5))
    failure = _by_a_wrong_op(op, sample, (), "float32")
    assert failure.fault is not None
    running_var = Violation(Code.VALUE, "batch_norm forward: out[2] outside its accept set")
    running_var.fault = Fault((), 2, (1,), repr(0.9 + 0.1 * float(x.double()[:, 1].var())), 1e-6)
    for fault in (failure, running_var):
        status, printed = _run(snippet(op, "opassay", sample, fault, "id"))
        assert status == 0, printed
    assert torch.equal(sample.args[2], torch.ones(2))


@pytest.mark.parametrize("bound", [0.0, float("nan"), float("inf")])
def test_a_nan_that_must_be_there_is_no_fault(bound: float) -> None:
    op, sample = load_op("layer_norm"), _sample("float32")
    sample.args[0][0, 0] = float("nan")
    failure = Violation(Code.SPECIAL, "layer_norm forward: out outside its accept set")
    failure.fault = Fault((), 0, (0, 0), "nan", bound)
    assert _run(snippet(op, "opassay", sample, failure, "id"))[0] == 0


@pytest.mark.parametrize(
    "subject", [lambda x, w: x * w, functools.partial(torch.mul), torch.mul], ids=["lambda", "partial", "builtin"]
)
def test_a_subject_that_cannot_be_imported_is_a_command_to_replay(subject: Any) -> None:
    failure = Violation(Code.VALUE, "scaled forward: out")
    failure.fault = Fault((), 0, (0, 0), "1.0", 0.0)
    sample = Sample((torch.ones(2, 3), torch.ones(3)))
    program = snippet(declared(subject), "opassay", sample, failure, "1234-ab")
    assert program == "# opassay replay 1234-ab" or _run(program)[0] == 0


@pytest.mark.parametrize("fault", [None, Fault(("vmap?",), 0, (0,), "1.0", 0.0)])
def test_what_is_no_path_is_a_command_to_replay(fault: Fault | None) -> None:
    failure = Violation(Code.BITS, "scaled: out differs")
    failure.fault = fault
    sample = Sample((torch.ones(2, 3), torch.ones(3)))
    assert snippet(declared(scaled), "opassay", sample, failure, "1234-ab") == "# opassay replay 1234-ab"


def test_the_program_is_the_same_every_time_and_keeps_every_bit() -> None:
    op, sample = load_op("layer_norm"), _sample("float16")
    failure = _by_a_wrong_op(op, sample, ("vjp",), "float16")
    program = snippet(op, "opassay", sample, failure, "id")
    assert program == snippet(op, "opassay", sample, failure, "id")
    assert bytes(sample.args[0].numpy().tobytes()).hex() in program
    assert (1e-5).hex() in program


def test_a_tensor_of_one_element_with_any_stride_is_written_out() -> None:
    one = torch.arange(4.0)[::2][:1]
    assert one.stride() == (2,)
    assert "bits('00000000', torch.float32, 1)" in _tensor(one)
