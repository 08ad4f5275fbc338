"""Declarations of broadcast, reduce_add_coalesced, gather and scatter: over devices of one program, and over ranks.

An ordinary cell has all places on one device. COMM has them apart: on the devices of a fabric, and on ranks, where the
same op is a collective.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st

from ....impl.comm.devices import differentiable as devices
from ....impl.comm.devices import fabric as fabrics
from ....impl.comm.ranks import collective
from ....oracles.op.declaration import Draft, Op
from ....oracles.op.placement import Devices, Homes, Ranks
from ....reference import collectives as formulas
from ... import worlds
from ...declaring import drawing, strategies
from ...declaring.choices import choose
from ...declaring.declare import declare
from ...declaring.drawing import all_dims
from ...declaring.signature import Args, ArgumentsByName, Signature
from ..over_places import make_fabric, run_on_ranks
from .collective_laws import LAWS, REFUSALS
from .moving import Moves, promises_of
from .torch_own import OnGpus, nowhere, peers

Tensors = Sequence[torch.Tensor]


def _broadcast_homes(places: int, args: Tensors, root: int = 0) -> Homes:
    return Homes((root,) * len(args), tuple(p for p in range(places) for _ in args))


def _reduce_homes(num_inputs: int, args: Tensors, root: int = 0) -> Homes:
    return Homes(tuple(i // num_inputs for i in range(len(args))), (root,) * num_inputs)


def _gather_homes(args: Tensors, root: int = 0) -> Homes:
    return Homes(tuple(range(len(args))), (root,))


def _scatter_homes(chunk_sizes: tuple[int, ...], root: int = 0) -> Homes:
    return Homes((root,), tuple(range(len(chunk_sizes))))


def _places(homes: Callable[..., Homes], args: Args, rng: Any = None) -> int:
    all_homes = homes(args)
    return 1 + max((*all_homes.arguments, *all_homes.outputs))


def _on_host_or_not(homes: Callable[..., Homes], args: Args) -> Homes:
    """On devices, what is whole is on the host where their number is odd, else on the first."""
    return homes(args, root=-1 if _places(homes, args) % 2 else 0)


def _in_one_place(
    cls: Any, arguments_of: Callable[..., Args], signature: inspect.Signature, *positional: Any, **named: Any
) -> Any:
    """The op with all places on the device of its tensors; a caller may name its arguments, as the signature does."""
    args = signature.bind(*positional, **named).args
    device = args[-1].device
    return cls.apply(*arguments_of(lambda count: (device,) * count, device, *args))


def _on_devices(cls: Any, copy: Any, arguments_of: Callable[..., Args], fabric: Any, homes: Homes, *args: Any) -> Any:
    """The op on the devices of a fabric, from the host and back; `copy` is the class that moves one tensor.

    Returns:
        (outputs on the host, devices that they were on).
    """
    with fabric.active():
        where = iter(homes.arguments)
        placed = [copy.apply(a, fabric.device(next(where))) if isinstance(a, torch.Tensor) else a for a in args]
        outputs = cls.apply(*arguments_of(lambda count: fabric.devices[:count], homes.outputs[0], *placed))
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
    # The collectives over ranks gather along the first axis alone.
    axis = dim % args[0].dim()
    whole = over.gather(args[comm.rank].movedim(axis, 0), 0, [x.shape[axis] for x in args], comm)
    return whole.movedim(0, axis)


def _ranks_scatter(over: Any, comm: Any, chunk_sizes: tuple[int, ...], dim: int, input: Any) -> Any:
    own = over.scatter(input.movedim(dim, 0), 0, chunk_sizes, comm).movedim(0, dim)
    axis = dim % input.dim()
    shapes = [(*input.shape[:axis], size, *input.shape[axis + 1 :]) for size in chunk_sizes]
    return tuple(own if p == comm.rank else input.new_zeros(shape) for p, shape in enumerate(shapes))


@st.composite
def _shape(draw: st.DrawFn, kind: str, places: int, dims: tuple[int, ...] = (1, 0, 2)) -> tuple[int, ...]:
    limit = strategies.LARGEST if kind == "large" else 48
    # A tensor without axes has one element, so it can be neither empty nor large.
    several = (
        dims * 6 + strategies.MANY_DIMS if kind == "ordinary" else tuple(d for d in dims if d or kind == "integers")
    )
    rank = draw(choose("axes", several))
    return tuple(draw(strategies.extents(kind, rank, max(limit // places, 2))))


def _extents_of(shape: tuple[int, ...]) -> dict[str, int]:
    """`Draft.extents` of a tensor."""
    return {f"axis {i}": n for i, n in enumerate(shape)}


@st.composite
def _many(draw: st.DrawFn, dtype: str, kind: str = "ordinary", *, reduced: bool) -> Draft:
    """Some tensors, of shapes of their own: once for a broadcast, at every place for a sum."""
    places, count = draw(choose("places", worlds.places())), draw(choose("tensors", (2, 1, 3)))
    shapes = [draw(_shape(kind, places * count)) for _ in range(count)]
    regime = draw(drawing.regime(kind))
    # With the half types some tensors are float32, because the parameters of one module may have either dtype.
    columns = [(shape, draw(choose("dtypes", drawing.dtypes_beside(dtype)))) for shape in shapes]
    number = {"num_inputs": count} if reduced else {"places": places}
    all_columns = columns * places if reduced else columns

    def fill(rng: Any) -> ArgumentsByName:
        return number | {"args": [drawing.rows(rng, regime, *column) for column in all_columns]}

    return Draft(fill, regime, _extents_of(shapes[0]))


@st.composite
def _draw_gather(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """A draft of a call of `gather`: parts of different lengths, some of length 0; now and then 0-dim."""
    places = draw(choose("places", worlds.places()))
    shape = draw(_shape(kind, places))
    regime = draw(drawing.regime(kind))
    if not shape:
        dim, shapes = draw(choose("dim", (0, -1))), [shape] * places
    else:
        dim = draw(choose("dim", all_dims(len(shape))))
        lengths = [draw(st.integers(0, shape[dim])) for _ in range(places)]
        if kind == "large":
            # At least one part is of the full length, or no tensor of a large sample might be large.
            lengths[0] = shape[dim]
        axis = dim % len(shape)
        shapes = [(*shape[:axis], length, *shape[axis + 1 :]) for length in lengths]

    def fill(rng: Any) -> ArgumentsByName:
        return {"dim": dim, "args": [drawing.rows(rng, regime, own, dtype) for own in shapes]}

    return Draft(fill, regime, _extents_of(shape))


@st.composite
def _draw_scatter(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """A tensor, and any sizes of its parts, 0 as well."""
    places = draw(choose("places", worlds.places()))
    shape = draw(_shape(kind, 1, (1, 2)))
    regime = draw(drawing.regime(kind))
    dim = draw(choose("dim", all_dims(len(shape))))
    cuts = sorted(draw(st.integers(0, shape[dim])) for _ in range(places - 1))
    sizes = tuple(b - a for a, b in itertools.pairwise((0, *cuts, shape[dim])))

    def fill(rng: Any) -> ArgumentsByName:
        return {"chunk_sizes": sizes, "dim": dim, "input": drawing.rows(rng, regime, shape, dtype)}

    return Draft(fill, regime, _extents_of(shape))


@dataclass(frozen=True)
class _Plan:
    """How an op is called: as a class on devices, and by a function on ranks.

    Attributes:
        arguments_of: (number of places -> their devices, the device of what is whole, *args) -> arguments of the class.
        ranks: (collectives, comm, *args) -> the outputs, of which each rank has its own.
    """

    cls: str
    samples: Callable[..., Any]
    homes: Callable[..., Homes]
    arguments_of: Callable[..., Args]
    ranks: Callable[..., Any]
    dtypes: Callable[..., Sequence[torch.dtype]]
    aliases: Callable[..., Sequence[str | None]] | None = None


def _first_place_shares(places: int, args: Tensors) -> list[str | None]:
    """Outputs are those of the first place, which are the arguments, then copies of them."""
    return [*(f"args[{i}]" for i in range(len(args))), *[None] * (places - 1) * len(args)]


_PLANS = {
    "broadcast": _Plan(
        "Broadcast", functools.partial(_many, reduced=False), _broadcast_homes,
        lambda devices, whole, places, *args: (devices(places), *args), _ranks_broadcast,
        lambda places, args: [x.dtype for x in args] * places, _first_place_shares,
    ),
    "reduce_add_coalesced": _Plan(
        "ReduceAddCoalesced", functools.partial(_many, reduced=True), _reduce_homes,
        lambda devices, whole, count, *args: (whole, count, *args), _ranks_reduce,
        lambda num_inputs, args: [x.dtype for x in args[:num_inputs]],
    ),
    "gather": _Plan(
        "Gather", _draw_gather, _gather_homes,
        lambda devices, whole, dim, *args: (whole, dim, *args), _ranks_gather,
        lambda args: [x.dtype for x in args[:1]],
    ),
    "scatter": _Plan(
        "Scatter", _draw_scatter, _scatter_homes,
        lambda devices, whole, sizes, dim, x: (devices(len(sizes)), sizes, dim, x), _ranks_scatter,
        lambda chunk_sizes, input: [input.dtype] * len(chunk_sizes), lambda chunk_sizes: ["input"] * len(chunk_sizes),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class _WhereGpusAre(Mapping[str, Any]):
    """Peers on devices, while the devices of this process are GPUs: no peers in any other world.

    Torch's classes know their GPUs, not the places of a fabric that stands for some. Which world the process is in is
    asked when a cell is judged, because a declaration that asked on import would depend on who imported it first.
    """

    peers: dict[str, Any]

    def _peers_here(self) -> dict[str, Any]:
        return self.peers if worlds.here().fabric == "cuda" else {}

    def __getitem__(self, name: str) -> Any:
        return self._peers_here()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._peers_here())

    def __len__(self) -> int:
        return len(self._peers_here())


def declaration(name: str, moves: Moves) -> Op:
    """The declaration of an op that is moved by `moves`."""
    plan, formula = _PLANS[name], getattr(formulas, name)
    homes = Signature(formula).reader(f"{name}: homes", plan.homes, "root")
    cls, size = getattr(moves.devices, plan.cls), functools.partial(_places, homes)
    other, others = OnGpus(plan.cls), peers(name, plan.ranks)
    on_devices = _WhereGpusAre({"torch": functools.partial(_on_devices, other, moves.devices.Copy, plan.arguments_of)})
    in_one_place = {}
    for subject, own in (("opassay", cls), ("torch", other)):
        signature = inspect.signature(formula)
        function: Any = functools.partial(_in_one_place, own, plan.arguments_of, signature)
        function.__signature__ = signature  # the names that a caller knows the arguments by
        in_one_place[subject] = function
    return declare(
        formula,
        in_one_place | dict.fromkeys(others.keys() - {"torch"}, nowhere),
        samples=plan.samples,
        differentiable=tuple(inspect.signature(formula).parameters)[-1:],
        dtypes=plan.dtypes,
        saved=lambda: 0,
        aliases=plan.aliases,
        one_graph=False,
        laws=LAWS[name],
        refusals=REFUSALS[name],
        ranks=Ranks(
            run_on_ranks, functools.partial(plan.ranks, moves.collective), size, homes, others, may_fail=worlds.may_fail
        ),
        devices=Devices(
            moves.fabric,
            size,
            functools.partial(_on_host_or_not, homes),
            functools.partial(_on_devices, cls, moves.devices.Copy, plan.arguments_of),
            on_devices,
            functools.partial(promises_of, name, moves),
        ),
    )


OPS: tuple[Op, ...] = tuple(declaration(name, Moves(devices, collective, make_fabric, fabrics)) for name in _PLANS)
