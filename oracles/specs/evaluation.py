"""A spec in evaluation: torch's functions that drop elements in training are called as in evaluation."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode

#: Functions that drop elements, or draw slopes: the argument that asks for it, its position, its value in evaluation.
_IN_EVALUATION: dict[Any, tuple[str, int, Any]] = {
    **{
        getattr(F, name): ("training", 2, False)
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    },
    **{
        getattr(torch, f"{kind}dropout{end}"): ("train", 2, False)
        for kind in ("", "alpha_", "feature_", "feature_alpha_")
        for end in ("", "_")
    },
    torch.native_dropout: ("train", 2, False),
    F.rrelu: ("training", 3, False),
    torch.rrelu: ("training", 3, False),
    torch.rrelu_: ("training", 3, False),
    F.multi_head_attention_forward: ("training", 13, False),
    F.scaled_dot_product_attention: ("dropout_p", 4, 0.0),
}


class _Evaluation(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in _IN_EVALUATION:
            return func(*args, **(kwargs or {}))
        name, position, value = _IN_EVALUATION[func]
        if len(args) > position:
            return func(*args[:position], value, *args[position + 1 :], **(kwargs or {}))
        return func(*args, **{**(kwargs or {}), name: value})


def without_dropout(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function with torch's dropout, in whatever it calls, as in evaluation, where nothing is dropped."""

    @functools.wraps(function)
    def in_evaluation(*args: Any, **kwargs: Any) -> Any:
        with _Evaluation():
            return function(*args, **kwargs)

    return in_evaluation


@contextlib.contextmanager
def evaluating(function: Any) -> Iterator[None]:
    """A module in evaluation; it is set back afterwards.

    Raises:
        TypeError: `function` is no module.
    """
    if not isinstance(function, torch.nn.Module):
        raise TypeError("a function has no evaluation, need a torch.nn.Module")
    modules = [module for module in function.modules() if module.training]
    function.eval()
    try:
        yield
    finally:
        for module in modules:
            module.training = True
