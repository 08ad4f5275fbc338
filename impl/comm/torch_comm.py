"""`TorchComm`: ranks of a torch.distributed process group (gloo, NCCL)."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .base import Comm, SoloComm
from .call import Call, CommError

#: Bytes of a fingerprint as it travels; a call whose text is longer is cut, which its length tells.
_BYTES = 256


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
        self.fingerprints, self.sizes, self._number = fingerprints, [], 0

    def _run(self, call: Call, x: Tensor) -> Tensor:
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
        text = f"{self._number}|{call.key()!r}|{call}".encode()
        row = torch.zeros(_BYTES, dtype=torch.uint8)
        row[: min(len(text), _BYTES)] = torch.tensor(list(text[:_BYTES]), dtype=torch.uint8)
        rows = [torch.empty(_BYTES, dtype=torch.uint8, device=device) for _ in range(self.size)]
        dist.all_gather(rows, row.to(device), group=self.group)
        told = [bytes(r.tolist()).rstrip(b"\0").decode(errors="replace").split("|") for r in rows]
        if len({tuple(parts[:2]) for parts in told}) > 1:
            calls = [f"rank {r} in call {parts[0]}, {parts[-1]}" for r, parts in enumerate(told)]
            raise CommError("different calls: " + "; ".join(calls))

    def _collective(self, call: Call, x: Tensor) -> Tensor:
        root = None if call.root is None else dist.get_global_rank(self.group, call.root)
        match call.op:
            case "all_reduce" | "reduce":
                kind = {"sum": dist.ReduceOp.SUM, "max": dist.ReduceOp.MAX, "min": dist.ReduceOp.MIN}[
                    call.reduction or ""
                ]
                total = x.clone()
                dist.all_reduce(total, kind, group=self.group)
                return total if call.op == "all_reduce" or self.rank == call.root else x.clone()
            case "broadcast":
                sent = x.clone()
                dist.broadcast(sent, root, group=self.group)
                return sent
            case "all_gather" | "gather":
                return self._gathered(call, x)
            case "scatter":
                mine = torch.empty_like(x[0])
                parts = [part.contiguous() for part in x] if self.rank == call.root else None
                dist.scatter(mine, parts, src=root, group=self.group)
                return mine
            case "all_to_all":
                whole = [torch.empty_like(x) for _ in range(self.size)]
                dist.all_gather(whole, x, group=self.group)
                return torch.stack([part[self.rank] for part in whole])
        dist.barrier(group=self.group)
        return x.clone()

    def _gathered(self, call: Call, x: Tensor) -> Tensor:
        """Concatenated along axis 0; ranks with fewer rows send as many as the longest, and those are cut off again."""
        mine = torch.tensor([x.shape[0]], device=x.device)
        counts = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(counts, mine, group=self.group)
        self.sizes = [int(count) for count in counts]
        padded = x.new_zeros((max(self.sizes), *x.shape[1:]))
        padded[: x.shape[0]] = x
        whole = [torch.empty_like(padded) for _ in range(self.size)]
        dist.all_gather(whole, padded, group=self.group)
        if call.op == "gather" and self.rank != call.root:
            return x.clone()
        return torch.cat([part[:count] for part, count in zip(whole, self.sizes, strict=True)])
