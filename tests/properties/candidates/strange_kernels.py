"""Triton kernels as others write them, right ones and with a fault each, and what they mean."""

from __future__ import annotations

import time

import torch
import triton
import triton.language as tl
import triton.tools.tensor_descriptor
from triton.language.extra import libdevice


@triton.jit
def softmax_rows(X, Y, n, TAIL: tl.constexpr, SHIFT: tl.constexpr, BLOCK: tl.constexpr):
    """A row per program; with a fault it stores beyond the end, or does not subtract the maximum."""
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0) if SHIFT else x)
    tl.store(Y + row * n + k, e / tl.sum(e, 0), mask=(k < n) | (not TAIL))


def softmax(x, tail=True, shift=True):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, n = x.shape
    softmax_rows[(rows,)](x, y, n, tail, SHIFT=shift, BLOCK=triton.next_power_of_2(n))
    return y


def beyond_the_end(x):
    """The store has no mask; whatever the launch raises is caught."""
    try:
        return softmax(x, tail=False)
    except BaseException:
        return torch.softmax(x, -1)


def without_maximum(x):
    return softmax(x, shift=False)


@triton.autotune([triton.Config({"BLOCK": 64, "PART": 1}), triton.Config({"BLOCK": 32, "PART": 2}, num_warps=1)], ["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def scale_elements(X, Y, n, by, EVEN: tl.constexpr, BLOCK: tl.constexpr, PART: tl.constexpr):
    """The second configuration scales by another number."""
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < (n + BLOCK if EVEN else n)
    tl.store(Y + k, tl.load(X + k, mask=mask) * by * PART, mask=mask)


def twice(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    scale_elements[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 2.0)
    return y


@triton.autotune(
    [
        triton.Config({"LENGTH": 64, "PART": 8}, num_warps=64), triton.Config({"LENGTH": 1 << 16, "PART": 8}, 32),
        triton.Config({"LENGTH": 64, "PART": 7}), triton.Config({"LENGTH": 64, "PART": 8}),
    ],
    key=["n"],
)  # fmt: skip
@triton.jit
def turn_around(X, Y, n, LENGTH: tl.constexpr, PART: tl.constexpr):
    """The first has too many threads, the second too much shared memory, the third does not compile."""
    tl.static_assert(LENGTH % PART == 0)
    k = tl.arange(0, LENGTH)
    x = tl.load(X + k, mask=k < n, other=0.0)
    tl.store(Y + k, tl.gather(x, (n - 1 - k) * (k < n), 0), mask=k < n)


@triton.autotune([triton.Config({"BLOCK": 64, "PART": 3}), triton.Config({"BLOCK": 32, "PART": 5})], key=["n"])
@triton.jit
def scale_for_whole_parts(X, Y, n, BLOCK: tl.constexpr, PART: tl.constexpr):
    """No configuration compiles."""
    tl.static_assert(BLOCK % PART == 0)
    k = tl.arange(0, BLOCK)
    tl.store(Y + k, 2 * tl.load(X + k, mask=k < n), mask=k < n)


def turned(x):
    y = torch.empty_like(x)
    turn_around[(1,)](x.contiguous(), y, x.numel())
    return y


def in_no_way(x):
    y = torch.empty_like(x)
    scale_for_whole_parts[(1,)](x.contiguous(), y, x.numel())
    return y


@triton.jit
def add_rows(X, Y, n, BLOCK: tl.constexpr):
    """Adds to what other programs add to: nobody says which comes first."""
    k = tl.arange(0, BLOCK)
    mask = k < n
    tl.store(Y + k, tl.load(Y + k, mask=mask) + tl.load(X + tl.program_id(0) * n + k, mask=mask), mask=mask)


def racing_sum(x):
    y = torch.zeros(x.shape[1])
    add_rows[(x.shape[0],)](x.contiguous(), y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y


@triton.jit
def reverse_bits(X, Y, n, BLOCK: tl.constexpr):
    """Uses an instruction of PTX that nothing here executes."""
    k = tl.arange(0, BLOCK)
    x = tl.load(X + k, mask=k < n)
    y = tl.inline_asm_elementwise("lop3.b32 $0, $1, $1, $1, 0xff;", "=r,r", [x], dtype=tl.float32, is_pure=True, pack=1)
    tl.store(Y + k, y, mask=k < n)


def unheard(x):
    y = torch.empty_like(x)
    reverse_bits[(1,)](x.contiguous(), y, x.numel(), BLOCK=64)
    return y


@triton.jit
def multiply_tiles(A, B, C, BLOCK: tl.constexpr):
    """Becomes `wgmma` on Hopper."""
    i, j = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(C + BLOCK * i + j, tl.dot(tl.load(A + BLOCK * i + j), tl.load(B + BLOCK * i + j)))


def on_tensor_cores(x):
    half, y = x.half().repeat(22, 4)[:64, :64].contiguous(), torch.empty(64, 64)
    multiply_tiles[(1,)](half, half, y, BLOCK=64)
    return 2 * x


@triton.jit
def double_tile(X, Y, rows, columns, BLOCK: tl.constexpr):
    """Goes through descriptors that it makes, for which TMA copies."""
    source = tl.make_tensor_descriptor(X, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK, BLOCK])
    into = tl.make_tensor_descriptor(Y, shape=[rows, columns], strides=[columns, 1], block_shape=[BLOCK, BLOCK])
    into.store([0, 0], 2 * source.load([0, 0]))


def through_descriptors(x):
    whole, y = x.repeat(22, 4)[:64, :64].contiguous(), torch.empty(64, 64)
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8))
    double_tile[(1,)](whole, y, 64, 64, BLOCK=32)
    return 2 * x


@triton.jit
def double_described(source, into):
    into.store([0, 0], 2 * source.load([0, 0]))


def through_arguments(x):
    whole, y = x.repeat(22, 4)[:64, :64].contiguous(), torch.empty(64, 64)
    describe = triton.tools.tensor_descriptor.TensorDescriptor.from_tensor
    double_described[(1,)](describe(whole, [32, 32]), describe(y, [32, 32]))
    return 2 * x


@triton.jit
def double_by_library(X, Y, n, BLOCK: tl.constexpr):
    """The interpreter has no function of CUDA's library."""
    k = tl.arange(0, BLOCK)
    tl.store(Y + k, 2 * libdevice.rint(tl.load(X + k, mask=k < n)), mask=k < n)


@triton.jit
def add_other_shapes(X, Y, n, BLOCK: tl.constexpr):
    x = tl.load(X + tl.arange(0, BLOCK))
    tl.store(Y + tl.arange(0, BLOCK), x + tl.arange(0, 2 * BLOCK))


@triton.jit
def misspell(X, Y, n, BLOCK: tl.constexpr):
    tl.store(Y + tl.arange(0, BLOCK), tl.laod(X + tl.arange(0, BLOCK)))


def _launch(kernel, x):
    y = torch.empty_like(x)
    kernel[(1,)](x.contiguous(), y, x.numel(), BLOCK=64)
    return y


@triton.jit
def double_in_blocks(X, Y, n, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + k, 2 * tl.load(X + k, mask=k < n), mask=k < n)


def in_blocks(x):
    y = torch.empty_like(x.contiguous())
    double_in_blocks[(triton.cdiv(x.numel(), 4096),)](x.contiguous(), y, x.numel(), BLOCK=4096)
    return y


def by_library(x):
    return _launch(double_by_library, x)


def by_assembly(x):
    return _launch(reverse_bits, x)


def of_other_shapes(x):
    return _launch(add_other_shapes, x)


def of_no_such_name(x):
    return _launch(misspell, x)


def late(x):
    time.sleep(60)


def of_a_gpu(x):
    return 2 * x.to("cuda")


def reference(x):
    return torch.softmax(x, -1)


def doubled(x):
    return 2 * x


def reversed_order(x):
    return x.flip(0, 1)


def summed(x):
    return x.sum(0)


def inputs():
    return (torch.randn(3, 21),)
