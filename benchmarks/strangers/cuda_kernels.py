"""Kernels of CUDA C++ in the manner of public repositories: right ones, and the same with a fault."""

from __future__ import annotations

import torch

import opassay

_NORM = r"""
__global__ void rms_norm(const float* __restrict__ x, float* y, int n, float eps) {
    __shared__ float part[8];
    const float* row = x + (size_t)blockIdx.x * n;
    float s = 0.f;
    for (int k = threadIdx.x; k < n; k += blockDim.x) s += row[k] * row[k];
    for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
    BARRIER
    float t = 0.f;
    for (int w = 0; w < 8; ++w) t += part[w];
    float r = rsqrtf(t / n + EPS);
    for (int k = threadIdx.x; k < n; k += blockDim.x) y[(size_t)blockIdx.x * n + k] = row[k] * r;
}
"""
_TRANSPOSE = r"""
__global__ void transpose(const float* x, float* y, int rows, int columns) {
    __shared__ float tile[16][17];
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    if (INSIDE) tile[threadIdx.y][threadIdx.x] = x[i * columns + j];
    __syncthreads();
    i = blockIdx.x * 16 + threadIdx.y, j = blockIdx.y * 16 + threadIdx.x;
    if (i < columns && j < rows) y[i * rows + j] = tile[threadIdx.x][threadIdx.y];
}
"""
_SUM = r"""
__global__ void add_columns(const float* x, float* y, int rows, int columns) {
    int j = threadIdx.x;
    for (; j < columns; j += blockDim.x) ADD
}
"""
_SOFTMAX = r"""
__global__ void softmax(const float* x, float* y, int n) {
    OFFSET at = (OFFSET)(blockIdx.x * n);
    float top = -INFINITY, s = 0.f;
    for (int k = threadIdx.x; k < n; k += 32) top = fmaxf(top, x[at + k]);
    for (int d = 16; d > 0; d >>= 1) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, d));
    for (int k = threadIdx.x; k < n; k += 32) s += expf(x[at + k] - top);
    for (int d = 16; d > LAST; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    for (int k = threadIdx.x; k < n; k += 32) y[at + k] = expf(x[at + k] - top) / s;
}
"""


def _with(source, **words):
    for word, text in words.items():
        source = source.replace(word, text)
    return "#define INFINITY __int_as_float(0x7f800000)\n" + source


def _norm(barrier="__syncthreads();", eps="eps"):
    source = _with(_NORM, BARRIER=barrier, EPS=eps)
    kernel = opassay.cuda_kernel(source, "rms_norm", grid=lambda x, *_: x.shape[0], block=256)

    def candidate(x):
        x, y = x.contiguous(), torch.empty(x.shape)
        kernel(x, y, x.shape[1], 1e-6)
        return y

    return candidate


def _transpose(inside):
    launch = {"grid": lambda x, y, rows, columns: (-(-columns // 16), -(-rows // 16)), "block": (16, 16)}
    kernel = opassay.cuda_kernel(_with(_TRANSPOSE, INSIDE=inside), "transpose", **launch)

    def candidate(x):
        x, y = x.contiguous(), torch.empty(x.shape[1], x.shape[0])
        kernel(x, y, *x.shape)
        return y

    return candidate


def _sum(add):
    kernel = opassay.cuda_kernel(_with(_SUM, ADD=add), "add_columns", grid=lambda x, y, rows, columns: rows, block=64)

    def candidate(x):
        x, y = x.contiguous(), torch.zeros(x.shape[1])
        kernel(x, y, *x.shape)
        return y

    return candidate


def _softmax(offset="size_t", last="0"):
    source = _with(_SOFTMAX, OFFSET=offset, LAST=last)
    kernel = opassay.cuda_kernel(source, "softmax", grid=lambda x, *_: x.shape[0], block=32)

    def candidate(x):
        x, y = x.contiguous(), torch.empty(x.shape)
        kernel(x, y, x.shape[1])
        return y

    return candidate


norm, norm_without_barrier, norm_with_another_eps = _norm(), _norm(barrier=""), _norm(eps="1e-5f")
transpose, transpose_masks_half = _transpose("i < rows && j < columns"), _transpose("i < rows")
add_columns = _sum("atomicAdd(&y[j], x[blockIdx.x * columns + j]);")
add_columns_races = _sum("y[j] += x[blockIdx.x * columns + j];")
softmax, softmax_with_offsets_of_eight_bits = _softmax(), _softmax(offset="unsigned char")
softmax_of_sixteen_lanes = _softmax(last="1")


def norm_reference(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def transpose_reference(x):
    return x.T.contiguous()


def columns_reference(x):
    return x.sum(0)


def softmax_reference(x):
    return torch.softmax(x, -1)


def inputs():
    return (torch.randn(6, 75),)
