"""Kernels of CUDA C++: compiled by NVRTC, executed, and what is refused of a launch."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import opassay
from opassay.oracles.machine.ptx import cuda_headers, nvrtc
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from opassay.properties.candidates.judgement import Judgement, Ruling

needs_nvrtc = pytest.mark.skipif(not nvrtc.library_paths(), reason="NVRTC is not installed: opassay[cuda-source]")

_ROOT_MEAN_SQUARE = r"""
template <typename T> __global__ void rms(const T* __restrict__ x, T* y, int n, float eps) {
    __shared__ T part[8];
    const T* row = x + (size_t)blockIdx.x * n;
    T s = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) s += row[k] * row[k];
    for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    BARRIER
    T t = 0;
    for (int w = 0; w < 8; ++w) t += part[w];
    T r = 1 / sqrt(t / n + eps);
    for (int k = threadIdx.x; k < n; k += blockDim.x) y[(size_t)blockIdx.x * n + k] = row[k] * r;
}
"""
_TRANSPOSE = r"""
__constant__ int step[2] = {1, 16};
extern __shared__ int tile[];
extern "C" __global__ void transpose(const int* x, int* y, int rows, int columns) {
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (i < rows && j < columns) tile[threadIdx.y * step[1] + threadIdx.x * step[0]] = x[i * columns + j];
    __syncthreads();
    i = blockIdx.x * 16 + threadIdx.y, j = blockIdx.y * 16 + threadIdx.x;
    if (i < columns && j < rows) y[i * rows + j] = tile[threadIdx.x * 16 + threadIdx.y];
}
"""
_HISTOGRAM = r"""
extern "C" __global__ void count(const int* x, int* y, float* total, int n) {
    __shared__ int own[8];
    if (threadIdx.x < 8) own[threadIdx.x] = 0;
    __syncthreads();
    int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k < n) atomicAdd(&own[x[k] & 7], 1);
    if (k < n) atomicAdd(total, 1.0f);
    __syncthreads();
    if (threadIdx.x < 8) atomicAdd(&y[threadIdx.x], own[threadIdx.x]);
}
"""


def _rms(kind: str = "float", barrier: str = "__syncthreads();") -> Any:
    source = _ROOT_MEAN_SQUARE.replace("BARRIER", barrier)
    return opassay.cuda_kernel(source, f"rms<{kind}>", grid=lambda x, *_: x.shape[0], block=256)


@needs_nvrtc
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_an_instance_of_a_template_computes_what_it_says(dtype: torch.dtype) -> None:
    x = torch.randn(3, 300, dtype=dtype, generator=torch.Generator().manual_seed(5))
    y = torch.full_like(x, float("nan"))
    _rms("float" if dtype == torch.float32 else "double")(x, y, 300, 1e-6)
    eps = float(torch.tensor(1e-6))  # a parameter of type float
    opassay.assert_conforms(
        y, lambda x: x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps), x, contract="torch+approximate"
    )


@needs_nvrtc
def test_a_barrier_that_is_missing_is_a_race_and_its_line_is_told() -> None:
    x = torch.randn(3, 300, generator=torch.Generator().manual_seed(5))
    with pytest.raises(Violation, match=r"rms<float>: rmsfloat.cu:11, line .* reads what thread .* wrote") as error:
        _rms(barrier="")(x, torch.empty_like(x), 300, 1e-6)
    assert error.value.code is Code.RACE


@needs_nvrtc
def test_blocks_of_two_dims_share_memory_whose_size_the_launch_says() -> None:
    x = torch.arange(21 * 37, dtype=torch.int32).reshape(21, 37)
    y = torch.zeros(37, 21, dtype=torch.int32)
    launch: dict[str, Any] = {
        "grid": lambda x, y, rows, columns: (-(-columns // 16), -(-rows // 16)),
        "block": (16, 16),
    }
    transpose = opassay.cuda_kernel(_TRANSPOSE, "transpose", **launch, shared=1024)
    transpose(x, y, 21, 37)
    assert torch.equal(y, x.T)
    with pytest.raises(Violation) as error:
        opassay.cuda_kernel(_TRANSPOSE, "transpose", **launch, shared=512)(x, y, 21, 37)
    assert error.value.code is Code.OUT_OF_BOUNDS


@needs_nvrtc
def test_atomic_sums_in_both_memories() -> None:
    x = torch.randint(0, 8, (500,), dtype=torch.int32, generator=torch.Generator().manual_seed(5))
    y, total = torch.zeros(8, dtype=torch.int32), torch.zeros(1)
    opassay.cuda_kernel(_HISTOGRAM, "count", grid=4, block=128)(x, y, total, 500)
    assert torch.equal(y, torch.bincount(x, minlength=8).int())
    assert float(total) == 500.0


@needs_nvrtc
def test_what_is_no_launch_is_refused_in_words() -> None:
    kernel, x = _rms(), torch.ones(2, 8)
    for arguments, error, message in (
        ((x, x, 8), TypeError, "rms<float>: got 3 arguments, need 4"),
        ((x, x, 8.5, 1e-6), TypeError, "argument 2: got a float, need one for a parameter of type u32"),
        ((x, 5.0, 8, 1e-6), TypeError, "argument 1: got a float, need one for a parameter of type u64"),
        ((x, x, 8, x), TypeError, "argument 3: got a tensor, need a number for a parameter of type f32"),
        ((x, x.to("meta"), 8, 1e-6), ValueError, "argument 1: got a tensor on meta"),
    ):
        with pytest.raises(error, match=message):
            kernel(*arguments)
    for sizes, message in (
        ({"grid": (1, 65536), "block": 32}, "grid="),
        ({"grid": 1, "block": (64, 32)}, "2048 threads"),
        ({"grid": 1, "block": 0}, "block="),
        ({"grid": 1, "block": 32, "shared": 1 << 20}, "shared=1048576: need at most"),
    ):
        source = _ROOT_MEAN_SQUARE.replace("BARRIER", "")
        with pytest.raises(ValueError, match=message):
            opassay.cuda_kernel(source, "rms<float>", **sizes)(x, x.clone(), 8, 1e-6)


@needs_nvrtc
def test_a_source_that_does_not_compile_raises_the_log() -> None:
    with pytest.raises(RuntimeError, match=r'scale.cu\(1\): error: identifier "undeclared" is undefined'):
        opassay.cuda_kernel("__global__ void scale(float* x) { undeclared(x); }", "scale", 1, 32)
    with pytest.raises(
        RuntimeError, match=r"cannot open source file \"none\.h\"[^$]*cuda-source[^$]*--include-path=FOLDER"
    ):
        opassay.cuda_kernel("#include <none.h>", "scale", 1, 32)


#: Sums of each warp of 32, by the library that comes with CUDA.
_GROUPS = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <torch/extension.h>
namespace cg = cooperative_groups;
__global__ void sum(const float* x, float* y) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    float s = cg::reduce(warp, x[threadIdx.x], cg::plus<float>());
    if (warp.thread_rank() == 0) y[threadIdx.x / 32] = s;
}
"""
_HALVES = r"""
#include <stdio.h>
#include <cstdint>
#include <cfloat>
#include <math.h>
#include <algorithm>
#include <limits>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
__global__ void add(const __half* x, __half* y, uint32_t n) {
    uint32_t k = threadIdx.x;
    float least = std::max(-FLT_MAX, -std::numeric_limits<float>::infinity());
    if (k < n) y[k] = __hadd(x[k], __float2half(fmaxf(least, M_PI)));
}
"""


@needs_nvrtc
def test_headers_of_cuda_and_of_the_host_are_found() -> None:
    x, y = torch.arange(128.0), torch.zeros(4)
    opassay.cuda_kernel(_GROUPS, "sum", 1, 128)(x, y)
    assert torch.equal(y, x.view(4, 32).sum(1))
    half, out = torch.randn(100).half(), torch.zeros(100).half()
    opassay.cuda_kernel(_HALVES, "add", 1, 128)(half, out, 100)
    assert torch.equal(out, half + torch.tensor(torch.pi).half())


@needs_nvrtc
def test_all_headers_of_the_host_compile_together() -> None:
    names = [*cuda_headers.OF_CUDA, *(f"{each}.h" for each in cuda_headers.OF_C), "vector", "ATen/ATen.h"]
    source = "".join(f"#include <{name}>\n" for name in names)
    opassay.cuda_kernel(source + "__global__ void f(int* x) { x[0] = 1; }", "f", 1, 32)


@needs_nvrtc
def test_an_instruction_that_is_not_known_is_named() -> None:
    source = 'extern "C" __global__ void f(int* x) { asm volatile("pmevent 7;"); x[0] = 1; }'
    with pytest.raises(Unsupported, match=r"f\.cu:1, line .*pmevent"):
        opassay.cuda_kernel(source, "f", 1, 32)


def test_without_the_compiler_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "library_paths", list)
    nvrtc._library.cache_clear()
    with pytest.raises(ImportError, match=r"opassay\[cuda-source\]"):
        opassay.cuda_kernel("", "f", 1, 32)


def _of_rows(barrier: str) -> Any:
    kernel = _rms(barrier=barrier)

    def candidate(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        kernel(x.contiguous(), y, x.shape[1], 0.0)
        return y

    return candidate


@needs_nvrtc
def test_a_function_of_a_kernel_is_judged_in_this_process() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return x / torch.sqrt(x.square().mean(-1, keepdim=True))

    def judge(barrier: str) -> Judgement:
        candidate = _of_rows(barrier)
        return opassay.judge(candidate, reference, (torch.randn(2, 40, generator=torch.Generator().manual_seed(5)),),
                             contract="torch+triton", questions=("FWD:given", "CALLS:again"))  # fmt: skip

    right, racing = judge("__syncthreads();"), judge("")
    assert right.verdict is Ruling.ACCEPTED, str(right)
    assert right.execution == ("rms<float>: 6 launches without a fault",)
    assert racing.verdict is Ruling.REJECTED
    assert racing.execution == ("rms<float>: 0 launches without a fault",)
    assert {cause.wrong.code for cause in racing.causes if cause.wrong} == {Code.RACE}
