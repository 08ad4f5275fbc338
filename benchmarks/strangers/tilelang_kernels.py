"""Kernels of TileLang as the CUDA C++ that it generates: right ones, and the same with a fault.

TileLang compiles by nvcc; its source is compiled by NVRTC here, with the headers that its package has.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import tilelang
import tilelang.language as T
import torch
from tilelang import tvm

import opassay

_THREADS = 128
_HEADERS = Path(tilelang.__file__).parent
_OPTIONS = [f"-I{_HEADERS / 'src'}", f"-I{_HEADERS / '3rdparty/cutlass/include'}", "-default-device"]


def _compile(program, grid):
    """A program of TileLang as a function of tensors, whose rows may be any number."""
    target = {"kind": "cuda", "arch": os.environ.get("OPASSAY_PTX_ARCHITECTURE", "sm_80")}
    with tvm.target.Target(target):
        source = "#include <type_traits>\n" + tilelang.lower(program, target=target).kernel_source
    name = f"{program.attrs['global_symbol']}_kernel"
    kernel = opassay.cuda_kernel(source, name, grid=grid, block=_THREADS, shared=2**15, options=_OPTIONS)
    # The number of rows, which a program may have left open, is a parameter where the kernel needs it.
    return lambda *tensors: kernel(*tensors, *[len(tensors[0])][: len(kernel.kinds) - len(tensors)])


@functools.cache
def _rms_norm(columns, eps=1e-6, late=False):
    rows = T.dynamic("rows")

    @T.prim_func
    def rms(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(rows, threads=_THREADS) as row:
            numbers = T.alloc_fragment((1, columns), "float32")
            squares = T.alloc_fragment((1, columns), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(x[row, 0], numbers)
            for i, j in T.Parallel(1, columns):
                squares[i, j] = numbers[i, j] * numbers[i, j]
            T.reduce_sum(squares, total, dim=1)
            for i, j in T.Parallel(1, columns):
                if late:
                    numbers[i, j] = numbers[i, j] * (T.rsqrt(total[i] / columns) + eps)
                else:
                    numbers[i, j] = numbers[i, j] * T.rsqrt(total[i] / columns + eps)
            T.copy(numbers, y[row, 0])

    return _compile(rms, lambda x, *_: len(x))


@functools.cache
def _softmax(columns, shifted=True):
    rows = T.dynamic("rows")

    @T.prim_func
    def softmax(x: T.Tensor((rows, columns), "float32"), y: T.Tensor((rows, columns), "float32")):
        with T.Kernel(rows, threads=_THREADS) as row:
            numbers = T.alloc_fragment((1, columns), "float32")
            largest = T.alloc_fragment((1,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.copy(x[row, 0], numbers)
            T.reduce_max(numbers, largest, dim=1)
            for i, j in T.Parallel(1, columns):
                numbers[i, j] = T.exp(numbers[i, j] - largest[i] if shifted else numbers[i, j])
            T.reduce_sum(numbers, total, dim=1)
            for i, j in T.Parallel(1, columns):
                numbers[i, j] = numbers[i, j] / total[i]
            T.copy(numbers, y[row, 0])

    return _compile(softmax, lambda x, *_: len(x))


@functools.cache
def _matmul(inner, columns, narrow=False):
    rows, tile, deep = T.dynamic("rows"), 64, 32

    @T.prim_func
    def matmul(
        a: T.Tensor((rows, inner), "float16"),
        b: T.Tensor((inner, columns), "float16"),
        c: T.Tensor((rows, columns), "float16"),
    ):
        with T.Kernel(T.ceildiv(columns, tile), T.ceildiv(rows, tile), threads=_THREADS) as (bx, by):
            left = T.alloc_shared((tile, deep), "float16")
            right = T.alloc_shared((deep, tile), "float16")
            sums = T.alloc_fragment((tile, tile), "float16" if narrow else "float32")
            T.clear(sums)
            for k in T.Pipelined(T.ceildiv(inner, deep), num_stages=2):
                T.copy(a[by * tile, k * deep], left)
                T.copy(b[k * deep, bx * tile], right)
                T.gemm(left, right, sums)
            T.copy(sums, c[by * tile, bx * tile])

    return _compile(matmul, lambda a, *_: (-(-columns // tile), -(-len(a) // tile)))


def _ready(x):
    """A tensor as kernels take it: contiguous, at a multiple of what they copy at once."""
    return x.contiguous() if x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)


def _of_rows(make, **options):
    def candidate(x):
        x = _ready(x)
        y = torch.empty_like(x)
        make(x.shape[1], **options)(x, y)
        return y

    return candidate


def _of_products(**options):
    def candidate(a, b):
        a, b = _ready(a), _ready(b)
        c = a.new_empty(a.shape[0], b.shape[1])
        _matmul(*b.shape, **options)(a, b, c)
        return c

    return candidate


rms_norm, rms_norm_adds_eps_late = _of_rows(_rms_norm), _of_rows(_rms_norm, late=True)
softmax, softmax_overflows = _of_rows(_softmax), _of_rows(_softmax, shifted=False)
matmul, matmul_sums_in_float16 = _of_products(), _of_products(narrow=True)


def rms_norm_reference(x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], None, 1e-6)


def softmax_reference(x):
    return torch.softmax(x, -1)


def matmul_reference(a, b):
    return a @ b


def inputs(family="rows"):
    """The arguments of a family."""
    if family == "products":
        return torch.randn(70, 96).half(), torch.randn(96, 64).half()
    return (torch.randn(5, 128),)
