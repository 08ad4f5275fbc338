"""Any custom function as an op, judged by a given formula or by the one that is traced from its forward."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.op.declaration import Op, Promises, is_float
from ...oracles.process import interrupt
from ...oracles.specs import UntraceableError, formula_of
from ...reference.algorithms import declare_all, declared
from ..checks.transforms.agree import Opaque
from ..declaring.user_samples import Args, Samples, drafts_of_user, drawer, dtypes_when_called
from ..names import collect_names, require_known
from .offer import Offer, forward_of, not_offered


@interrupt.SignalScope()
def custom_function(
    function: Any,
    samples: Samples,
    reference: Callable[..., Any] | None = None,
    *,
    constant: Iterable[str] = (),
    offer: Offer | None = None,
    name: str = "",
) -> Op:
    """The declaration of a custom function, for `verify`, for a plugin, or for `opassay run --op MODULE:NAME`.

    Args:
        function: a subclass of `torch.autograd.Function` or of `opassay.impl.Function`. One without `setup_context` is
            asked through autograd alone, because torch.func refuses it; and one whose backward is
            `once_differentiable` is not asked for second derivatives.
        samples: tuples of arguments as for `apply`, or arguments by name; or a function that gives such a sample, of a
            `numpy.random.Generator` or of nothing. Floating tensors are converted to the dtype that is asked for.
            Slices of a batch get values between the smallest and the largest of a given tensor.
        reference: the formula, in NumPy: arguments of `forward`, outputs as a tuple in the order of the leaves, None
            for what is no floating tensor. Without one, it is what `forward` says, if that is made of known operations;
            else derivatives, vmap and nestings are judged for agreement with each other.
        constant: names of the floating arguments that gradients are not promised for.
        offer: what it does not offer, besides what its members say, and what it promises. With `specials`, what the
            formula gives at NaN, infinities, zeros and the largest numbers is asked for, bit for bit where it is
            special itself.
        name: of the op; by default that of the class.

    Raises:
        TypeError: `function` is no custom function, or a sample does not go with its `forward`.
        ValueError: there are no samples, or a name in `constant` or `offer` is none.
    """
    offer = Offer.of(offer, "outputs", "supported", "invariant")
    if not (isinstance(function, type) and issubclass(function, torch.autograd.Function)):
        raise TypeError(f"function: got {function!r}, need a subclass of torch.autograd.Function")
    forward = forward_of(function)
    draw = drawer(forward, samples)
    first = draw(np.random.default_rng(0))
    signature = inspect.signature(forward)
    fixed = collect_names(constant)
    require_known("constant", fixed, signature.parameters)
    writes, aliases = _observe_writes(forward, first)
    formula: Any = _formula(forward, reference, first)
    formula.__signature__ = signature
    differentiable = tuple(n for n in offer.choose_differentiable(tuple(signature.parameters)) if n not in fixed)
    subject = functools.partial(_apply, function, writes)
    op = Op(
        name or function.__name__, formula, {"opassay": subject}, functools.partial(drafts_of_user, draw),
        differentiable, Promises(functools.partial(dtypes_when_called, forward)), documented=offer.documented,
    )  # fmt: skip
    return op.changed(
        aliases=lambda args: aliases, nesting=3, **offer.keywords() | {
            "without": not_offered(function) | offer.lacking(usual=()), "specials": bool(offer.specials)
        },
    )  # fmt: skip


def _observe_writes(forward: Callable[..., Any], args: Args) -> tuple[tuple[int, ...], tuple[int | None, ...]]:
    """Positions of the arguments that forward writes, and for each floating output the argument whose memory it has."""
    copies = [a.detach().clone() if isinstance(a, torch.Tensor) else a for a in args]
    # Torch counts in `_version` how often a tensor is written, through views of it as well.
    before = {i: a._version for i, a in enumerate(copies) if isinstance(a, torch.Tensor)}
    with torch.no_grad():
        leaves = pytree.tree_leaves(forward(*copies))
    writes = tuple(i for i, version in before.items() if copies[i]._version != version)
    # Tensors without elements have no memory, so all of them would seem to share it.
    homes = {copies[i].untyped_storage().data_ptr(): i for i in before if copies[i].numel() and i not in writes}
    floating = [t for t in leaves if isinstance(t, torch.Tensor) and t.dtype.is_floating_point]
    # An argument that is written is copied before the call (`_apply`), so its output shares no memory with it.
    return writes, tuple(homes.get(t.untyped_storage().data_ptr()) if t.numel() else None for t in floating)


def _formula(forward: Callable[..., Any], reference: Callable[..., Any] | None, first: Args) -> Any:
    if reference is not None:
        functools.update_wrapper(stated := functools.partial(reference), reference)
        # Algorithms that the user has declared belong to the formula, so the wrapper has to have them as well.
        declare_all(stated, declared(reference))
        return stated
    traced = formula_of(forward)
    try:
        traced(*(a.detach().double().numpy() if is_float(a) else _as_numpy(a) for a in first))
    except UntraceableError as err:
        return Opaque(f"no formula: {str(err).splitlines()[0]}")
    except Exception as err:  # NumPy has the most functions of all readings, so no other reading would succeed
        return Opaque(f"no formula: {type(err).__name__}: {err}")
    return traced


def _as_numpy(value: Any) -> Any:
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def _apply(function: Any, writes: Sequence[int], *args: Any) -> tuple[Any, ...]:
    """Call a function on copies of the arguments that it writes; the tensors among the leaves of its outputs."""
    copies = [a.clone() if i in writes and isinstance(a, torch.Tensor) else a for i, a in enumerate(args)]
    return tuple(t for t in pytree.tree_leaves(function.apply(*copies)) if isinstance(t, torch.Tensor))
