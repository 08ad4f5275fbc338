"""What the integers among the arguments of a spec are for, and which values it takes.

Roles are seen by calling the spec: a TorchFunctionMode follows every tensor of integers, and integers that are computed
of it, and notes which functions take them. Limits are asked: one element is raised until the spec refuses it. What is
proposed by a role counts only if the spec takes it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .facts import unlike
from .symbols import Axis

Tensor = torch.Tensor
#: What integers may be for.
KINDS = ("offsets", "lengths", "labels", "index", "bits", "numbers")
#: The largest value that is tried.
_FAR = 1 << 20
#: What is so in one of so many cases, or fewer, may be chance: four numbers have 24 orders, and one is sorted.
_SURELY = 24.5
#: Large numbers are below so many; and the odd factor of neighbours.
_LARGE, _ODD = 1 << 52, 0x9E3779B97F4A7
#: Values that losses ignore: by default, and often.
_IGNORED = -100, -1
#: What functions take integers for.
_NAMES = {
    "numbers": "tolist item __int__ __index__",
    "index": "__getitem__ gather take_along_dim index_select index_add index_add_ scatter_add scatter_add_"
    " scatter_reduce scatter_reduce_ embedding take",
    "groups": "bincount",
    "place": "__setitem__ scatter scatter_ index_copy index_copy_ index_put index_put_",
    "label": "cross_entropy nll_loss one_hot ctc_loss",
    "ends": "embedding_bag searchsorted bucketize diff sub __sub__",
    "compared": "lt le gt ge __lt__ __le__ __gt__ __ge__",
    "equal": "eq ne __eq__ __ne__",
    "counts": "repeat_interleave cumsum",
    "bits": "bitwise_and __and__ __rshift__ bitwise_right_shift",
}
_CTC = ("log_probs", "targets", "input_lengths", "target_lengths", "blank")
#: The parameters of functions whose arguments are checked.
_CHECKED = {"ctc_loss": _CTC, "scaled_dot_product_attention": ("query", "key", "value")}
_USES = {name: use for use, names in _NAMES.items() for name in names.split()}


@dataclass(frozen=True)
class IntegerRole:
    """What the spec takes in one tensor of integers.

    Attributes:
        kind: one of `KINDS`.
        below: the least value that is refused; None where none is. wraps: whether negative values count from the end.
        ignored: a negative value that is taken. rises: whether no draw has an element below the one before. distinct:
        whether all differed, and by no chance. into: axes whose extent the values end at, which `fits` is where values
        beyond it are taken. first: the number of the first place there, 0 or 1. sums_to: axes whose extent is their
        sum. reaches: whether an extent is the limit. span: the least and the largest number of all draws.
    """

    kind: str
    below: int | None = None
    wraps: bool = False
    ignored: int | None = None
    rises: bool = False
    distinct: bool = False
    into: tuple[Axis, ...] = ()
    first: int = 0
    sums_to: tuple[Axis, ...] = ()
    reaches: bool = False
    span: tuple[int, int] = (0, 0)
    fits: int | None = None

    def describe(self) -> str:
        limit = "" if self.below is None else f" below {self.below}"
        words = ["-1 from the end"] * self.wraps + [f"{self.ignored} ignored"] * bool(self.ignored)
        words += ["never falling"] * self.rises
        return ", ".join([f"{self.kind}{limit}", *words])


def is_integer(leaf: Any) -> bool:
    """Whether a leaf of the arguments is a tensor of integers."""
    return isinstance(leaf, Tensor) and not (
        leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool or leaf.is_quantized
    )


def others_of(tensor: Tensor) -> Tensor:
    """Other numbers at each place; of floats in another order, and of integers others are equal, as names of groups."""
    places = torch.arange(tensor.numel(), device=tensor.device).view_as(tensor)
    if is_integer(tensor):
        return (tensor.long() ^ (1 + places % 2)).to(tensor.dtype)
    return ~tensor if tensor.dtype == torch.bool else (0.37 - (2 + places % 5) * tensor.float()).to(tensor.dtype)


class _Uses(TorchFunctionMode):
    """Notes the functions that take each tensor of integers, or what is computed of it in integers."""

    def __init__(self, tensors: Mapping[int, Tensor]) -> None:
        super().__init__()
        self._sources = {id(t): {i} for i, t in tensors.items()}
        self._alive = list(tensors.values())  # An address may come again only when its tensor is gone.
        self.uses: dict[int, set[str]] = {i: set() for i in tensors}
        self._largest: set[int] = set()
        self.slices: set[tuple[int, int]] = set()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat = [leaf for a in (*args, *kwargs.values()) for leaf in (a if isinstance(a, (tuple, list)) else (a,))]
        sources = self._sources_of(flat)
        slices = [(leaf.start, leaf.stop) for leaf in flat if isinstance(leaf, slice)]
        self.slices |= {(int(a), int(b)) for a, b in slices if a is not None and b is not None}
        for i in self._sources_of(itertools.chain(*slices)):
            self.uses[i].add("numbers")
        name, largest = getattr(func, "__name__", ""), any(id(leaf) in self._largest for leaf in flat)
        lengths = (*args[2:4], *map(kwargs.get, _CTC[2:4])) if name == "ctc_loss" else ()
        counted = self._sources_of(lengths)
        for i in sources if name in _USES else ():
            use = "counts" if i in counted else _USES[name]
            self.uses[i].add("most" if largest and use == "numbers" else use)
        result = func(*args, **kwargs)
        for each in result if isinstance(result, (tuple, list)) else (result,):
            # Counts of groups, and rows of zeros and ones for labels, are other numbers.
            if sources and is_integer(each) and _USES.get(name) not in ("groups", "label"):
                self._sources.setdefault(id(each), set()).update(sources)
                self._alive.append(each)
                self._largest |= {id(each)} if each.ndim == 0 and (largest or name in ("max", "amax")) else set()
        return result

    def _sources_of(self, leaves: Iterable[Any]) -> set[int]:
        return set().union(*(self._sources.get(id(leaf), set()) for leaf in leaves if isinstance(leaf, Tensor)))


class Checked(TorchFunctionMode):
    """Refuses what is not documented: labels beyond memory or of blanks, keys and values of unlike heads in groups."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        call = dict(zip(_CHECKED.get(name, ()), args, strict=False)) | (kwargs or {})
        if name == "ctc_loss":
            _require_memory(*(torch.as_tensor(call.get(each, 0)) for each in _CTC))
        if call.get("enable_gqa") and call["key"].shape[-3] != call["value"].shape[-3]:
            raise ValueError("keys and values have different heads")
        return func(*args, **(kwargs or {}))


def _require_memory(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: Tensor
) -> None:
    """IndexError unless all labels that count are classes, and all lengths end in their axes."""
    if targets.ndim == 1:
        most, labels = int(target_lengths.sum()), targets[: int(target_lengths.sum())]
    else:
        most, labels = int(target_lengths.max()), targets[torch.arange(targets.shape[1]) < target_lengths[:, None]]
    outside = (labels < 0) | (labels >= log_probs.shape[-1]) | (labels == blank)
    if most > targets.shape[-1] or int(input_lengths.max()) > len(log_probs) or bool((target_lengths < 0).any()):
        raise IndexError("a length is beyond its axis, or negative")
    if bool(outside.any()):
        raise IndexError("a label is no class, or a blank")


def find_uses(call: Callable[[Sequence[Tensor]], Any], tensors: Sequence[Tensor]) -> dict[int, set[str]]:
    """For each tensor of integers, by its position, the kinds of functions that take it."""
    mode = _Uses({i: t for i, t in enumerate(tensors) if is_integer(t)})
    with mode:
        call(tensors)
    for i, uses in mode.uses.items():
        pairs = set(itertools.pairwise(tensors[i].tolist())) if tensors[i].ndim == 1 else set()
        if len(pairs) > 1 and pairs <= mode.slices:  # Each number is where one slice ends and the next begins.
            uses.add("cuts")
    return mode.uses


def find_role(
    takes: Callable[[Tensor], bool], draws: Sequence[Tensor], uses: set[str], extents: Sequence[tuple[Axis, int]],
    of_outputs: Collection[int] = (),
) -> IntegerRole:  # fmt: skip
    """The role of one tensor of integers.

    Args:
        takes: (other values) -> whether the spec takes them in its place. draws: its values in every draw of inputs.
        uses: of `find_uses`. extents: of all axes of the other tensors. of_outputs: extents of the outputs.
    """
    original, draws = draws[0], [t.long() for t in draws]  # torch has few operations of unsigned integers
    flat = all(t.ndim == 1 and t.numel() > 1 for t in draws)
    rises = flat and all(bool((t.diff() >= 0).all()) for t in draws) and len(torch.cat(draws).unique()) > 1
    distinct = all(t.unique().numel() == t.numel() for t in draws)
    every = torch.cat([t.reshape(-1) for t in draws])
    span = (int(every.min()), int(every.max())) if every.numel() else (0, 0)
    # Groups that a spec counts by their largest number may be as many as memory and time allow.
    below = None if "most" in uses else _limit(takes, original, sorted({n for _, n in extents}))

    def takes_one(value: int) -> bool:
        return value >= torch.iinfo(original.dtype).min and takes(with_largest(original, value))

    wraps = below is not None and takes_one(-1) and takes_one(-below) and not takes_one(-below - 1)
    ignored = next((n for n in _IGNORED if takes_one(n)), None) if below is not None and not wraps else None
    if below is None and uses == {"index"} and original.numel():  # torch.take_along_dim wraps whatever it is given
        below = min((n for _, n in extents if n > max(int(t.max()) for t in draws)), default=None)
    # Few numbers are sorted, or differ, by chance, as those of a short example do.
    surely = rises and sum(map(_orders_of, unlike(draws))) > math.log(_SURELY)
    ends = uses & {"numbers", "compared", "ends"} and "label" not in uses
    if rises and ends and (surely or "cuts" in uses or _cut(draws, extents)):
        into = tuple(a for a, n in extents if n == int(original.max()))
        into = into or tuple(a for a, n in extents if below is not None and n in (below, below - 1))
        return IntegerRole("offsets", below, wraps, None, True, distinct, into, span=span)
    rises = surely
    if distinct and below is not None and "place" not in uses and any(t.numel() < below for t in draws):
        distinct = math.prod(1 - n / below for t in unlike(draws) for n in range(t.numel())) * _SURELY < 1
    into = tuple(a for a, n in extents if n == below)
    first = int(not into and all(t.numel() and int(t.min()) > 0 for t in draws))
    into = into or tuple(a for a, n in extents if first and below is not None and n == below - 1)
    counted = uses & {"numbers", "compared", "counts"}
    sums = tuple(a for a, n in extents if flat and counted and not into and all(int(t.sum()) == n for t in draws))
    if flat and counted and below is None and not sums:
        into = _ends_of(original, draws, extents)
    fits = dict(extents)[into[0]] if into and below is None else None if below is None or sums else below - 1
    kind = (
        "labels" if ("label" in uses and below is not None) or uses - {"most"} == {"equal"}
        else "bits" if "bits" in uses
        else "lengths" if uses == {"counts"}
        else "index" if (below is not None or uses >= {"index", "most"}) and "numbers" not in uses
        else "lengths" if counted and original.ndim < 2
        else "numbers"
    )  # fmt: skip
    reaches = bool(into) or below in of_outputs
    return IntegerRole(kind, below, wraps, ignored, rises, distinct, into, first, sums, reaches, span, fits)


def _orders_of(values: Tensor) -> float:
    """The logarithm of how many orders numbers have; equal ones have one."""
    counts = values.unique(return_counts=True)[1].double() + 1
    return float(torch.lgamma((counts - 1).sum() + 1) - torch.lgamma(counts).sum())


def _cut(draws: Sequence[Tensor], extents: Sequence[tuple[Axis, int]]) -> bool:
    """Whether a few sorted numbers cut an axis: they begin with 0, or end with a first axis, and do not sum to one."""
    firsts = {n for (_, d), n in extents if d == 0}
    return all(int(t[0]) == 0 or (int(t[-1]) in firsts and int(t.sum()) not in firsts) for t in draws)


def _ends_of(original: Tensor, draws: Sequence[Tensor], extents: Sequence[tuple[Axis, int]]) -> tuple[Axis, ...]:
    """The axis that lengths of a batch end in: the shortest that is long enough, if possible of a tensor of the batch.

    torch cuts a slice that is too long without a word, so a spec takes lengths that are none.
    """
    largest = max(int(t.max()) for t in draws)
    batches = {i for (i, d), n in extents if d == 0 and n == len(original)}
    usable = [(i not in batches, n, (i, d)) for (i, d), n in extents if n >= largest and (d or i not in batches)]
    return (min(usable)[2],) if usable else ()


def with_largest(tensor: Tensor, value: int) -> Tensor:
    """The tensor with its largest element replaced."""
    other = tensor.detach().clone().reshape(-1)
    if other.numel():
        other[int(other.long().argmax())] = value
    return other.reshape(tensor.shape)


def _limit(takes: Callable[[Tensor], bool], original: Tensor, likely: Sequence[int]) -> int | None:
    """The least value that is refused where the largest stands, perhaps a `likely` one; None where none is."""
    if not original.numel():
        return None
    low, high = int(original.long().max()), min(_FAR, torch.iinfo(original.dtype).max)
    if high <= low or takes(with_largest(original, high)):
        return None
    guesses, step = [low + 1, *(value for n in likely for value in (n, n - 1))], 1
    while high - low > 1:  # upwards, because a value may say how much memory is taken
        value = next((n for n in guesses if low < n < high), min(low + step, (low + high) // 2))
        accepts = takes(with_largest(original, value))
        low, high, step = (value, high, 2 * step) if accepts else (low, value, step)
    return high


def propose(role: IntegerRole | None, original: Tensor, whole: bool = True) -> Iterator[tuple[str, Tensor]]:
    """Other values of a tensor of integers, or of a mask in which all are equal; the spec may refuse them."""
    flat, count = original.detach().reshape(-1), original.numel()
    if not count:
        return
    if role is None:
        second = (torch.arange(count, device=flat.device) % 2 == 0).reshape(original.shape)
        yield from (("half false", second), ("the other half", ~second))
        return
    for word, values in _BY_KIND.get(role.kind, _proposed_numbers)(role, flat):
        other = torch.as_tensor(values, device=flat.device).to(flat.dtype)
        if other.numel() != count or (word == "large" and not whole):
            continue
        if role.kind in ("index", "labels"):
            other = torch.where(flat < 0, flat, other)  # Negative numbers that are given mark places without an index.
            other = other.sort().values if role.rises else other  # a kernel may rely on indices that are sorted
        if not torch.equal(other, flat):
            yield word, other.reshape(original.shape)


Proposed = Iterator[tuple[str, Any]]


def _proposed_offsets(role: IntegerRole, flat: Tensor) -> Proposed:
    values = flat.tolist()
    starts = int(values[0] == 0)
    first, inner, last = values[:starts], values[starts:-1], values[-1:]
    if not inner:
        return
    yield "all in the last group", [*first, *(0 for _ in inner), *last]
    yield "all in the first group", [*first, *(last[0] for _ in inner), *last]
    yield "one group empty", [*first, *([inner[0]] * min(2, len(inner))), *inner[2:], *last]
    yield "groups of one", [*first, *(min(n, last[0]) for n in range(1, len(inner) + 1)), *last]


def _proposed_lengths(role: IntegerRole, flat: Tensor) -> Proposed:
    values, total = flat.tolist(), int(flat.sum())
    most = total if role.fits is None else role.fits  # torch cuts a slice that is too long without a word
    rest = [0] * (len(values) - 1)
    yield "all in the first", [min(total, most), *rest]
    yield "all in the last", [*rest, min(total, most)]
    yield "one of length 1", [1, *(min(sum(values[:2]) - 1, most) for _ in rest[:1]), *values[2:]]
    if len(values) > 1:  # What a call with one length of 0 gives is a convention: a softmax over no key is zero or NaN.
        yield "one of length 0", [0, min(sum(values[:2]), most), *values[2:]]
        yield "all 0", [0 for _ in values]
    if not role.into:
        yield "one far longer", [2 * max(values) + 1, *values[1:]]


def _proposed_indices(role: IntegerRole, flat: Tensor) -> Proposed:
    # A limit that is no extent is that of memory which nobody may read, as torch has no check of some labels.
    count, last = flat.numel(), role.below - 1 if role.below is not None and role.reaches else int(flat.max())
    if not role.distinct or role.kind == "labels":
        yield "all equal", [int(flat[0])] * count
        yield "first and last", [last if i % 2 else role.first for i in range(count)]
        yield "all the last", [last] * count
    if last + 1 - role.first >= count:
        yield "each once", [last - i for i in range(count)]
    if role.wraps and int(flat.min()) >= 0:
        yield "-1", [-1, *flat.tolist()[1:]]
    if role.ignored is not None:
        yield "one ignored", [role.ignored, *flat.tolist()[1:]]
        yield "all ignored", [role.ignored] * count


def _proposed_bits(role: IntegerRole, flat: Tensor) -> Proposed:
    info = torch.iinfo(flat.dtype)
    values = {"all bits": -1 if info.min < 0 else info.max, "no bits": 0, "the least number": info.min}
    yield from ((word, torch.full_like(flat, value)) for word, value in values.items())


def _proposed_numbers(role: IntegerRole, flat: Tensor) -> Proposed:
    yield "all 0", torch.zeros_like(flat)
    if torch.iinfo(flat.dtype).min < 0:
        yield "negative", -flat
    # More than a format of 32 bits has, and than float32 has exactly.
    large = torch.arange(1, flat.numel() + 1, device=flat.device) * _ODD % min(_LARGE, torch.iinfo(flat.dtype).max)
    yield "large", large * (1 - 2 * (flat.long() < 0).long())


_BY_KIND: Mapping[str, Callable[[IntegerRole, Tensor], Proposed]] = {
    "offsets": _proposed_offsets, "lengths": _proposed_lengths, "labels": _proposed_indices,
    "index": _proposed_indices, "bits": _proposed_bits,
}  # fmt: skip
