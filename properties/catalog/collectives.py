"""Declarations of broadcast, reduce_add_coalesced, gather and scatter: over devices of one program, and over ranks.

An ordinary cell has all places on one device. COMM has them apart: on the devices of a fabric, and on ranks, where the
same op is a collective.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ...impl.comm import collective, devices
from ...oracles.op import Devices, Draft, Homes, Op, Promises, Ranks
from ...reference import collectives as formulas
from ...reference.formats import FORMATS
from .. import strategies, worlds
from .collectives_laws import LAWS, REFUSALS
from .collectives_torch import OnGpus, nowhere, peers

Args = tuple[Any, ...]
HALF = ("bfloat16", "float16")

# ------------------------------------------------------------------------- the ops, all places where the tensors are


def _broadcast(cls: Any, places: int, *args: Any) -> Any:
    return cls.apply((args[0].device,) * places, *args)


def _reduce(cls: Any, num_inputs: int, *args: Any) -> Any:
    return cls.apply(args[0].device, num_inputs, *args)


def _gather(cls: Any, dim: int, *args: Any) -> Any:
    return cls.apply(args[0].device, dim, *args)


def _scatter(cls: Any, chunk_sizes: tuple[int, ...], dim: int, input: Any) -> Any:
    return cls.apply((input.device,) * len(chunk_sizes), chunk_sizes, dim, input)


# --------------------------------------------------------------------------------------- places: homes, devices, ranks


def _broadcast_homes(args: Args, root: int = 0) -> Homes:
    places, count = args[0], len(args) - 1
    return Homes((root,) * count, tuple(p for p in range(places) for _ in range(count)))


def _reduce_homes(args: Args, root: int = 0) -> Homes:
    count = args[0]
    return Homes(tuple(i // count for i in range(len(args) - 1)), (root,) * count)


def _gather_homes(args: Args, root: int = 0) -> Homes:
    return Homes(tuple(range(len(args) - 1)), (root,))


def _scatter_homes(args: Args, root: int = 0) -> Homes:
    return Homes((root,), tuple(range(len(args[0]))))


def _places(homes: Callable[..., Homes], args: Args, rng: Any = None) -> int:
    found = homes(args)
    return 1 + max((*found.arguments, *found.outputs))


def _on_host_or_not(homes: Callable[..., Homes], args: Args) -> Homes:
    """On devices, what is whole is on the host where their number is odd, else on the first."""
    return homes(args, root=-1 if _places(homes, args) % 2 else 0)


def _on_devices(cls: Any, copy: Any, given: Callable[..., Args], fabric: Any, homes: Homes, *args: Any) -> Any:
    """(outputs on the host, devices that they were on)."""
    with fabric.active():
        where = iter(homes.arguments)
        placed = [copy.apply(a, fabric.device(next(where))) if isinstance(a, torch.Tensor) else a for a in args]
        outputs = cls.apply(*given(fabric, homes, *placed))
        listed = outputs if isinstance(outputs, tuple) else (outputs,)
        return tuple(copy.apply(y, "cpu") for y in listed), [y.device for y in listed]


def _ranks_broadcast(over: Any, comm: Any, places: int, *args: Any) -> Any:
    own = [over.broadcast(x, 0, comm) for x in args]
    return tuple(y if p == comm.rank else torch.zeros_like(y) for p in range(places) for y in own)


def _ranks_reduce(over: Any, comm: Any, num_inputs: int, *args: Any) -> Any:
    own = args[comm.rank * num_inputs : (comm.rank + 1) * num_inputs]
    return tuple(over.reduce(x, 0, comm) for x in own)


def _ranks_gather(over: Any, comm: Any, dim: int, *args: Any) -> Any:
    if args[0].dim() == 0:
        return over.gather(args[comm.rank].reshape(1), 0, (1,) * len(args), comm)
    axis = dim % args[0].dim()
    whole = over.gather(args[comm.rank].movedim(axis, 0), 0, [x.shape[axis] for x in args], comm)
    return whole.movedim(0, axis)


def _ranks_scatter(over: Any, comm: Any, chunk_sizes: tuple[int, ...], dim: int, input: Any) -> Any:
    own = over.scatter(input.movedim(dim, 0), 0, chunk_sizes, comm).movedim(0, dim)
    axis = dim % input.dim()
    shapes = [(*input.shape[:axis], size, *input.shape[axis + 1 :]) for size in chunk_sizes]
    return tuple(own if p == comm.rank else input.new_zeros(shape) for p, shape in enumerate(shapes))


# ------------------------------------------------------------------------------------------------------------ samples


def _values(draw: st.DrawFn, kind: str) -> tuple[str, Any]:
    regime = "integers" if kind == "integers" else draw(strategies.regimes(kind))
    return regime, strategies.integers if kind == "integers" else strategies.REGIMES[regime]


def _tensor(values: Any, rng: Any, shape: tuple[int, ...], dtype: str) -> torch.Tensor:
    rows = values(rng, (math.prod(shape[:-1]), shape[-1] if shape else 1), FORMATS[dtype])
    return strategies.to_dtype(np.reshape(rows, shape), dtype)


@st.composite
def _shape(draw: st.DrawFn, kind: str, places: int, dims: tuple[int, ...] = (1, 0, 2)) -> tuple[int, ...]:
    limit = strategies.LARGEST if kind == "large" else 48
    rank = draw(st.sampled_from(tuple(d for d in dims if d or kind not in ("empty", "large"))))
    return tuple(draw(strategies.extents(kind, rank, max(limit // places, 2))))


def _sizes(shape: tuple[int, ...]) -> dict[str, int]:
    """`Draft.extents` of a tensor."""
    return {f"axis {i}": n for i, n in enumerate(shape)}


@st.composite
def _many(draw: st.DrawFn, dtype: str, kind: str = "ordinary", *, reduced: bool) -> Draft:
    """Some tensors, of shapes of their own: once for a broadcast, at every place for a sum."""
    places, count = draw(st.sampled_from(worlds.places())), draw(st.sampled_from((2, 1, 3)))
    shapes = [draw(_shape(kind, places * count)) for _ in range(count)]
    regime, values = _values(draw, kind)
    # With the half types, now and then one of float32, as parameters of one module are.
    others = (dtype, "float32") if dtype in HALF else (dtype,)
    columns = [(shape, draw(st.sampled_from(others))) for shape in shapes]
    wanted = columns * places if reduced else columns
    first = count if reduced else places
    return Draft(lambda rng: (first, *(_tensor(values, rng, *column) for column in wanted)), regime, _sizes(shapes[0]))


@st.composite
def _gathered(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """Parts of their own lengths, of none too; now and then 0-dim."""
    places = draw(st.sampled_from(worlds.places()))
    shape = draw(_shape(kind, places))
    regime, values = _values(draw, kind)
    if not shape:
        dim, shapes = draw(st.sampled_from((0, -1))), [shape] * places
    else:
        dim = draw(st.integers(-len(shape), len(shape) - 1))
        lengths = [draw(st.integers(0, shape[dim])) for _ in range(places)]
        if kind == "large":
            lengths[0] = shape[dim]
        axis = dim % len(shape)
        shapes = [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]
    return Draft(lambda rng: (dim, *(_tensor(values, rng, s, dtype) for s in shapes)), regime, _sizes(shape))


@st.composite
def _scattered(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """Any sizes, of none too."""
    places = draw(st.sampled_from(worlds.places()))
    shape = draw(_shape(kind, 1, (1, 2)))
    regime, values = _values(draw, kind)
    dim = draw(st.integers(-len(shape), len(shape) - 1))
    cuts = sorted(draw(st.integers(0, shape[dim])) for _ in range(places - 1))
    sizes = tuple(b - a for a, b in itertools.pairwise((0, *cuts, shape[dim])))
    return Draft(lambda rng: (sizes, dim, _tensor(values, rng, shape, dtype)), regime, _sizes(shape))


# ------------------------------------------------------------------------------------------------------- declarations


@dataclass(frozen=True)
class Moves:
    """What moves tensors: the autograd classes over devices, the functions over ranks, and a fabric of a size."""

    devices: Any
    collective: Any
    fabric: Callable[[int], Any]


@dataclass(frozen=True)
class _Plan:
    """How an op is called, on one device, on several (`given`: what its class takes), and on ranks."""

    cls: str
    adapter: Callable[..., Any]
    samples: Callable[..., Any]
    homes: Callable[[Args], Homes]
    given: Callable[..., Args]
    ranks: Callable[..., Any]
    dtypes: Callable[[Args], tuple[torch.dtype, ...]]
    aliases: Callable[[Args], tuple[int | None, ...]] | None = None


_PLANS = {
    "broadcast": _Plan(
        "Broadcast", _broadcast, functools.partial(_many, reduced=False), _broadcast_homes,
        lambda fabric, homes, places, *args: (fabric.devices[:places], *args), _ranks_broadcast,
        lambda args: tuple(x.dtype for x in args[1:]) * args[0],
        lambda args: (*range(1, len(args)), *[None] * (args[0] - 1) * (len(args) - 1)),
    ),
    "reduce_add_coalesced": _Plan(
        "ReduceAddCoalesced", _reduce, functools.partial(_many, reduced=True), _reduce_homes,
        lambda fabric, homes, count, *args: (homes.outputs[0], count, *args), _ranks_reduce,
        lambda args: tuple(x.dtype for x in args[1 : 1 + args[0]]),
    ),
    "gather": _Plan(
        "Gather", _gather, _gathered, _gather_homes,
        lambda fabric, homes, dim, *args: (homes.outputs[0], dim, *args), _ranks_gather,
        lambda args: (args[1].dtype,),
    ),
    "scatter": _Plan(
        "Scatter", _scatter, _scattered, _scatter_homes,
        lambda fabric, homes, sizes, dim, x: (fabric.devices[: len(sizes)], sizes, dim, x), _ranks_scatter,
        lambda args: (args[2].dtype,) * len(args[0]),
        lambda args: (2,) * len(args[0]),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class _WhereGpusAre(Mapping[str, Any]):
    """Peers on devices, while the devices of this process are GPUs: no peers in any other world.

    Torch's classes know their GPUs, not the places of a fabric that stands for some. Which world the process is in is
    asked when a cell is judged, because a declaration that asked on import would depend on who imported it first.
    """

    peers: dict[str, Any]

    def _found(self) -> dict[str, Any]:
        return self.peers if worlds.here().fabric == "cuda" else {}

    def __getitem__(self, name: str) -> Any:
        return self._found()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found())

    def __len__(self) -> int:
        return len(self._found())


def declaration(name: str, moves: Moves) -> Op:
    """The declaration of an op that is moved by `moves`."""
    plan = _PLANS[name]
    cls, size = getattr(moves.devices, plan.cls), functools.partial(_places, plan.homes)
    other = OnGpus(plan.cls)
    on_devices = _WhereGpusAre({"torch": functools.partial(_on_devices, other, moves.devices.Copy, plan.given)})
    formula = getattr(formulas, name)
    return Op(
        name=name,
        reference=formula,
        subjects={"opassay": functools.partial(plan.adapter, cls), "torch": functools.partial(plan.adapter, other)}
        | dict.fromkeys(peers(name).keys() - {"torch"}, nowhere),
        samples=plan.samples,
        differentiable=tuple(inspect.signature(formula).parameters)[-1:],
        promises=Promises(
            dtypes=plan.dtypes,
            saved=lambda args, wanted: 0,
            aliases=plan.aliases,
            one_graph=False,
        ),
        laws=LAWS[name],
        refusals=REFUSALS[name],
        ranks=Ranks(
            worlds.run,
            functools.partial(plan.ranks, moves.collective),
            size,
            plan.homes,
            peers(name),
        ),
        devices=Devices(
            moves.fabric,
            size,
            functools.partial(_on_host_or_not, plan.homes),
            functools.partial(_on_devices, cls, moves.devices.Copy, plan.given),
            on_devices,
        ),
    )


OPS: tuple[Op, ...] = tuple(declaration(name, Moves(devices, collective, worlds.fabric)) for name in _PLANS)
