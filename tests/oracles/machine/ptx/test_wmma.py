"""wmma as CUDA C++ writes it (nvcuda::wmma): every shape and type, both layouts, from shared and global memory."""

from __future__ import annotations

import pytest
import torch

import opassay
from opassay.oracles.machine.ptx import nvrtc
from opassay.oracles.verdicts.violation import Violation

pytestmark = pytest.mark.skipif(not nvrtc.library_paths(), reason="NVRTC is not installed: opassay[cuda-source]")
_SOURCE = r"""
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
__global__ void multiply(const T* a, const T* b, const S* c, S* d) {
    wmma::fragment<wmma::matrix_a, M, N, K, F, wmma::A_LAYOUT> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, F, wmma::B_LAYOUT> fb;
    wmma::fragment<wmma::accumulator, M, N, K, S> fc;
    __shared__ alignas(32) T own[SIZE_A];
    for (int i = threadIdx.x; i < SIZE_A; i += 32) own[i] = a[i];
    BARRIER
    wmma::load_matrix_sync(fa, FROM, LDA);
    wmma::load_matrix_sync(fb, b, LDB);
    wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, M, wmma::mem_col_major);
}
"""
_TYPES = {
    "half": (torch.float16, "half", torch.float32, "float"),
    "half into half": (torch.float16, "half", torch.float16, "half"),
    "bfloat16": (torch.bfloat16, "__nv_bfloat16", torch.float32, "float"),
    "int8": (torch.int8, "signed char", torch.int32, "int"),
    "tf32": (torch.float32, "float", torch.float32, "float"),
}


def _multiply(
    kind: str,
    shape: tuple[int, int, int],
    by_rows: tuple[bool, bool],
    where: str = "own",
    barrier: str = "__syncwarp();",
) -> tuple[torch.Tensor, torch.Tensor]:
    """The product that a kernel gives, and the right one, of small whole numbers."""
    dtype, name, sums, of_sums = _TYPES[kind]
    m, n, k = shape
    generator = torch.Generator().manual_seed(3)
    a, b, c = (torch.randint(-4, 5, size, generator=generator) for size in ((m, k), (k, n), (m, n)))
    stored_a, stored_b = (x if rows else x.t() for x, rows in zip((a, b), by_rows, strict=True))
    words = {
        "A_LAYOUT": f"{'row' if by_rows[0] else 'col'}_major", "B_LAYOUT": f"{'row' if by_rows[1] else 'col'}_major",
        "SIZE_A": m * k, "LDA": stored_a.shape[1], "LDB": stored_b.shape[1], "FROM": where, "BARRIER": barrier,
    }  # fmt: skip
    source = _SOURCE
    for word, value in words.items():
        source = source.replace(word, str(value))
    types = {"T": name, "S": of_sums, "F": "wmma::precision::tf32" if kind == "tf32" else name}
    defined = "".join(f"#define {word} {value}\n" for word, value in {"M": m, "N": n, "K": k}.items())
    aliases = "".join(f"#define {word} {value}\n" for word, value in types.items())
    head, body = source.split("using namespace", 1)
    d = torch.zeros(n, m, dtype=sums)
    kernel = opassay.cuda_kernel(f"{head}{defined}{aliases}using namespace{body}", "multiply", 1, 32)
    kernel(stored_a.to(dtype).contiguous(), stored_b.to(dtype).contiguous(), c.to(sums), d)
    return d.t(), (a @ b + c).to(sums)


@pytest.mark.parametrize("by_rows", [(True, True), (True, False), (False, True), (False, False)])
@pytest.mark.parametrize("shape", [(16, 16, 16), (32, 8, 16), (8, 32, 16)])
@pytest.mark.parametrize("kind", ["half", "half into half", "bfloat16", "int8"])
@pytest.mark.one_fast_in(7)
def test_products_are_right(kind: str, shape: tuple[int, int, int], by_rows: tuple[bool, bool]) -> None:
    computed, right = _multiply(kind, shape, by_rows)
    assert torch.equal(computed, right)


@pytest.mark.parametrize("by_rows", [(True, True), (False, False)])
def test_products_of_tf32_are_right(by_rows: tuple[bool, bool]) -> None:
    computed, right = _multiply("tf32", (16, 16, 8), by_rows, "a")
    assert torch.equal(computed, right)


def test_a_matrix_that_others_still_write_is_a_race() -> None:
    with pytest.raises(Violation, match=r"wmma\.load"):
        _multiply("half", (16, 16, 16), (True, True), barrier="")
