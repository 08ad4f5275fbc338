"""Samples that a user has at hand: tuples of arguments, arguments by name, or a function that gives one of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.op.declaration import Draft, Sample, is_float
from ...oracles.verdicts.violation import Code, Unsupported
from ..names import unknown_name

if TYPE_CHECKING:
    from hypothesis import strategies as st

Args = tuple[Any, ...]
Samples = Sequence[Args | Mapping[str, Any]] | Callable[..., Args | Mapping[str, Any]]
#: An extent: a number, a symbol, or a multiple of one ("2*n").
Extent = str | int
_SAMPLES = "as [(x, w), ...], or a function that gives one, of a numpy.random.Generator or of nothing"
_KINDS = {"integers": "of integers", "empty": "of no elements", "large": "of any size that is asked for"}


@dataclass(frozen=True)
class Integers:
    """An argument of whole numbers, where shapes are given by name: labels, indices, a count.

    Attributes:
        below: what every value is below: an extent as those of shapes, "C" for classes along an axis "C".
        shape: the extents of a tensor of int64; None for one int of Python.
        least: the smallest value.
    """

    below: Extent
    shape: Sequence[Extent] | None = None
    least: int = 0


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether a function can be called with so many arguments in order; true where Python cannot read that."""
    try:
        inspect.signature(function).bind(*range(count))
    except TypeError:
        return False
    except ValueError:
        return True
    return True


def drawer(forward: Callable[..., Any], samples: Samples) -> Callable[[Any], Args]:
    """A function: (generator) -> the arguments of one call, by position, with defaults.

    Args:
        forward: takes them. samples: one or several calls' arguments, or a function that gives those of one.

    Raises:
        TypeError: a sample does not go with `forward`, or `samples` are none. ValueError: there are no samples.
    """
    if callable(samples):
        if takes(samples, 1):
            return lambda rng: _bind(forward, samples(rng))
        return lambda rng: _bind(forward, call_seeded(samples, int(rng.integers(2**32))))
    if isinstance(samples, str | Mapping) or not isinstance(samples, Sequence):
        shape = f" of shape {tuple(samples.shape)}" if isinstance(samples, torch.Tensor) else ""
        raise TypeError(f"samples: got a {type(samples).__name__}{shape}, need tuples of arguments, {_SAMPLES}")
    rows = [_bind(forward, row) for row in samples]
    if not rows:
        raise ValueError("samples: got none, need at least one tuple of arguments")
    return lambda rng: rows[int(rng.integers(len(rows)))]


def call_seeded(give: Callable[[], Any], seed: int) -> Any:
    """What a function of nothing gives; torch's generator has the seed meanwhile."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return give()


def _bind(forward: Callable[..., Any], row: Any) -> Args:
    if not isinstance(row, (tuple, list, Mapping)):
        raise TypeError(f"samples: got a {type(row).__name__}, need tuples of arguments, {_SAMPLES}")
    signature = inspect.signature(forward)
    by_name = row if isinstance(row, Mapping) else {}
    for name in by_name:
        if name not in signature.parameters:
            raise TypeError(f"samples: {unknown_name('argument', name, signature.parameters)}")
    try:
        bound = signature.bind(**by_name) if by_name else signature.bind(*row)
    except TypeError as err:
        raise TypeError(f"samples: {len(row)} arguments do not go with forward: {err}") from err
    bound.apply_defaults()
    return bound.args


def drafts_of_user(draw: Callable[[Any], Args], dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
    """Drafts whose first slice is a sample of the user, and whose further slices have other values in its tensors."""
    if kind in _KINDS:
        raise Unsupported(Code.NOT_APPLICABLE, f"the samples that were given are not {_KINDS[kind]}")

    def draft_of(choice: int) -> Draft:
        return _UserDraft(
            lambda rng: _fill_arguments(draw(np.random.default_rng(choice)), rng, getattr(torch, dtype)), "as given"
        )

    from hypothesis import strategies as st  # here, because judgements need none of it

    return st.integers(0, 2**32 - 1).map(draft_of)


class _UserDraft(Draft):
    """A draft of a sample of the user; its further slices have values between those of the sample."""

    def sample(self, seed: int, slices: int = 0) -> Sample:
        rest = tuple(self.fill(np.random.default_rng([seed, i])) for i in range(slices))
        others = tuple(draft.fill(None) for draft in self.others)
        return Sample(self.fill(None), seed, self.regime, rest, others)


def _fill_arguments(args: Args, rng: Any, dtype: torch.dtype) -> Args:
    """The arguments with floating tensors of a dtype; with a generator, of values between those of each tensor."""
    return tuple(_between(a, rng).to(dtype).contiguous() if is_float(a) else a for a in args)


def _between(tensor: torch.Tensor, rng: Any) -> torch.Tensor:
    values = tensor.detach().to(torch.float64)
    # Without a generator the values do not change: the first slice is the user's own sample.
    if rng is None or not values.numel():
        return values
    flat = values.reshape(-1).numpy()
    a, b = (flat[rng.integers(flat.size, size=flat.size)] for _ in range(2))
    return torch.from_numpy(np.reshape(a + rng.random(flat.size) * (b - a), values.shape))


def dtypes_when_called(forward: Callable[..., Any], args: Args) -> tuple[torch.dtype, ...]:
    """The dtypes of the floating tensors that a function returns for copies of some arguments."""
    with torch.no_grad():
        leaves = pytree.tree_leaves(forward(*(a.clone() if isinstance(a, torch.Tensor) else a for a in args)))
    return tuple(t.dtype for t in leaves if is_float(t))
