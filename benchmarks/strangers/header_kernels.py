"""Kernels of CUDA C++ with the headers that public ones include: right ones, and the same with a fault.

CUB, cooperative groups, wmma, pipelines, half types, structures; flags, histograms, warps that go together.
"""

from __future__ import annotations

import functools

import header_sources as sources
import numpy as np
import torch

import opassay


def _kernel(source, name, grid, block, shared=0, **words):
    """A kernel that is compiled when it is called, because a process calls one of them."""
    for word, text in words.items():
        source = source.replace(word, text)
    compiled = functools.cache(lambda: opassay.cuda_kernel(source, name, grid=grid, block=block, shared=shared))
    return lambda *arguments: compiled()(*arguments)


def _of_rows(source, name, block, results=torch.empty_like, shared=0, **words):
    """A kernel with a block for each row."""
    kernel = _kernel(source, name, lambda x, *_: x.shape[0], block, shared, **words)

    def candidate(x):
        x = x.contiguous()
        y = results(x)
        kernel(x, y, x.shape[1])
        return y

    return candidate


def _of_each_row(x):
    return torch.empty(x.shape[0])


def _block_sum(who="threadIdx.x == 0"):
    return _of_rows(sources.BLOCK_SUM, "block_sum", 128, _of_each_row, WHO=who)


def _group_norm(barrier="block.sync();"):
    return _of_rows(sources.GROUP_NORM, "group_norm", 128, BARRIER=barrier)


def _fragments(part="half", kind="half", deep="16", sync="__syncwarp();"):
    tile = "half* store = reinterpret_cast<half*>(tile);" if kind == "half" else "float* store = tile;"
    words = {"DEEP": deep, "PART": part, "TYPE": kind, "TILE": tile, "SYNC": sync}
    kernel = _kernel(sources.FRAGMENTS, "fragments", 1, 32, **words)

    def candidate(a):
        rows = torch.zeros(16, a.shape[1])
        rows[: min(16, a.shape[0])] = a[:16].float()
        c = torch.empty(16, 16)
        kernel(rows, c, a.shape[1])
        return c[: a.shape[0], : a.shape[0]].clone()

    return candidate


def _padded(kernel):
    """Of rows of a multiple of 64 numbers: the last ones are zeros."""

    def candidate(x):
        whole = torch.nn.functional.pad(x, (0, -x.shape[1] % 64)).contiguous()
        y = torch.empty_like(whole)
        kernel(whole, y, whole.shape[1])
        return y[:, : x.shape[1]].clone()

    return candidate


def _pipeline(lax="1", barrier="__syncthreads();"):
    return _padded(_kernel(sources.PIPELINE, "pipeline", lambda x, *_: x.shape[0], 64, LAX=lax, BARRIER=barrier))


def _copies(wait="pipe.consumer_wait();"):
    return _of_rows(sources.COPIES, "copies", 64, shared=lambda x, y, n: 4 * n, WAIT=wait)


def _halves(name, inside="i < n"):
    kernel = _kernel(sources.HALVES, name, lambda x, y, z, n: -(-n // 64), 64, INSIDE=inside)

    def candidate(x, y):
        n = -(-x.numel() // 2)
        x, y = (torch.nn.functional.pad(each.flatten(), (0, each.numel() % 2)).contiguous() for each in (x, y))
        z = torch.empty_like(x)
        kernel(x, y, z, n)
        return z

    return lambda x, y: candidate(x, y)[: x.numel()].reshape(x.shape).clone()


def _histogram(room="16", barrier="__syncthreads();", merge="atomicAdd(&y[threadIdx.x], bins[threadIdx.x]);"):
    kernel = _kernel(sources.HISTOGRAM, "histogram", 3, 64, ROOM=room, BARRIER=barrier, MERGE=merge)

    def candidate(x):
        y = torch.zeros(16, dtype=torch.int32)
        kernel(x.contiguous(), y, x.numel())
        return y

    return candidate


def _online(scale="expf(top - next)", mask="0xffffffffu"):
    return _of_rows(sources.ONLINE, "online", 32, SCALE=scale, MASK=mask)


def _vectors(first="", uniform="__syncthreads();"):
    kernel = _kernel(sources.VECTORS, "vectors", lambda x, *_: x.shape[0], 128, FROM=first, UNIFORM=uniform)

    def candidate(x):
        if x.shape[1] % 4:
            raise ValueError(f"columns={x.shape[1]}: need a multiple of 4")
        x = x.contiguous().clone()
        y = torch.empty_like(x)
        kernel(x, y, x.shape[1])
        return y

    return candidate


def _last_block(fence="__threadfence();"):
    kernel = _kernel(sources.LAST_BLOCK, "last_block", 4, 64, FENCE=fence)

    def candidate(x):
        y = torch.empty(1)
        kernel(x.contiguous(), torch.empty(4), torch.zeros(1, dtype=torch.int32), y, x.numel())
        return y[0].clone()

    return candidate


def _warp(sync="__syncwarp();", sine="sinf"):
    return _of_rows(sources.WARP, "warp_sum", 32, _of_each_row, SYNC=sync, __sinf=sine)


def _structure(index="long long", far="1"):
    kernel = _kernel(sources.STRUCTURE, "structure", lambda m, y: -(-y.numel() // 64), 64, INDEX=index, FAR=far)

    def candidate(x):
        y = torch.empty(x.shape)
        wide = np.int64(x.stride(0))
        kernel((x, x.shape[0], x.shape[1], wide), y)
        return y

    return lambda x: candidate(x if x.stride(1) == 1 else x.contiguous())


def _flag(fence="__threadfence();"):
    kernel = _kernel(sources.FLAG, "flag", 2, 32, FENCE=fence)

    def candidate(x):
        x = x.flatten().contiguous()
        y = torch.empty_like(x)
        kernel(x, torch.empty_like(x), torch.zeros(1, dtype=torch.int32), y, x.numel())
        return y

    return candidate


block_sum, block_sum_of_every_thread = _block_sum(), _block_sum(who="threadIdx.x < 128")
group_norm, group_norm_without_barrier = _group_norm(), _group_norm(barrier="")
fragments = _fragments()
fragments_of_tf32 = _fragments("wmma::precision::tf32", "float", "8")
fragments_without_barrier = _fragments(sync="")
pipeline, pipeline_without_second_barrier = _pipeline(), _pipeline(barrier="")
pipeline_waits_for_too_little = _pipeline(lax="2")
copies, copies_without_wait = _copies(), _copies(wait="")
halves, halves_one_too_many = _halves("halves"), _halves("halves", "i <= n")
brains, brains_drop_the_last = _halves("brains"), _halves("brains", "i < n - 1")
histogram, histogram_without_barrier = _histogram(), _histogram(barrier="")
histogram_of_twelve_bins, histogram_races = (
    _histogram(room="12"),
    _histogram(merge="y[threadIdx.x] += bins[threadIdx.x];"),
)
online, online_of_a_wrong_mask = _online(), _online(mask="(threadIdx.x < 16 ? 0xffffffffu : 0xffffu)")
online_without_scale = _online(scale="1.f")
vectors, vectors_from_the_second = _vectors(), _vectors(first=" + 1")
vectors_in_some_threads = _vectors(uniform="if (threadIdx.x < 33) __syncthreads();")
last_block, last_block_without_fence = _last_block(), _last_block(fence="")
warp_sum, warp_sum_without_barrier, warp_sum_of_fast_sines = _warp(), _warp(sync=""), _warp(sine="__sinf")
structure, structure_of_short_indices = _structure(), _structure("int", "1431655765")
flag, flag_without_fence = _flag(), _flag(fence="")


def block_sum_reference(x):
    return x.sum(-1)


def group_norm_reference(x):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def fragments_reference(x):
    return x[:16].half().float() @ x[:16].half().float().T


def product_reference(x):
    return x[:16] @ x[:16].T


def pipeline_reference(x):
    whole = torch.nn.functional.pad(x, (0, -x.shape[1] % 64))
    return whole.unflatten(1, (-1, 64)).cumsum(-1).flatten(1)[:, : x.shape[1]]


def copies_reference(x):
    return x.flip(-1)


def halves_reference(x, y):
    return x * y + torch.exp(-x.abs())


def brains_reference(x, y):
    return torch.maximum(x * y, x - y)


def histogram_reference(x):
    bins = torch.clamp((x + 4) * 2, 0, 15).int()
    return (bins.flatten()[:, None] == torch.arange(16)).sum(0).int()


def online_reference(x):
    return torch.softmax(x, -1)


def vectors_reference(x):
    return torch.nn.functional.layer_norm(x, x.shape[-1:], eps=1e-5)


def last_block_reference(x):
    return x.square().sum().sqrt()


def warp_sum_reference(x):
    return x.sin().sum(-1)


def structure_reference(x):
    return x.exp()


def flag_reference(x):
    return 2 * x.flatten().flip(0)


def inputs(family="rows"):
    """The arguments of a family."""
    return {
        "rows": lambda: (torch.randn(6, 76),), "wide": lambda: (torch.randn(3, 192),),
        "far": lambda: (8 * torch.randn(6, 76),),
        "halves": lambda: (torch.randn(3, 70).half(), torch.randn(3, 70).half()),
        "brains": lambda: (torch.randn(3, 70).bfloat16(), torch.randn(3, 70).bfloat16()),
    }[family]()  # fmt: skip
