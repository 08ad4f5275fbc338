"""`TorchComm`: ranks of a torch.distributed process group."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .base import Comm, SoloComm
from .call import Call, CommError

#: A fingerprint as it travels: the digest that is compared, and as much of the call's text as there is room for.
_DIGEST, _BYTES = 32, 256


def default_comm(group: Any = None) -> Comm:
    """This process's rank in a process group, by default the default one; alone where torch.distributed is not used."""
    used = dist.is_available() and dist.is_initialized()
    return TorchComm(group) if used else SoloComm()


class TorchComm(Comm):
    """This process's rank in a process group.

    Args:
        group: a `torch.distributed` process group; the default one if None.
        fingerprints: whether every call is preceded by an exchange of what it is. Without it, calls that differ in
            tag, reduction, order, or dtype of the same size give wrong numbers and no error.

    Raises:
        RuntimeError: torch.distributed is not initialised.
    """

    def __init__(self, group: Any = None, fingerprints: bool = True) -> None:
        if not dist.is_available() or not dist.is_initialized():
            raise RuntimeError("TorchComm: torch.distributed is not initialised, need init_process_group before.")
        self.group: Any = dist.group.WORLD if group is None else group
        self.rank, self.size = dist.get_rank(self.group), dist.get_world_size(self.group)
        self.fingerprints, self._number = fingerprints, 0

    def _run(self, call: Call, x: Tensor) -> list[Tensor]:
        self._number += 1
        try:
            if self.fingerprints:
                self._require_one_call(call, x.device)
            return self._collective(call, x)
        except CommError:
            raise
        except RuntimeError as err:
            where = f"rank {self.rank} of {self.size}, call {self._number}, {call}"
            raise CommError(f"{where}: {str(err).splitlines()[0]}") from err

    def _require_one_call(self, call: Call, device: torch.device) -> None:
        digest = hashlib.sha256(f"{self._number} {call.key()!r}".encode()).digest()
        text = f"rank {self.rank} in call {self._number}, {call}".encode()
        whole = (digest + text)[:_BYTES].ljust(_BYTES, b"\0")
        row = torch.frombuffer(bytearray(whole), dtype=torch.uint8).to(device)
        rows = [torch.empty_like(row) for _ in range(self.size)]
        dist.all_gather(rows, row, group=self.group)
        told = [bytes(r.tolist()) for r in rows]
        if len({each[:_DIGEST] for each in told}) > 1:
            texts = (each[_DIGEST:].rstrip(b"\0").decode(errors="replace") for each in told)
            raise CommError("different calls: " + "; ".join(texts))

    def _collective(self, call: Call, x: Tensor) -> list[Tensor]:
        root = None if call.root is None else dist.get_global_rank(self.group, call.root)
        match call.op:
            case "all_reduce" | "reduce":
                total = x.clone()
                dist.all_reduce(total, _reduction(call), group=self.group)
                return [total if call.op == "all_reduce" or self.rank == call.root else x.clone()]
            case "broadcast":
                sent = x.clone()
                dist.broadcast(sent, root, group=self.group)
                return [sent]
            case "all_gather" | "gather":
                found = self._gathered(x)
                return found if call.op == "all_gather" or self.rank == call.root else []
            case "scatter":
                mine = torch.empty_like(x[0])
                parts = [part.contiguous() for part in x] if self.rank == call.root else None
                dist.scatter(mine, parts, src=root, group=self.group)
                return [mine]
            case "all_to_all":
                return [part[self.rank].clone() for part in self._gathered(x)]
        dist.barrier(group=self.group)
        return [x.clone()]

    def _gathered(self, x: Tensor) -> list[Tensor]:
        """Every rank's x; ranks with fewer rows send as many as the longest, and those are cut off again."""
        rows = torch.tensor([x.shape[0]], device=x.device)
        counts = [torch.empty_like(rows) for _ in range(self.size)]
        dist.all_gather(counts, rows, group=self.group)
        sizes = [int(count) for count in counts]
        padded = x.new_zeros((max(sizes), *x.shape[1:]))
        padded[: x.shape[0]] = x
        whole = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(whole, padded, group=self.group)
        return [part[:size] for part, size in zip(whole, sizes, strict=True)]


def _reduction(call: Call) -> Any:
    return {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}[call.reduction or "sum"]
