"""A program for the ranks of a gloo group: `python gloo_ranks.py RANK SIZE STORE CASE`; prints one JSON object.

Not a test itself: `test_comm_gloo.py` runs it in processes of its own.
"""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

import torch
import torch.distributed as dist

from opassay.impl.comm import CommError, SyncBatchNorm, TorchComm, convert_sync_batchnorm

PARTS = {2: (7, 5), 3: (4, 0, 8)}


def collectives(comm: TorchComm) -> dict[str, Any]:
    """Every collective with values that tell rank and index, of rows that are no contiguous memory."""
    rank, size = comm.rank, comm.size
    results: dict[str, Any] = {}
    for dtype in (torch.float64, torch.float32, torch.bfloat16, torch.int64, torch.complex64):
        x = (torch.arange(6).reshape(3, 2).t() + 10 * rank).to(dtype)
        results[str(dtype)] = {
            "all_reduce": comm.all_reduce(x).real.tolist(),
            "broadcast": comm.broadcast(x, size - 1).real.tolist(),
            "all_gather": [part.real.tolist() for part in comm.all_gather(x[: rank + 1])],
            "gather": [part.real.tolist() for part in comm.gather(x[:rank], 0)],
            "scatter": comm.scatter(x[0].expand(size, 3) + rank, 0).real.tolist(),
            "all_to_all": comm.all_to_all(torch.arange(size).to(dtype) + 10 * rank).real.tolist(),
        }
    results["max"] = comm.all_reduce(torch.tensor([float(rank)]), "max").tolist()
    comm.barrier()
    return results


def training(comm: TorchComm) -> dict[str, Any]:
    """Three steps of a network with SyncBatchNorm, each rank on its part of the batch, gradients summed over ranks."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Linear(6, 2)).double()
    model: Any = convert_sync_batchnorm(layers, comm=comm)
    assert isinstance(model[1], SyncBatchNorm)
    data, target = torch.randn(12, 4).double(), torch.randn(12, 2).double()
    part = PARTS[comm.size]
    rows = slice(sum(part[: comm.rank]), sum(part[: comm.rank + 1]))
    for _ in range(3):
        model.zero_grad()
        ((model(data[rows]) - target[rows]) ** 2).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p -= 0.01 * comm.all_reduce(torch.zeros_like(p) if p.grad is None else p.grad)
    return {name: value.flatten().tolist() for name, value in model.state_dict().items()}


def different(comm: TorchComm) -> dict[str, Any]:
    """One rank makes another call than the rest; then another whose name differs at its very end."""
    results = {"error": "", "long": ""}
    try:
        comm.all_reduce(torch.ones(3), "max" if comm.rank == 1 else "sum", tag="gradients")
    except CommError as err:
        results["error"] = str(err)
    try:
        TorchComm().all_reduce(torch.ones(3), tag=300 * "x" + str(comm.rank == 1))
    except CommError as err:
        results["long"] = str(err)
    return results


def main() -> None:
    rank, size, store, case = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
    torch.set_num_threads(1)
    file_store = torch._C._distributed_c10d.FileStore(store, size)
    dist.init_process_group(
        "gloo", store=file_store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=30)
    )
    cases = {"collectives": collectives, "training": training, "different": different}
    results = {name: cases[name](TorchComm()) for name in case.split(",")}
    print(json.dumps(results))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
