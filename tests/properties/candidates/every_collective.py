"""A rank that makes every collective, over gloo or by a judge: `RANK SIZE WAY STORE`; its results go to a file."""

import json
import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

rank, size, way, store = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
if way == "gloo":
    dist.init_process_group("gloo", store=dist.FileStore(store + ".meet", size), rank=rank, world_size=size)
else:
    from opassay.properties.candidates.ranks.seats import Seat, take_seat

    def consult(message):
        print(json.dumps(message), flush=True)
        return json.loads(sys.stdin.readline())

    take_seat(Seat(rank, size), f"{store}.{rank}", consult)
x = torch.arange(6.0) * (rank + 2) - rank


def own(n):
    return [torch.empty(6) for _ in range(n)]


def wait(works):
    for work in works:
        work.wait()


def whole(call, like=None):
    y = x.clone() if like is None else like
    call(y)
    return y


def gathered(call, count=size):
    ys = own(count)
    call(ys)
    return torch.stack(ys) if ys else torch.zeros(0)


def ring(send, take):
    y = torch.empty(6)
    wait([send(x, (rank + 1) % size), take(y, (rank - 1) % size)])
    return y


def batch():
    y, after, before = torch.empty(6), (rank + 1) % size, (rank - 1) % size
    wait(dist.batch_isend_irecv([dist.P2POp(dist.isend, x, after), dist.P2POp(dist.irecv, y, before)]))
    return y


def objects():
    every = [None] * size
    dist.all_gather_object(every, {"rank": rank})
    return torch.tensor([each["rank"] for each in every])


def group():
    groups = [dist.new_group(ranks) for ranks in ([0, 1], [2])]
    return whole(lambda y: dist.all_reduce(y, group=groups[rank // 2]))


R, root = dist.ReduceOp, 1
calls = {
    "sum": lambda: whole(lambda y: dist.all_reduce(y)),
    "largest": lambda: whole(lambda y: dist.all_reduce(y, R.MAX)),
    "least": lambda: whole(lambda y: dist.all_reduce(y, R.MIN)),
    "product": lambda: whole(lambda y: dist.all_reduce(y, R.PRODUCT)),
    "half": lambda: whole(lambda y: dist.all_reduce(y), x.bfloat16()),
    "broadcast": lambda: whole(lambda y: dist.broadcast(y, root)),
    "reduce": lambda: whole(lambda y: dist.reduce(y, root))[: 6 * (rank == root)],
    "all_gather": lambda: gathered(lambda ys: dist.all_gather(ys, x)),
    "into": lambda: whole(lambda y: dist.all_gather_into_tensor(y, x), torch.empty(6 * size)),
    "gather": lambda: gathered(lambda ys: dist.gather(x, ys or None, root), size if rank == root else 0),
    "scatter": lambda: whole(lambda y: dist.scatter(y, [x + i for i in range(size)] if rank == root else None, root)),
    "exchange": lambda: whole(lambda y: dist.all_to_all_single(y, x), torch.empty(6)),
    "splits": lambda: whole(
        lambda y: dist.all_to_all_single(y, x, [rank + 1] * 3, [1, 2, 3]), torch.empty(3 * rank + 3)
    ),
    "scattered": lambda: whole(lambda y: dist.reduce_scatter_tensor(y, x), torch.empty(6 // size)),
    "sent": lambda: ring(dist.isend, dist.irecv),
    "batch": batch,
    "objects": objects,
    "group": group,
    "functional": lambda: functional.all_reduce(x, "sum", dist.group.WORLD) + 0,
    "rows": lambda: functional.all_gather_tensor(x, 0, dist.group.WORLD) + 0,
}
results = {}
for name, call in calls.items():
    try:
        results[name] = call()
    except (RuntimeError, NotImplementedError) as err:
        results[name] = f"{type(err).__name__}: {err}"
torch.save(results, f"{store}.{way}.{rank}")
