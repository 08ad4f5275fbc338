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
_MATMUL = r"""
__global__ void matmul(const float* a, float* c, int m, int k) {  // c = a a^T
    __shared__ float left[16][17], right[16][17];
    int i = blockIdx.y * 16 + threadIdx.y, j = blockIdx.x * 16 + threadIdx.x;
    float s = 0.f;
    for (int first = 0; first < k; first += 16) {
        int p = first + threadIdx.x;
        left[threadIdx.y][threadIdx.x] = i < m && p < k ? a[i * k + p] : 0.f;
        int row = blockIdx.x * 16 + threadIdx.y;
        right[threadIdx.y][threadIdx.x] = row < m && INSIDE ? a[row * k + p] : 0.f;
        __syncthreads();
        for (int t = 0; t < 16; ++t) s += left[threadIdx.y][t] * right[threadIdx.x][t];
        BARRIER
    }
    if (i < m && j < m) c[i * m + j] = s;
}
"""
_SCAN = r"""
__global__ void scan(const float* x, float* y, int n) {
    int lane = threadIdx.x;
    const float* row = x + (size_t)blockIdx.x * n;
    float carry = 0.f;
    for (int first = 0; first < n; first += 32) {
        float s = first + lane < n ? row[first + lane] : 0.f;
        for (int d = 1; d < WIDTH; d <<= 1) {
            float before = __shfl_up_sync(0xffffffffu, s, d);
            if (lane >= d) s += before;
        }
        if (first + lane < n) y[(size_t)blockIdx.x * n + first + lane] = s + carry;
        CARRY __shfl_sync(0xffffffffu, s, 31);
    }
}
"""
_GELU = r"""
__global__ void gelu(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (INSIDE) { float v = x[i]; y[i] = VALUE; }
}
"""
_MAXIMUM = r"""
__global__ void maximum(const float* x, float* y, int n) {
    __shared__ float part[64];
    float top = FIRST;
    for (int k = threadIdx.x; k < n; k += 64) { float v = x[(size_t)blockIdx.x * n + k]; if (!(v <= top)) top = v; }
    part[threadIdx.x] = top;
    for (int d = 32; d > 0; d >>= 1) {
        BARRIER
        if (threadIdx.x < d && !(part[threadIdx.x + d] <= part[threadIdx.x]) && part[threadIdx.x] == part[threadIdx.x])
            part[threadIdx.x] = part[threadIdx.x + d];
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
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


def _of_rows(source, name, block=32, results=torch.empty_like, **words):
    """A kernel with a block for each row; `results` makes what it writes."""
    kernel = opassay.cuda_kernel(_with(source, **words), name, grid=lambda x, *_: x.shape[0], block=block)

    def candidate(x):
        x = x.contiguous()
        y = results(x)
        kernel(x, y, x.shape[1])
        return y

    return candidate


def _softmax(offset="size_t", last="0"):
    return _of_rows(_SOFTMAX, "softmax", OFFSET=offset, LAST=last)


def _scan(width="32", carry="carry +="):
    return _of_rows(_SCAN, "scan", WIDTH=width, CARRY=carry)


def _maximum(first="-INFINITY", barrier="__syncthreads();"):
    return _of_rows(_MAXIMUM, "maximum", 64, lambda x: torch.empty(x.shape[0]), FIRST=first, BARRIER=barrier)


def _matmul(inside="p < k", barrier="__syncthreads();"):
    tiles = {"grid": lambda a, c, m, k: (-(-m // 16), -(-m // 16)), "block": (16, 16)}
    kernel = opassay.cuda_kernel(_with(_MATMUL, INSIDE=inside, BARRIER=barrier), "matmul", **tiles)

    def candidate(a):
        a, c = a.contiguous(), torch.empty(a.shape[0], a.shape[0])
        kernel(a, c, *a.shape)
        return c

    return candidate


def _gelu(inside="i < n", value="0.5f * v * (1.f + erff(v * 0.70710678f))"):
    source = _with(_GELU, INSIDE=inside, VALUE=value)
    kernel = opassay.cuda_kernel(source, "gelu", grid=lambda x, y, n: -(-n // 128), block=128)

    def candidate(x):
        x, y = x.contiguous(), torch.empty(x.shape)
        kernel(x, y, x.numel())
        return y

    return candidate


norm, norm_without_barrier, norm_with_another_eps = _norm(), _norm(barrier=""), _norm(eps="1e-5f")
transpose, transpose_masks_half = _transpose("i < rows && j < columns"), _transpose("i < rows")
add_columns = _sum("atomicAdd(&y[j], x[blockIdx.x * columns + j]);")
add_columns_races = _sum("y[j] += x[blockIdx.x * columns + j];")
softmax, softmax_with_offsets_of_eight_bits = _softmax(), _softmax(offset="unsigned char")
softmax_of_sixteen_lanes = _softmax(last="1")
matmul, matmul_without_barrier, matmul_masks_late = _matmul(), _matmul(barrier=""), _matmul(inside="p <= k")
scan, scan_of_sixteen_lanes, scan_keeps_the_last = _scan(), _scan(width="16"), _scan(carry="carry =")
gelu, gelu_by_sigmoid = _gelu(), _gelu(value="v / (1.f + expf(-1.702f * v))")
gelu_writes_one_more = _gelu(inside="i <= n")
maximum, maximum_from_one, maximum_without_barrier = _maximum(), _maximum("1.f"), _maximum(barrier="")


def norm_reference(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def transpose_reference(x):
    return x.T.contiguous()


def columns_reference(x):
    return x.sum(0)


def softmax_reference(x):
    return torch.softmax(x, -1)


def matmul_reference(x):
    return x @ x.T


def scan_reference(x):
    return x.cumsum(-1)


def gelu_reference(x):
    return torch.nn.functional.gelu(x)


def maximum_reference(x):
    return x.amax(-1)


def inputs():
    return (torch.randn(6, 75),)
