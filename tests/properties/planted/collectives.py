"""Mistakes in what moves tensors between devices and ranks: each is one change of its source."""

from __future__ import annotations

import dataclasses
from typing import Any

import opassay.impl.comm.devices
import opassay.impl.comm.ranks
import opassay.reference
from opassay import Code
from opassay.properties.catalog.collectives.declarations import declaration
from opassay.properties.catalog.collectives.moving import Moves

from ..changed_source import changed
from .fault import WRONG, Fault

OF_RANKS = ("base", "lockstep", "collective")
OF_DEVICES = ("planner", "fabric", "logical", "host_fabric", "movement", "differentiable")
#: Of ranks whose calls differ, of races, of tensors on other devices than promised.
NOTICED = (*WRONG, Code.RAISED, Code.NOT_RAISED, Code.ATTRIBUTE, Code.MEMORY, Code.MUTATED)


def _fault(op: str, name: str, module: str, old: str, new: str, dtype: str = "float32", code: str = "COMM") -> Fault:
    assert module in {"meeting", *OF_RANKS, *OF_DEVICES}
    ranks = changed(opassay.impl.comm.ranks, OF_RANKS, module, old, new)
    # How ranks meet stands in another folder, so its names are put where the changed ranks look for them.
    meeting = changed(opassay.reference, ("meeting",), module, old, new).meeting
    vars(ranks.lockstep).update({each: vars(meeting)[each] for each in ("Meeting", "MeetingError", "Turn")})
    devices = changed(opassay.impl.comm.devices, OF_DEVICES, module, old, new)
    moves = Moves(devices.differentiable, ranks.collective, devices.host_fabric.HostFabric, devices.fabric)

    def run(size: int, program: Any) -> Any:
        return ranks.lockstep.LockstepWorld(size, order="random", seed=size, forward_mode=True).run(program)

    declared = declaration(op, moves)
    assert declared.production.ranks is not None
    declared = declared.changed(ranks=dataclasses.replace(declared.production.ranks, run=run))
    return Fault(op, name, declared, code, dtype, NOTICED)


FAULTS = (
    _fault("scatter", "no wait for the background copy", "movement", "            fabric.wait(main, side)\n", ""),
    _fault("scatter", "copy not kept for the main stream", "movement", "            fabric.keep(copy, main)\n", ""),
    _fault(
        "scatter",
        "parts routed to the next device",
        "movement",
        "copy = fabric.copy(part, device, side)",
        "copy = fabric.copy(part, devices[lane - 1], side)",
    ),
    _fault(
        "scatter",
        "the wrong part",
        "movement",
        "zip(x.split(lengths, dim), devices, strict=False)",
        "zip(x.roll(1, dim).split(lengths, dim), devices, strict=False)",
    ),
    _fault(
        "scatter",
        "gradient gathered along axis 0",
        "differentiable",
        "Gather.apply(ctx.home, ctx.dim, *grads)",
        "Gather.apply(ctx.home, 0, *grads)",
    ),
    _fault(
        "broadcast",
        "gradient of one device, not of all",
        "differentiable",
        "rows = [grads[row + i] for row in range(0, len(grads), count) for i in own]",
        "rows = [grads[i] for i in own]",
    ),
    _fault(
        "broadcast",
        "order of a bucket reversed",
        "movement",
        "_join([x.reshape(-1) for x in tensors], 0)",
        "_join([x.reshape(-1) for x in tensors[::-1]], 0)",
    ),
    _fault(
        "broadcast",
        "tensors of two dtypes in a bucket",
        "movement",
        "(x.dtype, x.device, x.layout, -1 if moving else i)",
        "(x.device, x.layout)",
        dtype="bfloat16",
        code="COMM",
    ),
    _fault(
        "reduce_add_coalesced",
        "sums of half types in half precision",
        "movement",
        "total = first.to(compute_dtype(first.dtype))",
        "total = first",
        "bfloat16",
    ),
    _fault(
        "reduce_add_coalesced",
        "the last place left out",
        "movement",
        "    for x in others:\n",
        "    for x in others[:-1]:\n",
    ),
    _fault(
        "reduce_add_coalesced",
        "gradient on the first device alone",
        "differentiable",
        "return [None if place is None else next(copies) for place in places]",
        "return [None if i else next(copies) for i, place in enumerate(places)]",
    ),
    _fault(
        "gather",
        "as many rows from each device",
        "differentiable",
        "1 if ctx.scalars else x.shape[ctx.dim] for x in tensors",
        "output.shape[ctx.dim] // len(tensors) for x in tensors",
    ),
    _fault(
        "gather",
        "on the device of the first input",
        "movement",
        "out = fabric.empty(first, whole, destination)",
        "out = fabric.empty(first, whole, tensors[-1].device)",
    ),
    _fault(
        "scatter",
        "made contiguous, and the original sent",
        "base",
        "return self._run(call, x.detach().contiguous())",
        "x.detach().contiguous(); return self._run(call, x.detach())",
    ),
    _fault(
        "broadcast",
        "gradient of a broadcast not summed over ranks",
        "collective",
        "return Collective.apply(g, ctx.comm, ctx.step.adjoint()), None, None",
        "return g, None, None",
    ),
    _fault(
        "gather",
        "derivative of a gather on ranks not sent",
        "collective",
        "return Collective.apply(g, ctx.comm, ctx.step.adjoint()), None, None",
        "return g, None, None",
    ),
    _fault(
        "gather",
        "ranks in reverse order",
        "collective",
        "return torch.cat(parts) if home",
        "return torch.cat(parts[::-1]) if home",
    ),
    _fault(
        "broadcast",
        "every rank its own",
        "collective",
        "return comm.broadcast(x, step.root, step.tag)",
        "return comm.broadcast(x, step.root, step.tag) * 0 + x",
    ),
    _fault(
        "broadcast",
        "sum over ranks handed to all",
        "collective",
        "return total if home else torch.zeros_like(total)",
        "return comm.all_reduce(x)",
    ),
    _fault(
        "scatter",
        "rows that fill up are kept",
        "collective",
        "[: step.sizes[comm.rank]].clone()",
        ".clone()",
    ),
    _fault(
        "reduce_add_coalesced",
        "half types added on the wire",
        "collective",
        "if step.kind in _SUMS and compute_dtype(x.dtype) != x.dtype:",
        "if False:",
        "bfloat16",
    ),
    _fault(
        "gather",
        "an empty rank sends another dtype",
        "collective",
        "comm.gather(x, step.root, step.tag)",
        "comm.gather(x if x.shape[0] else x.double(), step.root, step.tag)",
    ),
    _fault(
        "scatter",
        "every copy made twice",
        "movement",
        "copy = fabric.copy(part, device, side)",
        "fabric.copy(part, device, side); copy = fabric.copy(part, device, side)",
    ),
    _fault("gather", "a copy dropped", "movement", "fabric.copy(x, destination, out=part)", "pass"),
    _fault(
        "broadcast",
        "a number negated on the way",
        "movement",
        "_unpack(fabric.copy(flat, device), members)",
        "_unpack(fabric.copy(flat * 1, device).mul_(-1), members)",
    ),
    _fault(
        "reduce_add_coalesced",
        "added into the first term",
        "movement",
        "        total = total + x\n",
        "        total = total.add_(x)\n",
        code="PURE",
    ),
    _fault("scatter", "no race is told", "logical", "if not stream.has_seen(other, number):", "if False:"),
    _fault("scatter", "no memory is freed", "logical", "        if self.races:\n", "        if False:\n"),
    _fault("scatter", "two fabrics mixed", "logical", "t.fabric.devices is not fabric.devices", "False"),
    _fault("scatter", "two devices mixed", "logical", "t.device != device and", "False and"),
    _fault("broadcast", "sparse tensors in a bucket", "movement", "(kind, i if sparse else -1)", "kind"),
    _fault("broadcast", "cast by autocast", "movement", "with torch.autocast(kind, enabled=False):", "if True:"),
    _fault("gather", "calls that differ", "meeting", "if len({each.agreed for each in posts}) > 1:", "if False:"),
    _fault(
        "gather",
        "what was raised is no cause",
        "lockstep",
        "CommError(meeting.failed) from next(iter(errors), None)",
        "CommError(meeting.failed)",
    ),
    _fault("broadcast", "sizes that are changed later", "collective", "tuple(sizes), f", "sizes, f"),
    _fault(
        "reduce_add_coalesced",
        "half types returned as float32",
        "collective",
        "comm, step).to(x.dtype)",
        "comm, step)",
        "bfloat16",
    ),
)
