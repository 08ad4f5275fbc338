"""What batch norm refuses, in which words, and that it writes nothing before it does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap

from opassay import impl

X, W, MEAN, VAR = torch.ones(4, 3, 5), torch.ones(3), torch.zeros(3), torch.ones(3)

REFUSALS: list[tuple[Any, type[Exception], str]] = [
    (lambda: impl.batch_norm(X, None, None), RuntimeError, "got running_mean=None, need running statistics without"),
    (lambda: impl.batch_norm(X, MEAN, None, training=True), ValueError, "got running_var=None, need running_mean and"),
    (
        lambda: impl.batch_norm(X[:1, :, :1], None, None, training=True),
        ValueError,
        r"shape=\[1, 3, 1\], need more than",
    ),
    (lambda: impl.batch_norm(X, None, None, training=True, eps=0.0), ValueError, "got eps=0.0, need a positive"),
    (lambda: impl.batch_norm(X, MEAN, VAR, momentum=None), TypeError, "got momentum=None, need a float"),  # type: ignore[arg-type]
    (lambda: impl.batch_norm(X, MEAN, VAR, eps="1"), TypeError, "got eps='1', need a float"),  # type: ignore[arg-type]
    (lambda: impl.batch_norm(X, MEAN[:2], VAR), RuntimeError, r"got running_mean of shape=\[2\] and input of shape="),
    (lambda: impl.batch_norm(X, MEAN, VAR.double()), RuntimeError, "got running_var of dtype=torch.float64 and input"),
    (lambda: impl.batch_norm(X, MEAN, VAR, W.to("meta")), RuntimeError, "got weight on device=meta and input on"),
    (lambda: impl.batch_norm(X[0, 0], MEAN, VAR), IndexError, "need at least two dims"),
    (
        lambda: impl.native_batch_norm_legit_no_stats(X, W, None, False, 0.1, 1e-5),
        RuntimeError,
        "native_batch_norm_legit_no_stats: got running_mean=None, need running statistics without training",
    ),
    (
        lambda: impl.native_batch_norm_legit(X, W, None, None, VAR, True, 0.1, 1e-5),  # type: ignore[arg-type]
        RuntimeError,
        "native_batch_norm_legit: got running_mean=None, need a Tensor",
    ),
    (
        lambda: impl.native_batch_norm_backward(X, X, W, None, None, None, None, False, 1e-5, [True] * 3),
        RuntimeError,
        "got running_mean=None, need it with training=False",
    ),
    (
        lambda: impl.cudnn_batch_norm_backward(X, X, W, None, None, MEAN, None, 1e-5, X),
        RuntimeError,
        "cudnn_batch_norm_backward: got save_var=None, need it with training=True",
    ),
    (
        lambda: impl.native_batch_norm_backward(X, X, W, None, None, MEAN, VAR, True, 1e-5, [True]),
        RuntimeError,
        r"got output_mask=\[True\], need three bools",
    ),
    (
        lambda: impl.miopen_batch_norm_backward(X, X[:2], W, None, None, MEAN, VAR, 1e-5),
        RuntimeError,
        r"got grad_out of shape=\[2, 3, 5\], dtype=torch.float32",
    ),
]


@pytest.mark.parametrize(("call", "error", "text"), REFUSALS)
def test_refusals(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def _trained(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    return impl.batch_norm(x, mean, var, training=True)


@pytest.mark.parametrize("in_dims", [(0, None, None), (0, 0, None), (0, None, 0)])
def test_running_statistics_that_slices_share(in_dims: tuple[int | None, ...]) -> None:
    """Refused in torch's words, and neither of them is written."""
    args = [torch.randn(2, 4, 3), *(MEAN.expand(2, 3).clone() if d == 0 else MEAN.clone() for d in in_dims[1:])]
    before = [t.clone() for t in args]
    messages = []
    for call in (_trained, lambda x, m, v: torch.nn.functional.batch_norm(x, m, v, training=True)):
        with pytest.raises(RuntimeError) as refusal:
            vmap(call, in_dims)(*args)
        messages.append(str(refusal.value).splitlines()[0])
        assert all(torch.equal(t, copies) for t, copies in zip(args, before, strict=True))
    assert messages[0] == messages[1]
