"""The sources of `header_kernels.py`, in which words in capitals stand for what a fault changes."""

BLOCK_SUM = r"""
#include <cub/cub.cuh>
__global__ void block_sum(const float* x, float* y, int n) {
    using Reduce = cub::BlockReduce<float, 128>;
    __shared__ typename Reduce::TempStorage room;
    float s = 0.f;
    for (int k = threadIdx.x; k < n; k += 128) s += x[(size_t)blockIdx.x * n + k];
    s = Reduce(room).Sum(s);
    if (WHO) y[blockIdx.x] = s;
}
"""
GROUP_NORM = r"""
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
__global__ void group_norm(const float* x, float* y, int n) {
    __shared__ float part[4];
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    const float* row = x + (size_t)blockIdx.x * n;
    float s = 0.f;
    for (int k = block.thread_rank(); k < n; k += block.size()) s += row[k] * row[k];
    s = cg::reduce(warp, s, cg::plus<float>());
    if (warp.thread_rank() == 0) part[warp.meta_group_rank()] = s;
    BARRIER
    float r = rsqrtf((part[0] + part[1] + part[2] + part[3]) / n + 1e-6f);
    for (int k = block.thread_rank(); k < n; k += block.size()) y[(size_t)blockIdx.x * n + k] = row[k] * r;
}
"""
FRAGMENTS = r"""
#include <mma.h>
using namespace nvcuda;
__global__ void fragments(const float* a, float* c, int k) {  // c = a a^T, 16 rows
    __shared__ alignas(32) float tile[16 * DEEP];
    wmma::fragment<wmma::matrix_a, 16, 16, DEEP, PART, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, DEEP, PART, wmma::col_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, DEEP, float> sums;
    wmma::fill_fragment(sums, 0.f);
    TILE
    for (int first = 0; first < k; first += DEEP) {
        for (int i = threadIdx.x; i < 16 * DEEP; i += 32) {
            int row = i / DEEP, column = first + i % DEEP;
            store[i] = column < k ? (TYPE)a[row * k + column] : (TYPE)0.f;
        }
        SYNC
        wmma::load_matrix_sync(left, store, DEEP);
        wmma::load_matrix_sync(right, store, DEEP);
        wmma::mma_sync(sums, left, right, sums);
        SYNC
    }
    wmma::store_matrix_sync(c, sums, 16, wmma::mem_row_major);
}
"""
PIPELINE = r"""
#include <cuda_pipeline.h>
__global__ void pipeline(const float* x, float* y, int n) {  // sums of 64 neighbours by two buffers
    __shared__ alignas(16) float room[2][64];
    const float* row = x + (size_t)blockIdx.x * n;
    int t = threadIdx.x, steps = n / 64;
    __pipeline_memcpy_async(&room[0][t], row + t, 4);
    __pipeline_commit();
    for (int step = 0; step < steps; ++step) {
        if (step + 1 < steps) __pipeline_memcpy_async(&room[(step + 1) % 2][t], row + (step + 1) * 64 + t, 4);
        __pipeline_commit();
        __pipeline_wait_prior(LAX);
        __syncthreads();
        float s = 0.f;
        for (int k = 0; k <= t; ++k) s += room[step % 2][k];
        y[(size_t)blockIdx.x * n + step * 64 + t] = s;
        BARRIER
    }
}
"""
COPIES = r"""
#include <cooperative_groups.h>
#include <cuda/barrier>
#include <cuda/pipeline>
__global__ void copies(const float* x, float* y, int n) {  // each row in another order
    extern __shared__ float room[];
    auto block = cooperative_groups::this_thread_block();
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, 1> state;
    auto pipe = cuda::make_pipeline(block, &state);
    pipe.producer_acquire();
    cuda::memcpy_async(block, room, x + (size_t)blockIdx.x * n, sizeof(float) * n, pipe);
    pipe.producer_commit();
    WAIT
    for (int k = threadIdx.x; k < n; k += blockDim.x) y[(size_t)blockIdx.x * n + k] = room[n - 1 - k];
    pipe.consumer_release();
}
"""
HALVES = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__global__ void halves(const __half2* x, const __half2* y, __half2* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (INSIDE) z[i] = __hfma2(x[i], y[i], h2exp(__hneg2(__habs2(x[i]))));
}
__global__ void brains(const __nv_bfloat162* x, const __nv_bfloat162* y, __nv_bfloat162* z, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (INSIDE) z[i] = __hmax2(__hmul2(x[i], y[i]), __hsub2(x[i], y[i]));
}
"""
HISTOGRAM = r"""
__global__ void histogram(const float* x, int* y, int n) {
    __shared__ int bins[ROOM];
    if (threadIdx.x < 16) bins[threadIdx.x] = 0;
    BARRIER
    for (int k = blockIdx.x * blockDim.x + threadIdx.x; k < n; k += gridDim.x * blockDim.x) {
        int bin = (int)fminf(fmaxf((x[k] + 4.f) * 2.f, 0.f), 15.f);
        atomicAdd(&bins[bin], 1);
    }
    __syncthreads();
    if (threadIdx.x < 16) MERGE
}
"""
ONLINE = r"""
#include <math.h>
__global__ void online(const float* x, float* y, int n) {  // softmax of a row, maximum and sum in one pass
    const float* row = x + (size_t)blockIdx.x * n;
    float top = -INFINITY, s = 0.f;
    for (int k = threadIdx.x; k < n; k += 32) {
        float v = row[k], next = fmaxf(top, v);
        s = s * SCALE + expf(v - next);
        top = next;
    }
    for (int d = 16; d > 0; d >>= 1) {
        float other = __shfl_xor_sync(MASK, top, d), theirs = __shfl_xor_sync(MASK, s, d);
        float next = fmaxf(top, other);
        s = (top == -INFINITY ? 0.f : s * expf(top - next)) + (other == -INFINITY ? 0.f : theirs * expf(other - next));
        top = next;
    }
    for (int k = threadIdx.x; k < n; k += 32) y[(size_t)blockIdx.x * n + k] = expf(row[k] - top) / s;
}
"""
VECTORS = r"""
__global__ void vectors(const float* x, float* y, int n) {  // layer norm, four numbers at once
    __shared__ float part[2][4];
    const float4* row = reinterpret_cast<const float4*>(x + (size_t)blockIdx.x * n FROM);
    int count = n / 4, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float s = 0.f;
    for (int k = threadIdx.x; k < count; k += 128) { float4 v = row[k]; s += v.x + v.y + v.z + v.w; }
    for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
    if (lane == 0) part[0][warp] = s;
    __syncthreads();
    float mean = (part[0][0] + part[0][1] + part[0][2] + part[0][3]) / n, q = 0.f;
    for (int k = threadIdx.x; k < count; k += 128) {
        float4 v = row[k];
        v.x -= mean, v.y -= mean, v.z -= mean, v.w -= mean;
        q += v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w;
    }
    for (int d = 16; d > 0; d >>= 1) q += __shfl_xor_sync(0xffffffffu, q, d);
    if (lane == 0) part[1][warp] = q;
    UNIFORM
    float r = rsqrtf((part[1][0] + part[1][1] + part[1][2] + part[1][3]) / n + 1e-5f);
    for (int k = threadIdx.x; k < count; k += 128) {
        float4 v = row[k];
        v.x = (v.x - mean) * r, v.y = (v.y - mean) * r, v.z = (v.z - mean) * r, v.w = (v.w - mean) * r;
        reinterpret_cast<float4*>(y + (size_t)blockIdx.x * n)[k] = v;
    }
}
"""
LAST_BLOCK = r"""
__global__ void last_block(const float* x, float* part, unsigned* count, float* y, int n) {
    __shared__ float s[64];
    __shared__ bool last;
    float sum = 0.f;
    for (int k = blockIdx.x * 64 + threadIdx.x; k < n; k += gridDim.x * 64) sum += x[k] * x[k];
    s[threadIdx.x] = sum;
    for (int d = 32; d > 0; d >>= 1) {
        __syncthreads();
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
    }
    if (threadIdx.x == 0) {
        part[blockIdx.x] = s[0];
        FENCE
        last = atomicInc(count, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float whole = 0.f;
        for (int b = 0; b < gridDim.x; ++b) whole += ((volatile float*)part)[b];
        y[0] = sqrtf(whole);
    }
}
"""
WARP = r"""
__global__ void warp_sum(const float* x, float* y, int n) {  // by shared memory, without shuffles
    __shared__ float s[32];
    float sum = 0.f;
    for (int k = threadIdx.x; k < n; k += 32) sum += __sinf(x[(size_t)blockIdx.x * n + k]);
    s[threadIdx.x] = sum;
    for (int d = 16; d > 0; d >>= 1) {
        SYNC
        float other = threadIdx.x < d ? s[threadIdx.x + d] : 0.f;
        SYNC
        if (threadIdx.x < d) s[threadIdx.x] += other;
    }
    SYNC
    if (threadIdx.x == 0) y[blockIdx.x] = s[0];
}
"""
STRUCTURE = r"""
struct Matrix { const float* data; int rows, columns; long long stride; };
__device__ __noinline__ double wide(float v) { return exp((double)v); }
__global__ void structure(Matrix m, float* y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    INDEX at = (INDEX)(i / m.columns) * FAR * m.stride / FAR + i % m.columns;
    if (i < m.rows * m.columns) y[i] = (float)wide(m.data[at]);
}
"""
FLAG = r"""
__global__ void flag(const float* x, float* room, int* ready, float* y, int n) {  // block 1 waits for 0
    int t = threadIdx.x;
    if (blockIdx.x == 0) {
        for (int k = t; k < n; k += 32) room[k] = x[k] * 2.f;
        FENCE
        __syncthreads();
        if (t == 0) *(volatile int*)ready = 1;
    } else {
        if (t == 0) while (*(volatile int*)ready == 0) {}
        __syncthreads();
        for (int k = t; k < n; k += 32) y[k] = room[n - 1 - k];
    }
}
"""
