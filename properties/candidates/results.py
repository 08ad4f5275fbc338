"""What a call gives back, as data: its tensors in order, the form around them, and what else stands in it.

What this is for: who calls a kernel takes its result apart, so a dictionary with other keys, a number that is another
one, or a tuple in place of a tensor is as wrong as a wrong element. All of it is compared as data, because a candidate
answers from another process.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.judge.holding import find_mismatch
from .operand_parts import COMPLEX, forms_in, output_in_parts, shape_and_dtype

Tensor = torch.Tensor

#: Values beside tensors that have one meaning wherever they are read, and compare by it.
_PLAIN = (int, float, complex, str, bytes, torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum)
#: Those that travel as they are; others travel as the text that Python writes of them.
_OF_THE_WIRE = (bool, float, str, type(None))


@dataclass(frozen=True)
class Result:
    """What a call gives back.

    Attributes:
        tensors: in order; of a dictionary in the order of its keys' texts, so that the order of insertion is no matter.
            Complex ones, and pairs of four-bit numbers, by their parts (`operand_parts.py`).
        places: of each, as Python writes it behind the result: "", "[0]", "['loss']".
        form: what is around them, a * for each tensor and the name of the type for each other value. Tuples, lists and
            named tuples are alike: all are taken apart by position.
        plain: the other values, in order.
        strange: the types of what is neither a tensor nor a plain value nor a tree of these.
        raw: the tensors as they were given: one with a mark of torch shares memory, and what it stands for does not.
    """

    tensors: tuple[Tensor, ...]
    places: tuple[str, ...]
    form: str
    plain: tuple[Any, ...]
    strange: tuple[str, ...]
    raw: tuple[Tensor, ...] = ()

    @property
    def names(self) -> list[str]:
        """What messages call the tensors."""
        names = [f"out{place}" for place in self.places] if len(self.places) > 1 else ["out"] * len(self.places)
        forms = forms_in(self.form)
        return [
            f"view_as_real({name})" if form == COMPLEX else name for name, form in zip(names, forms, strict=False)
        ] or names

    @property
    def destinations(self) -> list[tuple[list[int], str]]:
        """Shape and dtype of tensors that a call could write these into."""
        return [shape_and_dtype(y, form) for y, form in zip(self.tensors, forms_in(self.form), strict=False)]


@dataclass(frozen=True)
class SpecRun:
    """What torch computes of a spec.

    Attributes:
        result: what the call gives back.
        names: what messages call its tensors, and what the call wrote.
        writes: what that is: names of parameters and buffers, and positions among the tensor arguments.
        values: of what was written, after the call.
        shared: of each output, the tensor argument whose memory it shares, or -1.
        own: of each output, whether it is none of the module's own tensors, nor a view of one.
    """

    result: Result
    names: tuple[str, ...]
    writes: tuple[str | int, ...]
    values: tuple[Tensor, ...]
    shared: tuple[int, ...]
    own: tuple[bool, ...]

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors of the result."""
        return self.result.tensors

    def written_of(self, state: Mapping[str, Tensor], tensors: Sequence[Tensor]) -> list[Tensor | None]:
        """Of each name what was there, among parameters, buffers and arguments, before the call; None of an output."""
        before: dict[str | int, Tensor] = dict(enumerate(tensors)) | dict(state)
        return [*[None] * len(self.outputs), *map(before.get, self.writes)]


def result_of(value: Any) -> Result:
    """What a call gives back, as data."""
    reading = _Reading()
    form = reading.form_of(value, "")
    strange, raw = tuple(dict.fromkeys(reading.strange)), tuple(reading.raw)
    return Result(tuple(reading.tensors), tuple(reading.places), form, tuple(reading.plain), strange, raw)


class _Reading:
    """The leaves of a result that is walked through."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.raw: list[Tensor] = []
        self.places: list[str] = []
        self.plain: list[Any] = []
        self.strange: list[str] = []

    def form_of(self, value: Any, place: str) -> str:
        if isinstance(value, Tensor):
            tensor, form = output_in_parts(value)
            self.tensors.append(tensor)
            self.raw.append(value)
            self.places.append(place)
            return form
        if isinstance(value, dict):
            texts = {repr(key): item for key, item in value.items()}
            forms = [f"{key}: {self.form_of(texts[key], f'{place}[{key}]')}" for key in sorted(texts)]
            return f"{{{', '.join(forms)}}}"
        if isinstance(value, (tuple, list)):
            return f"[{self._forms(value, place)}]"
        if isinstance(value, np.generic):
            value = value.item()
        if value is None or isinstance(value, _PLAIN):
            travels = isinstance(value, _OF_THE_WIRE) or (isinstance(value, int) and value.bit_length() < 64)
            self.plain.append(value if travels and not isinstance(value, enum.Enum) else repr(value))
            return type(value).__name__
        children, structure = pytree.tree_flatten(value, is_leaf=lambda each: each is not value)
        if len(children) == 1 and children[0] is value:
            self.strange.append(type(value).__name__)
            return f"?{type(value).__name__}"
        return f"{getattr(structure.type, '__name__', '')}({self._forms(children, place)})"

    def _forms(self, values: Sequence[Any], place: str) -> str:
        return ", ".join(self.form_of(value, f"{place}[{i}]") for i, value in enumerate(values))


def incomparable(arguments: Sequence[Any], result: Result) -> str:
    """What of a spec's arguments and result cannot be compared, as what its name is followed by; empty for nothing."""
    if any(isinstance(leaf, np.ndarray) for leaf in arguments):
        return "is called with a NumPy array, need tensors (torch.from_numpy makes one of it)"
    if not result.strange:
        return ""
    return (
        f"gives a {result.strange[0]}, need tensors, numbers, texts and None in tuples, lists and dictionaries: nothing"
        " else is compared"
    )


def without_numbers(tensor: Tensor) -> str:
    """Why the numbers of a tensor cannot be looked at, as what its name is followed by; empty where they can."""
    if type(tensor).__name__ in ("FakeTensor", "DTensor") or tensor.is_meta:
        return f"is a {type(tensor).__name__} on device {tensor.device}, need a tensor of numbers in this process"
    if tensor._is_zerotensor():
        return "is a tensor of zeros without memory, need one with: .clone() makes one of it"
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
        kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else f"of layout {tensor.layout}"
        return f"is {kind}, need a plain tensor: .to_dense(), .dequantize() or .to_padded_tensor() makes one of it"
    return ""


def unlike(form: str, plain: Sequence[Any], need: Result) -> str:
    """How a result differs from the one that is right, but for the tensors; empty where it does not.

    Args:
        form, plain: of the result, see `Result`. need: the right one; without a form it says nothing.
    """
    if not need.form:
        return ""
    if form == "NoneType" != need.form:
        return "the result is None; did you forget `return`?"
    if form != need.form:
        got, number = form.count("*"), len(need.tensors)
        count = f"got {got} outputs, need {number}: " if got != number and need.form != "NoneType" else ""
        words = {"*": "a tensor", "NoneType": "None: the spec writes into an argument, and returns nothing"}
        result, right = (words.get(each, each.replace("?", "")) for each in (form, need.form))
        return f"{count}the result is {result}, need {right}"
    pairs = zip(plain, need.plain, strict=False)
    wrong = next((f"the result has {got!r}, need {right!r}" for got, right in pairs if not _equal(got, right)), "")
    return wrong or ("" if len(plain) == len(need.plain) else f"the result lacks values of {need.form}")


def elsewhere(run: SpecRun, outputs: Sequence[Tensor]) -> str:
    """A sentence about an output that is on another device than the spec's; empty if there is none."""
    wrong = find_mismatch(outputs, run.outputs, "device", names=run.names)
    return "" if wrong is None else wrong.text


def _equal(one: Any, other: Any) -> bool:
    """Whether two plain values are one. Of two numbers in binary64 each may be rounded another way.

    An elementary function of the C library is right to one ulp (glibc manual, "Errors in Math Functions": exp, log, pow
    and sqrt among them), so two that come from the same real number are two ulps apart at most.
    """
    if isinstance(one, float) and isinstance(other, float):
        near = math.isfinite(one) and math.isfinite(other) and abs(one - other) <= 2 * math.ulp(other)
        return near or one == other or (math.isnan(one) and math.isnan(other))
    return type(one) is type(other) and bool(one == other)


def homes_of(outputs: Sequence[Tensor], arguments: Sequence[Tensor]) -> list[int]:
    """Of each output the first argument whose memory it shares, by position; -1 for none."""
    numbered = reversed([*enumerate(arguments)])
    homes = {t.untyped_storage().data_ptr(): i for i, t in numbered if t.numel()}
    return [homes.get(y.untyped_storage().data_ptr(), -1) for y in outputs]


def first_homes(homes: Sequence[int], arguments: Sequence[Tensor]) -> list[int]:
    """What `homes_of` gives, where arguments that share memory count as the first of them."""
    firsts = homes_of(arguments, arguments)
    return [firsts[home] if home >= 0 else home for home in homes]


def overlaps(tensors: Sequence[Tensor]) -> list[tuple[int, int]]:
    """The pairs of tensors that have memory in common, by position, the later one first."""
    pairs = ((i, j) for i in range(len(tensors)) for j in range(i))
    return [(i, j) for i, j in pairs if _share_memory(tensors[i], tensors[j])]


def _share_memory(one: Tensor, other: Tensor) -> bool:
    """Whether an element of one tensor is stored where one of the other is."""
    if not one.numel() or not other.numel() or one.layout != torch.strided or other.layout != torch.strided:
        return False
    storage = one.untyped_storage()
    if storage.data_ptr() != other.untyped_storage().data_ptr():
        return False
    (low, high), (start, end) = _extent(one), _extent(other)
    if high <= start or end <= low:
        return False
    if one.itemsize != other.itemsize:
        return True  # Views of one memory in two dtypes: nobody has needed to know more of them.
    ours, theirs = (elements_of(t.shape, t.stride(), int(t.storage_offset())).reshape(-1) for t in (one, other))
    return bool(torch.isin(ours, theirs).any())


def elements_of(sizes: Sequence[int], strides: Sequence[int], offset: int = 0) -> Tensor:
    """The place in memory of every element of a view."""
    places = torch.full(tuple(sizes), offset, dtype=torch.int64)
    for axis, (n, stride) in enumerate(zip(sizes, strides, strict=True)):
        places += (torch.arange(n) * stride).reshape(-1, *[1] * (len(sizes) - axis - 1))
    return places


def overlaps_itself(tensor: Tensor) -> bool:
    """Whether two elements of a tensor may be one in memory, as far as its strides say."""
    extent = 1
    for stride, n in sorted((stride, n) for stride, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1):
        if stride < extent:
            return True
        extent += (n - 1) * stride
    return False


def _extent(tensor: Tensor) -> tuple[int, int]:
    """The first byte of a tensor in its storage, and the one after its last."""
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    start = int(tensor.storage_offset())
    return start * tensor.itemsize, (start + int(last) + 1) * tensor.itemsize


def are_finite(outputs: Iterable[Tensor]) -> bool:
    """Whether floating tensors have neither a NaN nor an infinity."""
    # torch does not say of numbers of eight bits whether they are finite.
    return all(bool((y.float() if y.element_size() == 1 else y).isfinite().all()) for y in outputs)


class Distance(NamedTuple):
    """The largest difference from torch's output, and torch's largest element, 0 where it has none that is finite."""

    error: float
    largest: float


def distance_from(computed: Tensor, native: Tensor) -> Distance:
    """How far an output is from torch's; infinitely far where it has another form."""
    if computed.shape != native.shape or computed.dtype != native.dtype:
        return Distance(math.inf, 0.0)
    if not native.dtype.is_floating_point:
        return Distance(0.0 if torch.equal(computed, native) else math.inf, 0.0)
    ours, theirs = computed.detach().double(), native.detach().double()
    errors = torch.where((ours == theirs) | (ours.isnan() & theirs.isnan()), 0.0, (ours - theirs).abs())
    largest = theirs[theirs.isfinite()].abs().max().item() if bool(theirs.isfinite().any()) else 0.0
    return Distance(errors.nan_to_num(math.inf).max().item() if errors.numel() else 0.0, largest)
