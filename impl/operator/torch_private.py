"""Every private torch name this package uses, in one place.

The names below exist and behave alike in every torch that `opassay doctor` has for tested; they are private, so a
later torch may move them. Importing this module then fails with an ImportError that says which
name is missing, and `tests/impl/test_transforms.py` (the transform matrix) tells whether a name
that still exists still means the same. What the functions below are for stands in their docstrings.

| name here | torch name | what for |
|---|---|---|
| SingleLevelFunction | torch.autograd.function._SingleLevelFunction | a custom function for one functorch level |
| single_level_function_enabled | torch._functorch.utils.enable_single_level_autograd_function | apply it |
| below_autograd | torch._C._AutoDispatchBelowAutograd | re-enter an op below its Autograd kernel |
| forward_ad_enabled | torch.autograd.forward_ad._set_fwd_grad_enabled | forward AD back on inside a kernel |
| is_forward_ad_enabled | torch._C._is_fwd_grad_enabled | may operations carry tangents on |
| (used in place) | torch.autograd.forward_ad._current_level | is a dual level open |
| (used in place) | torch._C._FunctionBase.to_save, materialize_grads, non_differentiable | set on a context |
| (used in place) | torch.compiler._is_compiling_flag | is non-strict export tracing |
| key_included | torch._C._dispatch_tls_is_dispatch_key_included | is VMAP_MODE on |
| VMAP_MODE | torch._C._parse_dispatch_key("VmapMode") | the key of torch.autograd.grad(is_grads_batched=True) |
| has_kernel | torch._C._dispatch_has_kernel_for_dispatch_key | does torch autocast an op of its own |
| transforms_active | torch._C._are_functorch_transforms_active | is a grad, jvp or vmap level open |
| dispatch_mode_count | torch._C._len_torch_dispatch_stack | is a dispatch mode (fake tensors, tracing, counting) open |
| register_jit_decomposition | torch.jit._register_decomposition | what forward AD runs of an op without a formula |
| wrap_for_grad, unwrap_for_grad | torch._C._functorch._wrap_for_grad, _unwrap_for_grad | one level of grad or jvp |
| level_of | torch._C._functorch.maybe_get_level | the outermost level that wraps a tensor |
| unwrap_if_dead | torch._C._functorch.unwrap_if_dead | a tensor of a level that has ended |
| current_level, add_batch_dim | torch._C._functorch.current_level, _add_batch_dim | one level of vmap |
| unwrap_batched, restore_vmap | torch._functorch.vmap | the tensors inside, the function on slices |
| broadcast_to_and_flatten | torch._functorch.vmap._broadcast_to_and_flatten | out_dims as a prefix of the outputs |
| TransformType, HigherOrderOperator | torch._C._functorch, torch._ops | an operator with a rule per transform |
| softmax_backward_data | torch._softmax_backward_data | ATen's op, in half the time of `torch.ops` |
| log_softmax_backward_data | torch._log_softmax_backward_data | the same |
| pytree | torch.utils._pytree | containers of outputs |
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor


def _private(path: str) -> Any:
    """The object at dotted `path`; ImportError naming the path and the version of torch when it is not there."""
    names = path.split(".")
    for split in range(len(names) - 1, 0, -1):
        try:
            target: Any = importlib.import_module(".".join(names[:split]))
        except ImportError:
            continue
        try:
            for name in names[split:]:
                target = getattr(target, name)
        except AttributeError:
            break
        return target
    raise ImportError(
        f"opassay.impl needs the private name {path}, which torch={torch.__version__} does not have;"
        " `opassay doctor` says which versions opassay was tested with."
    )


SingleLevelFunction: Any = _private("torch.autograd.function._SingleLevelFunction")
single_level_function_enabled: Callable[[], AbstractContextManager[None]] = _private(
    "torch._functorch.utils.enable_single_level_autograd_function"
)
below_autograd: Callable[[], AbstractContextManager[None]] = _private("torch._C._AutoDispatchBelowAutograd")
forward_ad_enabled: Callable[[bool], AbstractContextManager[None]] = _private(
    "torch.autograd.forward_ad._set_fwd_grad_enabled"
)
is_forward_ad_enabled: Callable[[], bool] = _private("torch._C._is_fwd_grad_enabled")
transforms_active: Callable[[], bool] = _private("torch._C._are_functorch_transforms_active")
dispatch_mode_count: Callable[[], int] = _private("torch._C._len_torch_dispatch_stack")
_private("torch.autograd.forward_ad._current_level")
is_alias_of: Callable[[Tensor, Tensor], bool] = _private("torch._C._is_alias_of")
_private("torch.compiler._is_compiling_flag")
for _name in ("to_save", "materialize_grads", "non_differentiable"):
    _private(f"torch._C._FunctionBase.{_name}")
key_included: Callable[[Any], bool] = _private("torch._C._dispatch_tls_is_dispatch_key_included")
VMAP_MODE: Any = _private("torch._C._parse_dispatch_key")("VmapMode")
has_kernel: Callable[[str, str], bool] = _private("torch._C._dispatch_has_kernel_for_dispatch_key")
register_jit_decomposition: Callable[[Any, Any], None] = _private("torch.jit._register_decomposition")
_peek: Callable[[], Any] = _private("torch._C._functorch.peek_interpreter_stack")
_JVP: Any = _private("torch._C._functorch.TransformType.Jvp")
unwrap_for_grad: Callable[[Tensor, int], Tensor] = _private("torch._C._functorch._unwrap_for_grad")
wrap_for_grad: Callable[[Tensor, int], Tensor] = _private("torch._C._functorch._wrap_for_grad")
unwrap_if_dead: Callable[[Tensor], Tensor] = _private("torch._C._functorch.unwrap_if_dead")
level_of: Callable[[Tensor], int] = _private("torch._C._functorch.maybe_get_level")
current_level: Callable[[], int] = _private("torch._C._functorch.current_level")
add_batch_dim: Callable[[Tensor, int, int], Tensor] = _private("torch._C._functorch._add_batch_dim")
unwrap_batched: Callable[[Any, int], tuple[Any, Any]] = _private("torch._functorch.vmap.unwrap_batched")
restore_vmap: Callable[..., Callable[..., tuple[Any, Any]]] = _private("torch._functorch.vmap.restore_vmap")
broadcast_to_and_flatten: Callable[[Any, Any], list[Any] | None] = _private(
    "torch._functorch.vmap._broadcast_to_and_flatten"
)
TransformType: Any = _private("torch._C._functorch.TransformType")
HigherOrderOperator: Any = _private("torch._ops.HigherOrderOperator")
_keep_versions: Callable[..., AbstractContextManager[None]] = _private(
    "torch.autograd._unsafe_preserve_version_counter"
)
_inner: Callable[[Tensor], Tensor] = _private("torch._C._functorch.get_unwrapped")
_is_wrapper: Callable[[Tensor], bool] = _private("torch._C._functorch.is_functorch_wrapped_tensor")
_eager_transforms: Any = _private("torch._functorch.eager_transforms")
_private("torch._functorch.eager_transforms.JVP_NESTING")
# By way of `torch.ops`, a call of these would take a microsecond longer, which is the time of a small softmax.
softmax_backward_data: Callable[[Tensor, Tensor, int, torch.dtype], Tensor] = _private("torch._softmax_backward_data")
log_softmax_backward_data: Callable[[Tensor, Tensor, int, torch.dtype], Tensor] = _private(
    "torch._log_softmax_backward_data"
)
pytree: Any = _private("torch.utils._pytree")
_private("torch.ops.aten.trace.default._op")
_set_strategy: Callable[[Any, Any], None] = _private("torch._C._dynamo.eval_frame.set_code_exec_strategy")
_Strategy: Any = _private("torch._C._dynamo.eval_frame._FrameExecStrategy")
_SKIP: Any = _private("torch._C._dynamo.eval_frame._FrameAction.SKIP")


def without_wrapper(overload: torch._ops.OpOverload) -> Callable[..., Any]:
    """The C++ function behind one of torch's ops, to be called in place of the overload.

    `OpOverload.__call__` only hands its arguments on to it. A kernel that makes one call of an op is a tenth faster
    without that method.
    """
    called: Callable[..., Any] = overload._op
    return called


def top_jvp_level() -> int | None:
    """Level of the innermost functorch transform when it is a jvp, else None."""
    top = _peek()
    return top.level() if top is not None and top.key() == _JVP else None


def constant_at(tensor: Tensor, level: int) -> Tensor:
    """`tensor` without the tangent that it carries at grad or jvp level `level`; tangents of outer levels stay.

    The tensor is wrapped for the level again, because inside the kernel of a level torch takes the tangent of a bare
    tensor, which belongs to an outer level, for a tangent of that level.
    """
    return wrap_for_grad(unwrap_for_grad(tensor, level), level)


def shares_elements(tensor: Tensor) -> bool:
    """Whether torch can tell that several elements of a tensor share memory, as in an expanded tensor."""
    return bool(torch._debug_has_internal_overlap(tensor) == 1)


def keep_out_of_graphs(function: Any, reason: str) -> None:
    """Make torch.compile break its graph at calls of `function`, which then runs eagerly with all that it calls."""
    function._torchdynamo_disable, function._torchdynamo_disable_msg = True, reason
    _set_strategy(function.__code__, _Strategy(_SKIP, _SKIP))


@contextmanager
def forward_mode_for_threads() -> Iterator[None]:
    """A context in which several threads may call `torch.func.jvp` at once.

    torch has one dual level per process. The first jvp opens it and closes it again at its end, even while another
    thread still works in it; here the level outlives them all.
    """
    open_already = torch.autograd.forward_ad._current_level >= 0
    with nullcontext() if open_already else torch.autograd.forward_ad.dual_level():
        _eager_transforms.JVP_NESTING += 1
        try:
            yield
        finally:
            _eager_transforms.JVP_NESTING -= 1


def preserve_versions(tensor: Tensor) -> AbstractContextManager[None]:
    """A context in which autograd does not count writes to a tensor, whichever functorch levels wrap it."""
    layers = [tensor]
    while _is_wrapper(layers[-1]):
        layers.append(_inner(layers[-1]))
    return _keep_versions(tuple(layers))
