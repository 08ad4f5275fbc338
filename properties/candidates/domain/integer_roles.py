"""What the integers among the arguments of a spec are for, and which values it takes.

Roles are seen by calling the spec: a TorchFunctionMode follows every tensor of integers, and integers that are computed
of it, and notes which functions take them. Limits are asked: one element is raised until the spec refuses it. What is
proposed by a role counts only if the spec takes it.
"""

from __future__ import annotations

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
#: So many numbers, which are sorted, are so by no chance.
_MANY = 5
#: Large numbers are below so many; and the odd factor of neighbours.
_LARGE, _ODD = 1 << 52, 0x9E3779B97F4A7
#: The value that losses ignore by default.
IGNORED = -100
#: What functions take integers for.
_NAMES = {
    "numbers": "tolist item __int__ __index__",
    "index": "__getitem__ __setitem__ gather take_along_dim index_select index_add index_add_ scatter scatter_"
    " scatter_add scatter_add_ scatter_reduce scatter_reduce_ index_put index_put_ embedding take bincount",
    "label": "cross_entropy nll_loss one_hot ctc_loss",
    "ends": "embedding_bag searchsorted bucketize diff sub __sub__",
    "compared": "lt le gt ge __lt__ __le__ __gt__ __ge__",
    "equal": "eq ne __eq__ __ne__",
    "counts": "repeat_interleave cumsum",
    "bits": "bitwise_and __and__ __rshift__ bitwise_right_shift",
}
_CTC = ("log_probs", "targets", "input_lengths", "target_lengths")
_USES = {name: use for use, names in _NAMES.items() for name in names.split()}


@dataclass(frozen=True)
class IntegerRole:
    """What the spec takes in one tensor of integers.

    Attributes:
        kind: one of `KINDS`.
        below: the least value that is refused; None where none is. wraps: whether negative values count from the end.
        ignores: whether -100 is taken. rises: whether no draw has an element below the one before. distinct: whether
        all differed. into: axes whose extent the values end at. first: the number of the first place there, 0 or 1.
        sums_to: axes whose extent is their sum. reaches: whether an extent is the limit. least, most: of all draws.
    """

    kind: str
    below: int | None = None
    wraps: bool = False
    ignores: bool = False
    rises: bool = False
    distinct: bool = False
    into: tuple[Axis, ...] = ()
    first: int = 0
    sums_to: tuple[Axis, ...] = ()
    reaches: bool = False
    least: int = 0
    most: int = 0

    def describe(self) -> str:
        limit = "" if self.below is None else f" below {self.below}"
        words = ["-1 from the end"] * self.wraps + ["-100 ignored"] * self.ignores + ["never falling"] * self.rises
        return ", ".join([f"{self.kind}{limit}", *words])


def is_integer(leaf: Any) -> bool:
    """Whether a leaf of the arguments is a tensor of integers."""
    return isinstance(leaf, Tensor) and not (
        leaf.is_floating_point() or leaf.is_complex() or leaf.dtype == torch.bool or leaf.is_quantized
    )


def others_of(tensor: Tensor) -> Tensor:
    """A tensor of which every number is another."""
    if is_integer(tensor):
        return tensor ^ 1
    return ~tensor if tensor.dtype == torch.bool else (0.37 - 2 * tensor.float()).to(tensor.dtype)


class _Uses(TorchFunctionMode):
    """Notes the functions that take each tensor of integers, or what is computed of it in integers."""

    def __init__(self, tensors: Mapping[int, Tensor]) -> None:
        super().__init__()
        self._sources = {id(t): {i} for i, t in tensors.items()}
        self._alive = list(tensors.values())  # An address may come again only when its tensor is gone.
        self.uses: dict[int, set[str]] = {i: set() for i in tensors}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        flat = [leaf for a in (*args, *kwargs.values()) for leaf in (a if isinstance(a, (tuple, list)) else (a,))]
        sources = self._sources_of(flat)
        for i in self._sources_of([end for leaf in flat if isinstance(leaf, slice) for end in (leaf.start, leaf.stop)]):
            self.uses[i].add("numbers")
        name = getattr(func, "__name__", "")
        lengths = (*args[2:4], *map(kwargs.get, _CTC[2:])) if name == "ctc_loss" else ()
        counted = self._sources_of(lengths)
        for i in sources if name in _USES else ():
            self.uses[i].add("counts" if i in counted else _USES[name])
        result = func(*args, **kwargs)
        for each in result if isinstance(result, (tuple, list)) else (result,):
            if sources and is_integer(each):
                self._sources.setdefault(id(each), set()).update(sources)
                self._alive.append(each)
        return result

    def _sources_of(self, leaves: Iterable[Any]) -> set[int]:
        return set().union(*(self._sources.get(id(leaf), set()) for leaf in leaves if isinstance(leaf, Tensor)))


class Checked(TorchFunctionMode):
    """Refuses labels and lengths at which `ctc_loss` reads and writes beyond its memory, and the label of a blank."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "ctc_loss":
            call = dict(zip((*_CTC, "blank"), args, strict=False))
            call |= {name: t for name, t in (kwargs or {}).items() if name in (*_CTC, "blank")}
            _require_memory(**{name: torch.as_tensor(t) for name, t in call.items()})
        return func(*args, **(kwargs or {}))


def _require_memory(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: Tensor | int = 0
) -> None:
    """IndexError unless all labels that count are classes, and all lengths end in their axes."""
    if targets.ndim == 1:
        most, labels = int(target_lengths.sum()), targets[: int(target_lengths.sum())]
    else:
        most, labels = int(target_lengths.max()), targets[torch.arange(targets.shape[1]) < target_lengths[:, None]]
    if most > targets.shape[-1] or int(input_lengths.max()) > len(log_probs) or bool((labels < 0).any()):
        raise IndexError("a length is beyond its axis, or a label negative")
    if bool(((labels >= log_probs.shape[-1]) | (labels == blank)).any()) or bool((target_lengths < 0).any()):
        raise IndexError("a label is no class or a blank, or a length negative")


def find_uses(call: Callable[[Sequence[Tensor]], Any], tensors: Sequence[Tensor]) -> dict[int, set[str]]:
    """For each tensor of integers, by its position, the kinds of functions that take it."""
    mode = _Uses({i: t for i, t in enumerate(tensors) if is_integer(t)})
    with mode:
        call(tensors)
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
    rises = flat and all(bool((t.diff() >= 0).all()) for t in draws)
    distinct = all(t.unique().numel() == t.numel() for t in draws)
    least = min((int(t.min()) for t in draws if t.numel()), default=0)
    most = max((int(t.max()) for t in draws if t.numel()), default=0)
    below = _limit(takes, original, sorted({n for _, n in extents}))

    def takes_one(value: int) -> bool:
        return value >= torch.iinfo(original.dtype).min and takes(with_largest(original, value))

    wraps = below is not None and takes_one(-1) and takes_one(-below) and not takes_one(-below - 1)
    ignores = below is not None and not wraps and takes_one(IGNORED)
    if below is None and uses == {"index"} and original.numel():  # torch.take_along_dim wraps whatever it is given
        below = min((n for _, n in extents if n > max(int(t.max()) for t in draws)), default=None)
    # Few numbers are sorted by chance, as those of a short example are.
    surely = rises and math.prod(math.factorial(min(len(t), _MANY)) for t in unlike(draws)) > math.factorial(_MANY - 1)
    if rises and uses & {"numbers", "compared", "ends"} and "label" not in uses and (surely or _cut(draws, extents)):
        into = tuple(a for a, n in extents if n == int(original.max()))
        into = into or tuple(a for a, n in extents if below is not None and n in (below, below - 1))
        return IntegerRole("offsets", below, wraps, False, True, distinct, into, least=least, most=most)
    rises = surely
    into = tuple(a for a, n in extents if n == below)
    first = int(not into and all(t.numel() and int(t.min()) > 0 for t in draws))
    into = into or tuple(a for a, n in extents if first and below is not None and n == below - 1)
    counted = uses & {"numbers", "compared", "counts"}
    sums = tuple(a for a, n in extents if flat and counted and not into and all(int(t.sum()) == n for t in draws))
    if flat and counted and below is None and not sums:
        into = _ends_of(original, draws, extents)
    kind = (
        "labels" if ("label" in uses and below is not None) or uses == {"equal"}
        else "bits" if "bits" in uses
        else "lengths" if uses == {"counts"}
        else "index" if below is not None and "numbers" not in uses
        else "lengths" if counted and original.ndim < 2
        else "numbers"
    )  # fmt: skip
    reaches = bool(into) or below in of_outputs
    return IntegerRole(kind, below, wraps, ignores, rises, distinct, into, first, sums, reaches, least, most)


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
    starts = 1 if values[0] == 0 else 0
    first, inner, last = values[:starts], values[starts:-1], values[-1:]
    if not inner:
        return
    low = first[0] if first else 0
    yield "all in the last group", [*first, *(low for _ in inner), *last]
    yield "all in the first group", [*first, *(last[0] for _ in inner), *last]
    yield "one group empty", [*first, *([inner[0]] * min(2, len(inner))), *inner[2:], *last]
    yield "groups of one", [*first, *(min(low + n, last[0]) for n in range(1, len(inner) + 1)), *last]


def _proposed_lengths(role: IntegerRole, flat: Tensor) -> Proposed:
    values, total = flat.tolist(), int(flat.sum())
    rest = [0] * (len(values) - 1)
    yield "all in the first", [total, *rest]
    yield "all in the last", [*rest, total]
    if len(values) > 1:  # What a call with one length of 0 gives is a convention: a softmax over no key is zero or NaN.
        yield "one of length 0", [0, values[0] + values[1], *values[2:]]
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
    if role.ignores:
        yield "one ignored", [IGNORED, *flat.tolist()[1:]]
        yield "all ignored", [IGNORED] * count


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
