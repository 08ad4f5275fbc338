"""Host code that asks for a GPU where there is none: no verdict, and a sentence of what to do."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.verdicts.verdict import Code
from opassay.properties.candidates.judge_files import judge_file
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.question_plan import QuestionPlan
from opassay.pytest import assert_verified

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")


def _on_device(x: Tensor) -> Tensor:
    return torch.empty(x.shape, device="cuda")


def _moved(x: Tensor) -> Tensor:
    return x.cuda()


def _guarded(x: Tensor) -> Tensor:
    with torch.cuda.device(x.device):
        return 2 * x


def _guarded_by_index(x: Tensor) -> Tensor:
    with torch.cuda.device(x.device.index):
        return 2 * x


def _asserted(x: Tensor) -> Tensor:
    assert x.is_cuda
    return 2 * x


def _required(x: Tensor) -> Tensor:
    if x.device.type != "cuda":
        raise ValueError("x must be a CUDA tensor")
    return 2 * x


def _of_properties(x: Tensor) -> Tensor:
    return 2 * x * min(1, torch.cuda.get_device_properties(0).multi_processor_count)


def _synchronised(x: Tensor) -> Tensor:
    torch.cuda.synchronize()
    return 2 * x


def _accelerated(x: Tensor) -> Tensor:
    return 2 * x.to(torch.accelerator.current_accelerator().type)  # type: ignore[union-attr]


def _judge(candidate: Callable[[Tensor], Tensor], *more: str) -> Judgement:
    return judge(candidate, lambda x: 2 * x, (torch.randn(3, 4),), questions=["FWD:given", *more], seed=0)


@pytest.mark.parametrize(
    "candidate",
    [
        _on_device, _moved, _guarded, _guarded_by_index, _asserted, _required, _of_properties, _synchronised,
        _accelerated,
    ],
)  # fmt: skip
def test_host_code_that_asks_for_a_gpu_has_no_verdict(candidate: Callable[[Tensor], Tensor]) -> None:
    judgement = _judge(candidate)
    assert judgement.verdict is Ruling.ERROR, str(judgement)
    assert judgement.error.startswith("asks for a GPU, and there is none here: ")
    assert f"{Path(__file__).name}:" in judgement.error
    assert "take the device of its inputs" in judgement.error


class _BackwardOnGPU(torch.autograd.Function):
    """2 x, whose gradient asks for a GPU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return 2 * gradient.cuda()


@pytest.mark.parametrize(("kernel", "outcome"), [(_moved, "error"), (_BackwardOnGPU.apply, "verified")])
def test_cells_of_a_kernel_that_asks_for_a_gpu_have_no_verdict(kernel: Any, outcome: str) -> None:
    forward, backward = opassay.verify_kernel(
        kernel,
        lambda x: 2 * x,
        {"x": ("n",)},
        properties=("FWD", "VJP"),
        settings=opassay.Settings("brief", max_examples=2),
    )
    assert (forward.outcome, backward.outcome, backward.code) == (outcome, "error", Code.NO_DEVICE)
    assert "asks for a GPU, and there is none here: " in backward.reason
    assert not opassay.ok([forward, backward])
    with pytest.raises(AssertionError, match="take the device of its inputs"):
        assert_verified([forward, backward])


@pytest.mark.parametrize("text", ["K must be a multiple of 16", "block of 2048 is too large for a GPU", "no kernel"])
def test_what_a_kernel_raises_for_its_own_reasons_rejects_it(text: str) -> None:
    def candidate(x: Tensor) -> Tensor:
        raise ValueError(text)

    judgement = _judge(candidate)
    assert judgement.verdict is Ruling.REJECTED
    assert text in judgement.causes[0].text


def test_a_wish_for_a_gpu_hides_no_fault_and_is_never_accepted() -> None:
    def candidate(x: Tensor) -> Tensor:
        return x.cuda() if x.isnan().any() else 2 * x

    judgement = _judge(candidate, "FWD:seeds", "SPECIAL:nan")
    assert judgement.verdict is Ruling.WEAK, str(judgement)
    assert any(text.startswith("SPECIAL:nan was not judged: asks for a GPU") for text in judgement.weaknesses)
    judgement = _judge(lambda x: x.cuda() if x.isnan().any() else 3 * x, "SPECIAL:nan")
    assert judgement.verdict is Ruling.REJECTED


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_a_kernel_of_triton_is_told_how_it_can_be_run() -> None:
    file = Path(__file__).with_name("strange_kernels.py")
    judgement = judge_file(
        f"{file}:softmax", f"{file}:reference", contract="torch", plan=QuestionPlan(("FWD:given",))
    )  # fmt: skip
    assert judgement.verdict is Ruling.ERROR, str(judgement)
    assert "add --compiled or --interpret" in judgement.error


@pytest.mark.usefixtures("copied_candidates")
@pytest.mark.parametrize(("line", "verdict"), [("torch.zeros(3).cuda()", "error"), ("1 / 0", "rejected")])
def test_what_a_file_raises_when_it_is_imported_is_told(line: str, verdict: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"import torch\nvalue = {line}\ndef kernel(x): return 2 * x\n")
    (tmp_path / "right.py").write_text(
        "import torch\ndef reference(x): return 2 * x\ndef inputs(): return torch.ones(2)"
    )
    judgement = judge_file(f"{tmp_path}/mine.py:kernel", f"{tmp_path}/right.py", contract="torch")
    assert str(judgement.verdict) == verdict
    text = judgement.error or str(judgement.causes[0].wrong)
    assert "mine.py:2" in text
    assert "cannot be read" not in text
