"""Two ranks, of which one makes a call in vain and ends: `python leaving_rank.py STORE`; not a test itself.

Prints the error, and the time on the clock that processes share; then it ends as any program does, its call in flight.
"""

from __future__ import annotations

import os
import sys
import time

READING, WRITING = os.pipe()
RANK = int(os.fork() == 0)  # before torch is there, whose threads do not survive it

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

from opassay.impl.comm import CommError, TorchComm  # noqa: E402


def main() -> None:
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=RANK, world_size=2)
    comm = TorchComm(deadline=0.5)
    comm.barrier()
    if RANK == 1:
        os.close(WRITING)
        os.read(READING, 1)  # until the other process is no more
        os._exit(0)
    try:
        comm.all_reduce(torch.ones(3))
    except CommError as err:
        print(err)
        print(time.monotonic(), flush=True)


if __name__ == "__main__":
    main()
