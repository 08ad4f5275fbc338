"""What torch documents of its own implementations, the subject "torch" of the ops of the catalog.

Every entry names the page of torch's documentation (version 2.13) that states it. Where the documentation says nothing,
torch is held to the op's own promises.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from ...oracles.op.documented import Documented, Limit

_ACCURACY = "notes/numerical_accuracy"
#: torch's ops may refuse floating tensors of several dtypes.
MIXED = Limit(
    "floating tensors of several dtypes",
    "tensor_attributes, torch.dtype: type promotion is documented for arithmetic operations alone",
    error=r"scalar type|dtype|Half|BFloat16",
    where=lambda **named: _mixed(named),
)
FORWARD_AD = Limit(
    "no forward AD",
    "torch.func.jvp: an operator that has none says so",
    error=r"does not support it|forward-mode AD not implemented",
    transforms=frozenset({"jvp"}),
    kinds=(NotImplementedError, RuntimeError),
)
#: Backward ops of aten are no public functions, and torch documents no derivative of them.
UNDOCUMENTED_DERIVATIVE = Limit(
    "no derivative of a backward op",
    "torch.ops.aten: backward ops are not public, and nothing is documented of their derivatives",
    error=r"derivative for '?aten::\w+'? is not implemented|not differentiable|derivative for '\w+' is not implemented",
)
ABSENT = Limit(
    "the gradient of a weight that is not there",
    "torch.ops.aten: backward ops are not public, and nothing is documented of the gradient of what is not there",
    error=r"tensor does not have a device",
    where=lambda **named: named["weight"] is None and named["output_mask"][1],
)
#: torch.group_norm makes its input contiguous before it calls the op of aten.
STRIDED = Limit(
    "an input that is not contiguous",
    "torch.ops.aten: ops are not public, and nothing is documented of the strides that they take",
    error=r"is_contiguous\(memory_format\) to be true",
)
EMPTY = Limit(
    "tensors without elements",
    "torch.ops.aten: ops are not public, and nothing is documented of tensors without elements",
    where=lambda **named: any(isinstance(t, torch.Tensor) and not t.numel() for t in named.values()),
)
#: The limits of a torch.autograd.Function of the old style.
OLD_STYLE = Limit(
    "no torch.func, no forward AD",
    "notes/extending.func: an autograd.Function without setup_context and jvp offers neither",
    error=r"setup_context|must implement the jvp function",
)
#: COMP marks the extents that may change, and torch.compile refuses to compile code for one extent alone then.
SPECIALISED = Limit(
    "an extent that code is specialised to",
    "torch._dynamo.mark_dynamic: marking an extent that is specialised is an error",
    error=r"Constraints violated|marked .* as dynamic but",
    kinds=(RuntimeError, ValueError),
)
#: Ops that torch.func cannot batch: writes in place into what has no batch, and shapes that depend on data.
UNBATCHED = Limit(
    "no vmap",
    "func.ux_limitations: what vmap cannot batch raises an error",
    error=r"vmap: .*(is not possible|cannot support this|not supported)",
    transforms=frozenset({"vmap"}),
    kinds=(RuntimeError,),
)
PLAIN = Documented(
    source="torch's documentation",
    limits=(MIXED, FORWARD_AD, SPECIALISED, UNBATCHED),
    # No page of torch's documentation says how many bytes are kept for backward, which strides a result has, or which
    # error a wrong argument raises; and one page says that slices of a batch need not have the bits that they have
    # alone.
    promises={"saved": None, "invariant": None, "strides": None},
    not_asked={
        "MEM": "no documentation says how many bytes are kept for backward",
        "DATA": f"computations that are mathematically identical need not have the same bits ({_ACCURACY})",
        "INV": f"slices of a batch need not have the same bits ({_ACCURACY})",
    },
    bits=False,
    refuses=(),
)
#: Backward ops of aten.
BACKWARD = dataclasses.replace(PLAIN, limits=(*PLAIN.limits, UNDOCUMENTED_DERIVATIVE))
#: The backward op of layer norm.
ROWS_BACKWARD = dataclasses.replace(BACKWARD, limits=(*BACKWARD.limits, ABSENT))

TARGET = Limit(
    "class indices of another dtype than long",
    "torch.nn.CrossEntropyLoss: the target data type is required to be long when using class indices",
    where=lambda **named: named["target"].dtype is not torch.int64,
)
CLASSES = Limit(
    "an input without classes",
    "torch.nn.NLLLoss: each target is a class from 0 to C - 1, so there is one",
    where=lambda **named: named["input" if "input" in named else "self"].shape[_classes(named)] == 0,
)
_WEIGHT = "torch.nn.NLLLoss and CrossEntropyLoss: weight is a manual rescaling weight given to each class"
#: Losses are differentiable in their input to any order.
LOSS = dataclasses.replace(PLAIN, source=_WEIGHT, differentiable=("input",), limits=(TARGET, CLASSES, *PLAIN.limits))
LOSS_FORWARD = dataclasses.replace(LOSS, differentiable=("self",))
LOSS_BACKWARD = dataclasses.replace(
    LOSS, differentiable=("grad_output",), limits=(*LOSS.limits, UNDOCUMENTED_DERIVATIVE)
)
#: torch.softmax and torch.log_softmax: "If specified, the input tensor is cast to dtype before the operation".
ROWS = dataclasses.replace(PLAIN, casts=lambda dtype: dtype)
_OF_HOOK = {**PLAIN.promises, "one_graph": False, "identity": False}
#: The Function behind the full backward hooks of modules, at which torch.compile may break the graph.
HOOK = dataclasses.replace(PLAIN, limits=(OLD_STYLE, *PLAIN.limits), promises=_OF_HOOK)
#: Local response norm: its page names no half type.
WINDOW = dataclasses.replace(PLAIN, source="torch.nn.LocalResponseNorm", dtypes=("float64", "float32"))
#: torch.nn.GroupNorm: "Input: (N, C, *)".
CHANNELS = Limit(
    "an input without an axis of channels",
    "torch.nn.GroupNorm: the input is of shape (N, C, *)",
    where=lambda **named: named["input"].ndim < 2,
)
GROUPS = dataclasses.replace(PLAIN, limits=(CHANNELS, *PLAIN.limits))
GROUPS_BACKWARD = dataclasses.replace(GROUPS, limits=(*GROUPS.limits, UNDOCUMENTED_DERIVATIVE, ABSENT))


def by(documented: Documented) -> dict[str, Documented]:
    """The documentation of torch's functions, and of torch's modules, which call them.

    A module subject builds a module in each call. Users build a module first and compile it then, so COMP does not ask
    compiled code to build modules.
    """
    built = "a module is built before it is compiled, and compiled code that builds one need not work"
    module = dataclasses.replace(documented, not_asked={**documented.not_asked, "COMP": built})
    return {"torch": documented, "module": module}


def aten(documented: Documented) -> dict[str, Documented]:
    """The documentation of an op of torch.ops.aten; some of these ops end the process where an argument is wrong."""
    limits = (*documented.limits, STRIDED, EMPTY)
    unchecked = "ops of torch.ops.aten are not public, and nothing is documented of wrong arguments"
    return by(dataclasses.replace(documented, limits=limits, not_asked={**documented.not_asked, "ERROR": unchecked}))


def of_op(documented: Documented, internal: bool) -> dict[str, Documented]:
    """`aten` for an op that is internal to torch, `by` for a function of torch."""
    return aten(documented) if internal else by(documented)


def _mixed(named: Mapping[str, Any]) -> bool:
    floats = {t.dtype for t in named.values() if isinstance(t, torch.Tensor) and t.is_floating_point()}
    # Backward ops have the dtype of the forward op's input as an argument. It may differ from that of their tensors.
    other = named.get("input_dtype")
    return len(floats | ({other} if isinstance(other, torch.dtype) else set())) > 1


def _classes(named: Mapping[str, Any]) -> int:
    """The axis of classes of a loss's input."""
    dims: int = named["input" if "input" in named else "self"].ndim
    return min(dims, 2) - 1
