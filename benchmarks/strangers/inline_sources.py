"""Sources of `inline_kernels.py`, and the words of each in which it may be wrong."""

from __future__ import annotations

#: Of an extension: its source, its functions' declarations, and the words of a fault -> what stands there instead.
SOURCES: dict[str, tuple[str, str]] = {}

SOURCES["gelu"] = (
    "torch::Tensor gelu(torch::Tensor x);",
    r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cmath>

__global__ void gelu_kernel(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * FACTOR));
}

torch::Tensor gelu(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
    auto y = torch::empty_like(x);
    const int threads = 256;
    const int blocks = (x.numel() + threads - 1) / threads;
    gelu_kernel<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
""",
)
SOURCES["softmax"] = (
    "at::Tensor softmax(const at::Tensor& x);",
    r"""
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <limits>
#define WARP 32

namespace {
template <typename T> __device__ T warp_max(T v) {
    for (int d = WARP / 2; d > 0; d /= 2) v = max(v, __shfl_down_sync(0xffffffff, v, d));
    return v;
}

template <typename scalar_t>
__global__ void __launch_bounds__(WARP) rows(const scalar_t* x, scalar_t* y, int columns) {
    const int64_t at = (int64_t)blockIdx.x * columns;
    scalar_t top = -std::numeric_limits<scalar_t>::infinity(), total = 0;
    for (int k = threadIdx.x; k < columns; k += WARP) top = max(top, x[at + k]);
    top = __shfl_sync(0xffffffff, warp_max(top), 0);
    for (int k = threadIdx.x; k < columns; k += WARP) total += exp(x[at + k] - top);
    for (int d = FIRST; d > 0; d /= 2) total += __shfl_xor_sync(0xffffffff, total, d);
    for (int k = threadIdx.x; k < columns; k += WARP) y[at + k] = exp(x[at + k] - top) / total;
}
}  // namespace

at::Tensor softmax(const at::Tensor& x) {
    at::Tensor y = at::empty_like(x);
    const auto columns = static_cast<int>(x.size(-1));
    auto stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "softmax", ([&] {
        rows<scalar_t><<<dim3(x.numel() / columns), WARP, 0, stream>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), columns);
    }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}
""",
)
SOURCES["matmul"] = (
    "torch::Tensor matmul(torch::Tensor a, torch::Tensor b);",
    r"""
#include <torch/extension.h>
#include <cuda.h>
#include <cuda_runtime.h>
constexpr int TILE = 16;

__global__ void product(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float as[TILE][TILE];
    __shared__ float bs[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int t = 0; t < (K + TILE - 1) / TILE; ++t) {
        int k = t * TILE + threadIdx.x, l = t * TILE + threadIdx.y;
        as[threadIdx.y][threadIdx.x] = row < M && k < K ? a[row * K + k] : 0.0f;
        bs[threadIdx.y][threadIdx.x] = l < K && column < N ? b[l * N + column] : 0.0f;
        __syncthreads();
        for (int j = 0; j < TILE; ++j) sum += as[threadIdx.y][j] * bs[j][threadIdx.x];
        BARRIER
    }
    if (row < M && column < N) c[row * N + column] = sum;
}

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
    const int M = a.size(0), K = a.size(1), N = b.size(1);
    auto c = torch::zeros({M, N}, a.options());
    dim3 block(TILE, TILE);
    dim3 grid((N + TILE - 1) / TILE, (M + TILE - 1) / TILE);
    product<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), M, N, K);
    return c;
}
""",
)
SOURCES["layer_norm"] = (
    "std::vector<torch::Tensor> layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps);",
    r"""
#include <torch/extension.h>
#include <vector>

struct Moments { float mean, scale; };

__device__ inline float block_sum(float v, float* part) {
    for (int d = 16; d; d >>= 1) v += __shfl_xor_sync(~0u, v, d);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) part[threadIdx.x >> 5] = v;
    __syncthreads();
    v = 0;
    for (int k = 0; k < (blockDim.x >> 5); ++k) v += part[k];
    return v;
}

__global__ void norm(
    const float* x, const float* w, const float* b, float* y, float* mean, float* rstd, int n, float eps) {
    extern __shared__ float part[];
    const float* row = x + blockIdx.x * (size_t)n;
    float s = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) s += row[k];
    Moments m;
    m.mean = block_sum(s, part) / n;
    s = 0;
    for (int k = threadIdx.x; k < n; k += blockDim.x) s += (row[k] - m.mean) * (row[k] - m.mean);
    m.scale = rsqrtf(block_sum(s, part) / (DIVISOR) + eps);
    for (int k = threadIdx.x; k < n; k += blockDim.x)
        y[blockIdx.x * (size_t)n + k] = (row[k] - m.mean) * m.scale * w[k] + b[k];
    if (threadIdx.x == 0) { mean[blockIdx.x] = m.mean; rstd[blockIdx.x] = m.scale; }
}

std::vector<torch::Tensor> layer_norm(torch::Tensor x, torch::Tensor w, torch::Tensor b, double eps) {
    const int n = x.size(-1), rows = x.numel() / n, threads = 64;
    auto y = torch::empty_like(x), mean = torch::empty({rows}, x.options()), rstd = torch::empty({rows}, x.options());
    norm<<<rows, threads, threads / 32 * sizeof(float)>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), mean.data_ptr<float>(),
        rstd.data_ptr<float>(), n, eps);
    return {y, mean, rstd};
}
""",
)
SOURCES["transpose"] = (
    "torch::Tensor transpose(torch::Tensor x);",
    r"""
#include <torch/extension.h>

template <typename scalar_t>
__global__ void turn(
    const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
    torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> y) {
    const int i = blockIdx.y * blockDim.y + threadIdx.y, j = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < x.size(0) && j COMPARED x.size(1)) y[j][i] = x[i][j];
}

torch::Tensor transpose(torch::Tensor x) {
    auto y = torch::empty({x.size(1), x.size(0)}, x.options());
    const dim3 threads(8, 8), blocks((x.size(1) + 7) / 8, (x.size(0) + 7) / 8);
    AT_DISPATCH_ALL_TYPES_AND(at::kHalf, x.scalar_type(), "transpose", [&] {
        turn<scalar_t><<<blocks, threads>>>(
            x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
            y.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>());
    });
    return y;
}
""",
)
SOURCES["sum_rows"] = (
    "torch::Tensor sum_rows(torch::Tensor x);",
    r"""
#include <torch/extension.h>
#include <cub/cub.cuh>

template <int BLOCK>
__global__ void reduce(const float* x, float* y, int n) {
    using Reduce = cub::BlockReduce<float, BLOCK>;
    __shared__ typename Reduce::TempStorage storage;
    float own = 0;
    for (int k = threadIdx.x; k < n; k += BLOCK) own += x[(size_t)blockIdx.x * n + k];
    float total = Reduce(storage).Sum(own);
    if (threadIdx.x == WRITER) y[blockIdx.x] = total;
}

torch::Tensor sum_rows(torch::Tensor x) {
    auto y = torch::empty({x.size(0)}, x.options());
    reduce<64><<<x.size(0), 64>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.size(1));
    return y;
}
""",
)
SOURCES["swish_vectors"] = (
    "torch::Tensor swish_vectors(torch::Tensor x);",
    r"""
#include <torch/extension.h>

__device__ __forceinline__ float swish(float v) { return v / (1.0f + expf(-v)); }

__global__ void four(const float4* x, float4* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float4 v = x[i];
        v.x = swish(v.x); v.y = swish(v.y); v.z = swish(v.z); v.w = LAST;
        y[i] = v;
    }
}
__global__ void rest(const float* x, float* y, int first, int n) {
    int i = first + threadIdx.x;
    if (i < n) y[i] = swish(x[i]);
}

torch::Tensor swish_vectors(torch::Tensor x) {
    auto y = torch::empty_like(x);
    int n = x.numel(), vectors = n / 4;
    if (reinterpret_cast<uintptr_t>(x.data_ptr<float>()) % 16) vectors = 0;
    if (vectors > 0)
        four<<<(vectors + 127) / 128, 128>>>(reinterpret_cast<const float4*>(x.data_ptr<float>()),
                                             reinterpret_cast<float4*>(y.data_ptr<float>()), vectors);
    for (int first = vectors * 4; first < n; first += 256)
        rest<<<1, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), first, n);
    return y;
}
""",
)
SOURCES["add_halves"] = (
    "torch::Tensor add_halves(torch::Tensor a, torch::Tensor b);",
    r"""
#include <torch/extension.h>
#include <cuda_fp16.h>

__global__ void add(const __half* a, const __half* b, __half* c, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) c[i] = EXPRESSION;
}

torch::Tensor add_halves(torch::Tensor a, torch::Tensor b) {
    TORCH_CHECK(a.scalar_type() == torch::kHalf, "half only");
    auto c = torch::empty_like(a);
    add<<<2, 64>>>(reinterpret_cast<const __half*>(a.data_ptr<at::Half>()),
                   reinterpret_cast<const __half*>(b.data_ptr<at::Half>()),
                   reinterpret_cast<__half*>(c.data_ptr<at::Half>()), a.numel());
    return c;
}
""",
)
SOURCES["count"] = (
    "torch::Tensor count(torch::Tensor x, int64_t bins);",
    r"""
#include <torch/extension.h>

__global__ void bin(const int64_t* x, int* y, int n, int bins) {
    extern __shared__ int own[];
    for (int k = threadIdx.x; k < bins; k += blockDim.x) own[k] = 0;
    __syncthreads();
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x)
        if (x[k] >= 0 && x[k] < bins) ADD;
    __syncthreads();
    for (int k = threadIdx.x; k < bins; k += blockDim.x) atomicAdd(&y[k], own[k]);
}

torch::Tensor count(torch::Tensor x, int64_t bins) {
    auto y = torch::zeros({bins}, x.options().dtype(torch::kInt32));
    cudaFuncSetAttribute(bin, cudaFuncAttributeMaxDynamicSharedMemorySize, bins * sizeof(int));
    bin<<<2, 64, bins * sizeof(int)>>>(x.data_ptr<int64_t>(), y.data_ptr<int>(), x.numel(), bins);
    cudaError_t err = cudaGetLastError();
    if (err != cudaSuccess) throw std::runtime_error(cudaGetErrorString(err));
    return y;
}
""",
)
SOURCES["huber"] = (
    "torch::Tensor huber(torch::Tensor x, torch::Tensor y);",
    r"""
#include <torch/extension.h>

struct Huber {
    float delta;
    __host__ __device__ float operator()(float d) const {
        float a = d < 0 ? -d : d;
        return a COMPARED delta ? 0.5f * d * d : delta * (a - 0.5f * delta);
    }
};

template <typename F>
__global__ void apply(const float* x, const float* y, float* out, int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = f(x[i] - y[i]);
}

torch::Tensor huber(torch::Tensor x, torch::Tensor y) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    apply<<<(n + 31) / 32, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), out.data_ptr<float>(), n, Huber{1.0f});
    return out;
}
""",
)
#: The words that stand for what is right, and a fault.
WORDS = {
    "gelu": ("FACTOR", "0.70710678f", "0.7f"),
    "softmax": ("FIRST", "WARP / 2", "WARP / 4"),
    "matmul": ("BARRIER", "__syncthreads();", ""),
    "layer_norm": ("DIVISOR", "n", "n - 1"),
    "transpose": ("COMPARED", "<", "<="),
    "sum_rows": ("WRITER", "0", "1"),
    "swish_vectors": ("LAST", "swish(v.w)", "v.w"),
    "add_halves": ("EXPRESSION", "__hadd(a[i], b[i])", "__hsub(a[i], b[i])"),
    "count": ("ADD", "atomicAdd(&own[x[k]], 1)", "own[x[k]] += 1"),
    "huber": ("COMPARED", "<=", ">"),
}
