"""Extensions of torch in CUDA C++ are built and judged as they stand, right and wrong ones."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import cpp_extension

import opassay
from opassay.properties.candidates.judgement import Judgement
from opassay.properties.rehearsal.environment import LIBRARY

pytestmark = [
    pytest.mark.rehearsal,
    pytest.mark.skipif(LIBRARY not in os.environ, reason="tests of python -m tests.rehearsal -m pytest"),
]
_DECLARATION = "torch::Tensor scale(torch::Tensor x, double by);"
_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

template <typename T> struct Times {
    T by;
    __host__ __device__ T operator()(T x) const { return x * by; }
};

namespace {
template <typename T, int BLOCK, typename F>
__global__ void __launch_bounds__(BLOCK)
map(const T* __restrict__ x, torch::PackedTensorAccessor32<T, 1, torch::RestrictPtrTraits> y, int n, F f) {
    int i = blockIdx.x * BLOCK + threadIdx.x;
    if (i < n) y[i] = f(x[i]);
}
}

torch::Tensor scale(torch::Tensor x, double by) {
    TORCH_CHECK(x.is_cuda() && x.dim() == 1, "x: need a vector on CUDA");
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "scale", [&] {
        map<scalar_t, 64><<<(x.numel() + 63) / 64, 64, 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>(), x.numel(),
            Times<scalar_t>{static_cast<scalar_t>(by)});
    });
    return y;
}
"""


def _build(source: str) -> Any:
    return cpp_extension.load_inline("scaling", _DECLARATION, source, functions=["scale"], extra_cuda_cflags=["-O3"])


def _judge(source: str, dtype: torch.dtype) -> Judgement:
    module, inputs = _build(source), (torch.randn(100, device="cuda").to(dtype),)

    def candidate(x: Tensor) -> Tensor:
        scaled: Tensor = module.scale(x.contiguous(), 2.5)
        return scaled

    return opassay.judge(candidate, lambda x: x * 2.5, inputs, questions=["FWD:given"], compiled="sm_90")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_an_extension_is_judged_as_it_stands(dtype: torch.dtype) -> None:
    judgement = _judge(_SOURCE, dtype)
    assert judgement.verdict == "accepted", str(judgement)
    assert any("map<" in line for line in judgement.execution), judgement.execution


@pytest.mark.parametrize(("right", "wrong", "code"), [("x * by", "x + by", "OA101"), ("i < n", "i <= n", "OA112")])
def test_an_extension_with_a_fault_is_rejected(right: str, wrong: str, code: str) -> None:
    judgement = _judge(_SOURCE.replace(right, wrong), torch.float32)
    assert judgement.verdict == "rejected"
    assert code in str(judgement), str(judgement)


def test_what_the_host_code_refuses_is_an_exception_of_it() -> None:
    with pytest.raises(RuntimeError, match="x: need a vector on CUDA"):
        _build(_SOURCE).scale(torch.randn(3), 2.0)


def test_what_the_host_is_told_defines_words() -> None:
    source = _SOURCE.replace("return y;", "return y WORD;")
    module = cpp_extension.load_inline(
        "worded", _DECLARATION, source, functions=["scale"], extra_cflags=["-O3", "-DWORD=+1"]
    )
    assert torch.equal(module.scale(torch.ones(3, device="cuda"), 2.0).cpu(), torch.full((3,), 3.0))


def test_what_cannot_be_built_is_no_fault_of_a_candidate() -> None:
    def candidate(x: Tensor) -> Tensor:
        scaled: Tensor = _build(_SOURCE.replace("= f(x[i])", "= unknown")).scale(x, 2.5)
        return scaled

    inputs = (torch.randn(100, device="cuda"),)
    judgement = opassay.judge(candidate, lambda x: x * 2.5, inputs, questions=["FWD:given"], compiled="sm_90")
    assert judgement.verdict == "error", str(judgement)
    assert "does not compile" in judgement.error


def test_a_source_that_does_not_compile_is_told() -> None:
    with pytest.raises(
        RuntimeError, match=r"g\+\+ refuses scaling[^$]*scaling\.cu:\d+:\d+: error: 'unknown' was not declared"
    ):
        _build(_SOURCE.replace("return y;", "return unknown;"))
    with pytest.raises(RuntimeError, match=r'identifier "unknown" is undefined'):
        _build(_SOURCE.replace("= f(x[i])", "= unknown")).scale(torch.randn(3, device="cuda"), 2.0)
