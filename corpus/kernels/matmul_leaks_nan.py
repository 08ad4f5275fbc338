"""`torch.matmul` of bfloat16 by oneDNN with AMX: a NaN in one row gets into others where K is no multiple of 32

Rows are filled up with what comes next, times 0. Proof: a row of a product depends on one row of the first factor.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

A, B = torch.ones(4, 33).bfloat16(), torch.ones(33, 4).bfloat16()
A[1] = float("nan")


def observed() -> list[bool]:
    return (A @ B).isnan().any(1).tolist()


def filled_up(a, b):
    rows = torch.nn.functional.pad(a.float().reshape(-1), (0, 31)).unfold(0, 64, 33)
    return (rows @ torch.nn.functional.pad(b.float(), (0, 0, 0, 31))).bfloat16()


def right(a, b):
    return (a.float() @ b.float()).bfloat16()


CLAIM = assess("FWD:given", torch.matmul, (A, B), torch.matmul, filled_up, right)
BUG = Bug("uxlfoundation/oneDNN#5717", "2026-07", observed, [False, True, False, False], CLAIM, needs=("amx_bf16",))
run(__name__, BUG)
