"""Right attentions are right in every layout, at one key, and where one tensor is several; wrong ones there are not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import opassay

Tensor = torch.Tensor


def spec(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def masked(q: Tensor, k: Tensor, m: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * 0.25 + m, -1)


def masked_by_powers(q: Tensor, k: Tensor, m: Tensor) -> Tensor:
    powers = torch.exp((s := q @ k.mT * 0.25 + m) - s.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)


def masked_by_memory(q: Tensor, k: Tensor, m: Tensor) -> Tensor:
    """As a kernel that takes its mask for contiguous."""
    return masked_by_powers(q, k, m.as_strided(m.shape, (m.shape[-1], 1)))


def numbers(seed: int, *shapes: tuple[int, ...]) -> list[Tensor]:
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=draws) for shape in shapes]


@pytest.mark.parametrize("low", [-1e9, -1e4, -float("inf")])
@pytest.mark.parametrize(("kernel", "verdict"), [(masked_by_powers, "accepted"), (masked_by_memory, "rejected")])
def test_a_mask_that_is_no_row_of_its_own_keeps_its_rows_in_every_layout(low: float, kernel: Any, verdict: str) -> None:
    mask = torch.zeros(9, 9).masked_fill(torch.ones(9, 9, dtype=torch.bool).triu(1), low)
    inputs = (*numbers(0, (2, 9, 8), (2, 9, 8)), mask)
    assert opassay.judge(kernel, masked, inputs, questions=("FWD:given", "LAYOUT:strides")).verdict == verdict


def test_a_symmetric_matrix_stays_one_in_every_layout() -> None:
    matrix, x = numbers(1, (5, 5), (4, 5))
    inputs = (matrix + matrix.T, x)
    questions = ("FWD:given", "LAYOUT:strides")
    assert opassay.judge(lambda s, x: x @ s.T, lambda s, x: x @ s, inputs, questions=questions).verdict == "accepted"


def fused(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v)


class Backward(torch.autograd.Function):
    """The backward of flash attention, computed in float32 and rounded once; `of_sum` is how often it takes Σ p g."""

    of_sum = 1.0

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(q, k, v)
        return spec(q.float(), k.float(), v.float()).to(q.dtype)

    @classmethod
    def gradients(cls, ctx: Any, cotangent: Tensor) -> tuple[Tensor, ...]:
        q, k, v, g = (t.float() for t in (*ctx.saved_tensors, cotangent))
        p = torch.softmax(q @ k.mT * (scale := q.shape[-1] ** -0.5), -1)
        ds = p * (g @ v.mT - cls.of_sum * (g * (p @ v)).sum(-1, keepdim=True)) * scale
        return tuple(t.to(cotangent.dtype) for t in (ds @ k, ds.mT @ q, p.mT @ g))

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return Backward.gradients(ctx, cotangent)


class BackwardWithoutSum(Backward):
    of_sum = 0.0

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        return BackwardWithoutSum.gradients(ctx, cotangent)


class BackwardOfOne(Backward):
    """Gives k no gradient where q and k are one tensor."""

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Any:
        q, k, _ = ctx.saved_tensors
        of_q, of_k, of_v = Backward.gradients(ctx, cotangent)
        return (of_q, of_k * 0 if q.data_ptr() == k.data_ptr() else of_k, of_v)


@pytest.mark.parametrize("seed", range(3))
def test_the_backward_of_flash_attention_is_right_at_one_key(seed: int) -> None:
    inputs = numbers(seed, (2, 3, 17, 16), (2, 3, 1, 16), (2, 3, 1, 16))
    questions = ("FWD:given", "VJP:grad")
    for kernel in (Backward.apply, fused):
        assert opassay.judge(kernel, spec, inputs, seed=seed, questions=questions).causes == ()
    assert opassay.judge(BackwardWithoutSum.apply, spec, inputs, seed=seed, questions=questions).verdict == "rejected"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("kernel", "verdict"), [(Backward, "accepted"), (BackwardOfOne, "rejected")])
def test_what_autograd_rounds_where_one_tensor_is_several_is_no_fault_of_a_kernel(
    dtype: torch.dtype, kernel: Any, verdict: str
) -> None:
    inputs = [t.to(dtype) for t in numbers(0, *[(2, 3, 16, 16)] * 3)]
    questions = ("FWD:given", "VJP:grad")
    judgement = opassay.judge(kernel.apply, spec, inputs, contract="strict", questions=questions)
    assert judgement.verdict == verdict, judgement.causes
