"""Kernels whose indices wrap beyond 2^31 elements, and others that look alike and do not."""

import torch
import triton
import triton.language as tl


@triton.jit
def double_rows(x, y, columns, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    at = row * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(y + at, tl.load(x + at, mask=inside) * 2, mask=inside)


def _double(x, wide):
    y = torch.empty_like(x)
    double_rows[(len(x),)](x, y, x.shape[1], BLOCK=128, WIDE=wide)
    return y


def wide(x):
    return _double(x.contiguous(), True)


def narrow(x):
    return _double(x.contiguous(), False)


@triton.jit
def double_from_zero(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    at = tl.maximum(row * columns + tl.arange(0, BLOCK), 0)
    into = row.to(tl.int64) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(y + into, tl.load(x + at, mask=inside) * 2, mask=inside)


def silent(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    double_from_zero[(len(x),)](x, y, x.shape[1], BLOCK=128)
    return y


def in_three_launches(x):
    return _halved(wide(wide(x)))


def _halved(x):
    y = torch.empty_like(x)
    halve_rows[(len(x),)](x, y, x.shape[1], BLOCK=128)
    return y


@triton.jit
def halve_rows(x, y, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(y + at, tl.load(x + at, mask=inside) / 2, mask=inside)


@triton.jit
def halve_backwards(x, y, columns, BLOCK: tl.constexpr):
    row = (tl.program_id(0).to(tl.int64) * 7 + 3) % tl.num_programs(0)
    at = row * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.store(y + at, tl.load(x + at, mask=inside) / 2, mask=inside)


def reads_what_others_wrote(x):
    once = wide(x)
    y = torch.empty_like(once)
    halve_backwards[(len(x),)](once, y, x.shape[1], BLOCK=128)
    return wide(y)


def computes_on_the_host(x):
    return wide(x) * 1.0


def refuses(x):
    if x.numel() > 2**31:
        raise ValueError("more than 2^31 elements")
    return narrow(x)


@triton.jit
def add_halves(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = row * columns + tl.arange(0, BLOCK)
    inside = tl.arange(0, BLOCK) < columns
    tl.atomic_add(y + at, tl.load(x + at, mask=inside), mask=inside)


def adds_atomically(x):
    x = x.contiguous()
    y = torch.zeros_like(x)
    add_halves[(len(x),)](x, y, x.shape[1], BLOCK=128)
    add_halves[(len(x),)](x, y, x.shape[1], BLOCK=128)
    return y


@triton.jit
def gather_rows(x, at, y, columns, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0)
    if WIDE:
        row = row.to(tl.int64)
    number = tl.load(at + row)
    columns_of = tl.arange(0, BLOCK)
    values = tl.load(x + number * columns + columns_of, mask=columns_of < columns)
    tl.store(y + row * columns + columns_of, values, mask=columns_of < columns)


def _gather(x, at, wide):
    x, at = x.contiguous(), at.contiguous()
    y = torch.empty(len(at), x.shape[1], dtype=x.dtype, device=x.device)
    gather_rows[(len(at),)](x, at, y, x.shape[1], BLOCK=128, WIDE=wide)
    return y


def gathers(x, at):
    return _gather(x, at, True)


def gathers_narrowly(x, at):
    return _gather(x, at, False)


def gathered(x, at):
    return x[at]


def rows_to_gather():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(7, 96, generator=generator), torch.randint(0, 7, (5,), generator=generator)


def reference(x):
    return 2 * x


def mixed(x):
    return 2 * x - x.mean(0)


def inputs():
    return (torch.randn(5, 96, generator=torch.Generator().manual_seed(0)),)
