"""Settings of torch: modes and levels that were entered, random states, flags, autocast, hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad
from torch.nn.modules import module as modules
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils import _python_dispatch as dispatch

from .setting import ANY, Setting, onoff

_functorch: Any = torch._C._functorch
_autograd: Any = torch._C._autograd
_context: Any = torch._C


def _set_function_modes(modes: tuple[Any, ...]) -> None:
    for _ in range(_context._len_torch_function_stack()):
        _pop_mode()
    for mode in modes:
        _push_mode(mode)


#: Modes of the dispatcher that the framework keeps open while it judges: no subject has entered them.
_OWN_MODES: list[Any] = []


@contextlib.contextmanager
def hold_mode(mode: Any) -> Iterator[None]:
    """Keep a mode of the dispatcher open in the block, below all modes that a subject enters."""
    _OWN_MODES.append(mode)
    try:
        with mode:
            yield
    finally:
        _OWN_MODES.remove(mode)


def _set_dispatch_modes(modes: tuple[Any, ...]) -> None:
    # Fake, functional and proxy modes are not on the stack itself but in slots of their own, which torch finds by a
    # key.
    while _context._len_torch_dispatch_stack():
        dispatch._pop_mode(getattr(dispatch._get_current_dispatch_mode_stack()[-1], "_mode_key", None))
    for mode in (*_OWN_MODES, *modes):
        dispatch._push_mode(mode)


def _function_modes() -> tuple[Any, ...]:
    return tuple(_get_current_function_mode_stack()) if _context._len_torch_function_stack() else ()


def _dispatch_modes() -> tuple[Any, ...]:
    if not _context._len_torch_dispatch_stack():
        return ()
    return tuple(mode for mode in dispatch._get_current_dispatch_mode_stack() if mode not in _OWN_MODES)


def _leave_levels(depth: int) -> None:
    if _functorch.get_dynamic_layer_stack_depth() > depth:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def _dual_level() -> int:
    """The level of forward AD, -1 outside of one.

    An interrupt inside `enter_dual_level` may leave torch's core inside of a level that its Python side knows nothing
    of. The core has one level and does not say whether it is in there; but it refuses to enter it then.
    """
    if forward_ad._current_level >= 0:
        return forward_ad._current_level
    try:
        _context._exit_dual_level(level=_context._enter_dual_level())
    except RuntimeError:
        return 0
    return -1


def _leave_dual_levels(level: int) -> None:
    while _dual_level() > level:
        # An interrupt inside `exit_dual_level` may leave a level on the Python side that the core has left already.
        with contextlib.suppress(RuntimeError):
            _context._exit_dual_level(level=_dual_level())
        forward_ad._current_level = max(forward_ad._current_level - 1, -1)


def _kinds(stack: tuple[Any, ...]) -> str:
    return "[" + ", ".join(type(mode).__name__ for mode in stack) + "]"


DISPATCH_KEYS = "dispatch keys of torch"
_KEY_NAMES = (
    "BackendSelect", "ADInplaceOrView", "Python", "PythonTLSSnapshot", "AutogradOther", "AutogradNestedTensor",
    "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode", "Functionalize",
)  # fmt: skip
_KEYS = tuple(getattr(_context.DispatchKey, name) for name in _KEY_NAMES)
_MASK = sum(_context.DispatchKeySet(key).raw_repr() for key in _KEYS)
_USUAL = sum(_context.DispatchKeySet(key).raw_repr() for key in _KEYS[:2])
#: Those by which the dispatcher reaches an open mode.
_MODE_KEYS = sum(_context.DispatchKeySet(key).raw_repr() for key in _KEYS[2:4])


def _dispatch_keys() -> tuple[int, int]:
    """The keys that the dispatcher includes, and those that it excludes, whatever the tensors are: two bit masks.

    These keys may change without a call that sets them: a guard of inference mode that is deleted while its mode is
    entered puts back the keys of the time when the mode was entered. Those of the framework's own modes are left out.
    """
    included, excluded = _context._dispatch_tls_local_include_set(), _context._dispatch_tls_local_exclude_set()
    return included.raw_repr() & _MASK & ~(_MODE_KEYS * bool(_OWN_MODES)), excluded.raw_repr() & _MASK


def _set_dispatch_keys(key_sets: tuple[int, int]) -> None:
    included = key_sets[0] | _MODE_KEYS * bool(_OWN_MODES)
    for key in _KEYS:
        bit = _context.DispatchKeySet(key).raw_repr()
        _context._dispatch_tls_set_dispatch_key_included(key, bool(included & bit))
        _context._dispatch_tls_set_dispatch_key_excluded(key, bool(key_sets[1] & bit))


#: Read and put back before all others, because no tensor can be trusted while a mode is still entered.
LEVELS = (
    Setting("torch function modes", _function_modes, _set_function_modes, (), _kinds),
    Setting("torch dispatch modes", _dispatch_modes, _set_dispatch_modes, (), _kinds),
    Setting("functorch level", _functorch.get_dynamic_layer_stack_depth, _leave_levels, 0),
    Setting(DISPATCH_KEYS, _dispatch_keys, _set_dispatch_keys, (_USUAL, 0), None),
    Setting("forward AD level", _dual_level, _leave_dual_levels, -1),
    Setting("forward AD", _context._is_fwd_grad_enabled, _context._set_fwd_grad_enabled, True, onoff),
)


def _set_torch_state(state: bytes) -> None:
    torch.default_generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _cuda_states() -> Any:
    if not torch.cuda.is_initialized():
        return ANY  # CUDA may start in a call, which changes no state
    return tuple(generator.get_state().numpy().tobytes() for generator in torch.cuda.default_generators)


def _set_cuda_states(states: tuple[bytes, ...]) -> None:
    for generator, state in zip(torch.cuda.default_generators, states, strict=False):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def seed_torch(seed: int) -> None:
    """Seed the generators of the CPU and of all GPUs; those of CUDA have torch's own seed until CUDA starts."""
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        for generator in torch.cuda.default_generators:
            generator.manual_seed(seed)


def _default_device() -> Any:
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def _set_default_device(context: Any) -> None:
    torch._GLOBAL_DEVICE_CONTEXT.device_context = context


def _nesting() -> int:
    # Torch tells the depth only as the result of a step, so one step is taken inwards and one back.
    torch.autocast_increment_nesting()
    depth: int = torch.autocast_decrement_nesting()
    return depth


def _set_nesting(depth: int) -> None:
    for _ in range(_nesting() - depth):
        torch.autocast_decrement_nesting()
    for _ in range(depth - _nesting()):
        torch.autocast_increment_nesting()
    # Torch keeps casts of weights until the outermost autocast is left. A level that is taken back here was not left,
    # so its casts would serve later calls.
    if depth == 0:
        torch.clear_autocast_cache()


def _autocast(device: str) -> tuple[Setting, ...]:
    usual = torch.bfloat16 if device == "cpu" else torch.float16
    return (
        Setting(
            f"autocast on {device}",
            lambda: torch.is_autocast_enabled(device),
            lambda enabled: torch.set_autocast_enabled(device, enabled),
            False,
            onoff,
        ),
        Setting(
            f"autocast dtype on {device}",
            lambda: torch.get_autocast_dtype(device),
            lambda dtype: torch.set_autocast_dtype(device, dtype),
            usual,
        ),
    )


def _saved_hooks() -> Any:
    return _autograd._top_saved_tensors_default_hooks(True)


def _set_saved_hooks(hooks: Any) -> None:
    # Torch shows only the innermost pair of hooks, so pairs are taken off until the right one is on top.
    while (top := _saved_hooks()) is not None and top != hooks:
        _autograd._pop_saved_tensors_default_hooks()
    if hooks is not None and _saved_hooks() is None:
        _autograd._push_saved_tensors_default_hooks(*hooks)


_HOOKS: tuple[dict[Any, Any], ...] = tuple(
    value for name, value in vars(modules).items() if name.startswith("_global_") and isinstance(value, dict)
)


def _module_hooks() -> tuple[Any, ...]:
    return tuple(tuple(hooks.items()) for hooks in _HOOKS) if any(_HOOKS) else ()


def _set_module_hooks(hooks: tuple[Any, ...]) -> None:
    for registry, items in zip(_HOOKS, hooks or ((),) * len(_HOOKS), strict=True):
        registry.clear()
        registry.update(items)


def _flag(name: str, getter: str, setter: str, default: Any) -> Setting:
    """A flag of torch's global context."""
    return Setting(name, getattr(_context, getter), getattr(_context, setter), default)


def _deterministic() -> tuple[bool, bool]:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


TORCH = (
    Setting(
        "default device", _default_device, _set_default_device, None, lambda c: "cpu" if c is None else str(c.device)
    ),
    Setting(
        "random state of torch",
        lambda: torch.default_generator.get_state().numpy().tobytes(),
        _set_torch_state,
        show=None,
        drifts=True,
    ),
    Setting("random state of torch on CUDA", _cuda_states, _set_cuda_states, show=None, drifts=True),
    Setting("threads of torch", torch.get_num_threads, torch.set_num_threads),
    # Torch sets this number once in a process's life, so a change can be reported but not put back.
    Setting("interop threads of torch", torch.get_num_interop_threads, lambda count: None),
    Setting(
        "deterministic algorithms (enabled, warn only)",
        _deterministic,
        lambda flags: torch.use_deterministic_algorithms(flags[0], warn_only=flags[1]),
        (False, False),
    ),
    _flag("cudnn.deterministic", "_get_cudnn_deterministic", "_set_cudnn_deterministic", False),
    _flag("cudnn.benchmark", "_get_cudnn_benchmark", "_set_cudnn_benchmark", False),
    _flag("mkldnn.enabled", "_get_mkldnn_enabled", "_set_mkldnn_enabled", True),
    _flag("TF32 in cudnn", "_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32", ANY),
    _flag("TF32 in matmul", "_get_cublas_allow_tf32", "_set_cublas_allow_tf32", ANY),
    Setting(
        "float32 matmul precision", torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"
    ),
    *_autocast("cpu"),
    *_autocast("cuda"),
    Setting("autocast cache", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, True, onoff),
    Setting("autocast nesting", _nesting, _set_nesting),
    Setting(
        "anomaly mode (enabled, checks NaN)",
        lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        lambda flags: torch.set_anomaly_enabled(*flags),
        (False, True),
    ),
    Setting(
        "in-place requires_grad_ under transforms",
        _functorch.get_inplace_requires_grad_allowed,
        _functorch.set_inplace_requires_grad_allowed,
        False,
        onoff,
    ),
    Setting(
        "autograd functions under one transform",
        _functorch.get_single_level_autograd_function_allowed,
        _functorch.set_single_level_autograd_function_allowed,
        False,
        onoff,
    ),
    Setting("hooks on saved tensors", _saved_hooks, _set_saved_hooks, show=None),
    Setting("global module hooks", _module_hooks, _set_module_hooks, show=None),
)
