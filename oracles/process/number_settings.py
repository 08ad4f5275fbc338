"""Settings that decide how a thread computes: rounding, subnormals, default dtype, gradients."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import torch

from .setting import Setting, onoff

# The operands are variables, so that Python does not compute the results while it compiles the expressions below.
_SMALL, _HALF, _SUBNORMAL, _LARGE, _ONE, _TIE = [sys.float_info.min, 0.5, 5e-324, 2.0**1000, 1.0, 0.75 * 2.0**-52]


def flushes() -> bool:
    """Whether this thread turns subnormal results into zero; Python and NumPy do what it does."""
    return _SMALL * _HALF == 0


def _ignores() -> bool:
    """Whether this thread reads subnormal operands as zero."""
    return _SUBNORMAL * _LARGE == 0


def _rounding() -> tuple[bool, bool]:
    """How this thread rounds: (3/4 of an ulp goes up, and down below zero) to nearest, otherwise elsewhere."""
    return _ONE + _TIE > 1.0, -_ONE - _TIE < -1.0


_ROUNDINGS = {(True, True): "to nearest", (True, False): "upward", (False, True): "downward", (False, False): "to zero"}


def _round_to_nearest(_: Any) -> None:
    ctypes.CDLL(None).fesetround(0)  # FE_TONEAREST on every platform that torch runs on


#: Guards of inference mode. When torch deletes a guard, it leaves the mode that the guard entered.
_OPEN_GUARDS: list[Any] = []


def _set_inference(enabled: bool) -> None:
    if torch.is_inference_mode_enabled() != enabled:
        guard: Any = torch._C._InferenceMode(enabled)
        guard.__enter__()
        _OPEN_GUARDS.append(guard)


# Torch sets both switches for subnormals in one call, but other code can set either of them, so each is read by
# itself.
NUMERICS = (
    Setting("flush-to-zero", flushes, torch.set_flush_denormal, False, onoff),
    Setting("denormals-are-zero", _ignores, torch.set_flush_denormal, False, onoff),
    Setting("rounding", _rounding, _round_to_nearest, (True, True), _ROUNDINGS.__getitem__),
    Setting("default dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    Setting("inference mode", torch.is_inference_mode_enabled, _set_inference, False, onoff),
    Setting("grad mode", torch.is_grad_enabled, torch._C._set_grad_enabled, True, onoff),
)
