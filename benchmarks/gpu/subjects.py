"""Other people's kernels for the ops, called as the ops are; each is looked up when it is asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Call = Callable[..., Any]

#: Torch's own, by op; arguments by position are the same.
TORCH: dict[str, Call] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "layer_norm": F.layer_norm,
    "rms_norm": F.rms_norm,
    "group_norm": F.group_norm,
    "batch_norm": F.batch_norm,
    "nll_loss": F.nll_loss,
    "cross_entropy": F.cross_entropy,
    "log_sigmoid": F.logsigmoid,
    "trace": torch.trace,
    "cross_map_lrn2d": F.local_response_norm,
}


def torch_call(op: str, label: str) -> Call:
    """Torch's op."""
    return TORCH[op]


def compiled_call(op: str, label: str) -> Call:
    """Torch's op as inductor compiles it."""
    torch._dynamo.reset()
    compiled: Call = torch.compile(TORCH[op], fullgraph=True, dynamic=False)
    return compiled


def liger_call(op: str, label: str) -> Call:
    """Liger's kernel.

    Raises:
        KeyError: it has none. ImportError: it is not installed, or names it otherwise.
    """
    functional = importlib.import_module("liger_kernel.transformers.functional")
    calls: dict[str, Call] = {
        "softmax": lambda x, dim: functional.liger_softmax(x),
        "layer_norm": lambda x, row, weight, bias: functional.liger_layer_norm(x, weight, bias, 1e-5),
        "group_norm": lambda x, groups, weight, bias: functional.liger_group_norm(
            x, x.shape[1], groups, weight, bias, 1e-5
        ),
        "cross_entropy": lambda x, target: functional.liger_cross_entropy(x, target),
    }
    return _of_rows(calls, op, label)


def quack_call(op: str, label: str) -> Call:
    """Quack's kernel; errors as for `liger_call`."""
    calls: dict[str, Call] = {
        "softmax": lambda x, dim: importlib.import_module("quack.softmax").softmax(x),
        "layer_norm": lambda x, row, weight, bias: importlib.import_module("quack.layernorm").layernorm(
            x, weight.float(), bias.float()
        ),
        "cross_entropy": lambda x, target: importlib.import_module("quack.cross_entropy").cross_entropy(
            x, target, reduction="mean"
        ),
    }
    importlib.import_module("quack")
    return _of_rows(calls, op, label)


def _of_rows(calls: dict[str, Call], op: str, label: str) -> Call:
    # These know rows alone, and overwrite what they are not asked for elsewhere.
    if op not in calls or "inner" in label or "images" in label or "last" in label:
        raise KeyError(f"none for {op} {label}")
    return calls[op]


SUBJECTS: dict[str, Callable[[str, str], Call]] = {
    "torch": torch_call,
    "compiled": compiled_call,
    "liger": liger_call,
    "quack": quack_call,
}
