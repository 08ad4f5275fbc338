"""Error types and texts of the losses: those of torch for the same mistake, with the value and the rule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from opassay.impl import (
    cross_entropy,
    nll_loss,
    nll_loss2d_backward,
    nll_loss2d_forward,
    nll_loss_backward,
    nll_loss_forward,
)
from opassay.impl.losses.nll_loss.kernels_cuda import Targets
from tests.oracles.stand_in_device import DeviceTensor

X = torch.zeros(3, 4)
T = torch.tensor([0, 1, 2])
W = torch.ones(4)

#: Keyword arguments that replace right ones, the error and its text after "<op>: ".
MISTAKES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "input not a tensor": ({"input": [1.0]}, TypeError, "got input=[1.0], need a Tensor."),
    "target not a tensor": ({"target": [0]}, TypeError, "got target=[0], need a Tensor."),
    "weight not a tensor": ({"weight": [1.0]}, TypeError, "got weight=[1.0], need a Tensor."),
    "ignore_index not an int": ({"ignore_index": 1.0}, TypeError, "got ignore_index=1.0, need an int."),
    "ignore_index a bool": ({"ignore_index": True}, TypeError, "got ignore_index=True, need an int."),
    "ignore_index None": ({"ignore_index": None}, TypeError, "got ignore_index=None, need an int."),
    "ignore_index beyond int64": (
        {"ignore_index": 2**63}, ValueError, f"got ignore_index={2**63}, need -2**63 <= ignore_index < 2**63.",
    ),
    "reduction": ({"reduction": "avg"}, ValueError, "got reduction='avg', need 'none', 'mean' or 'sum'."),
    "reduction a number": ({"reduction": 1}, ValueError, "got reduction=1, need 'none', 'mean' or 'sum'."),
    "integer input": (
        {"input": X.long()}, NotImplementedError,
        "got input of dtype=torch.int64, need float64, float32, bfloat16 or float16.",
    ),
    "int32 target": (
        {"target": T.int()}, RuntimeError, "got target of dtype=torch.int32, need int64 or uint8 class indices.",
    ),
    "class probabilities": (
        {"target": X}, RuntimeError, "got target of dtype=torch.float32, need int64 or uint8 class indices.",
    ),
    "no dims": (
        {"input": X[0, 0], "target": T[0]}, ValueError, "got input of shape=[], need at least one dim, the classes.",
    ),
    "another batch": (
        {"target": T[:2]}, ValueError,
        "got target of shape=[2] and input of shape=[3, 4], need a target of shape=[3].",
    ),
    "several targets for a row": (
        {"input": X[0], "target": T}, ValueError,
        "got target of shape=[3] and input of shape=[4], need one target.",
    ),
    "several targets per row": (
        {"target": T[:, None]}, RuntimeError,
        "got target of shape=[3, 1] and input of shape=[3, 4], need a target of shape=[3].",
    ),
    "weight length": ({"weight": W[:2]}, RuntimeError, "got weight of shape=[2], need one weight per class: [4]."),
    "weight dims": ({"weight": W[None]}, RuntimeError, "got weight of shape=[1, 4], need one weight per class: [4]."),
    "weight dtype": (
        {"weight": W.double()}, RuntimeError,
        "got weight of dtype=torch.float64 and input of dtype=torch.float32, need the input's dtype, or float32 with a"
        " bfloat16 or float16 input.",
    ),
    "target device": (
        {"target": T.to("meta")}, RuntimeError, "got target on device=meta and input on device=cpu, need one device.",
    ),
    "weight device": (
        {"weight": W.to("meta")}, RuntimeError, "got weight on device=meta and input on device=cpu, need one device.",
    ),
    "target beyond": (
        {"target": torch.tensor([0, 4, 9])}, IndexError,
        "got target=4 at 2 of 3 positions, need 0 <= target < 4 (the number of classes) or target = ignore_index=-100.",
    ),
    "negative target": ({"target": torch.tensor([0, -1, 9])}, IndexError, "got target=-1 at 2 of 3 positions"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("loss", [nll_loss, cross_entropy])
def test_mistake(loss: Callable[..., Any], mistake: str) -> None:
    change, kind, text = MISTAKES[mistake]
    with pytest.raises(kind) as error:
        loss(**({"input": X, "target": T} | change))
    assert str(error.value).startswith(f"{loss.__name__}: {text}")
    assert type(error.value) is kind


@pytest.mark.parametrize(
    ("value", "kind"), [(1.5, RuntimeError), (-0.1, RuntimeError), ("a", TypeError), (True, TypeError)]
)
def test_label_smoothing(value: Any, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="cross_entropy: got label_smoothing="):
        cross_entropy(X, T, label_smoothing=value)
    assert torch.equal(cross_entropy(X, T, label_smoothing=1), cross_entropy(X, T, label_smoothing=1.0))


def test_the_position_of_torch_s_deprecated_arguments_is_refused() -> None:
    with pytest.raises(TypeError, match="ignore_index=None"):
        nll_loss(X, T, None, None, -100)  # type: ignore[arg-type]


GRID, GRID_TARGET, ONE = torch.zeros(2, 4, 3, 1), torch.zeros(2, 3, 1, dtype=torch.int64), torch.tensor(1.0)


def test_native_forms() -> None:
    with pytest.raises(RuntimeError, match=r"nll_loss_forward: got self of shape=\[2, 4, 3, 1\], need 1 or 2 dims"):
        nll_loss_forward(GRID, GRID_TARGET, None, 1, -100)
    with pytest.raises(RuntimeError, match=r"nll_loss2d_forward: got self of shape=\[3, 4\], need 4 dims"):
        nll_loss2d_forward(X, T, None, 1, -100)
    with pytest.raises(RuntimeError, match="nll_loss_forward: got target of shape"):
        nll_loss_forward(X, T[:2], None, 1, -100)
    with pytest.raises(ValueError, match=r"got reduction=3, need 0 \(none\), 1 \(mean\) or 2 \(sum\)"):
        nll_loss_forward(X, T, None, 3, -100)
    with pytest.raises(TypeError, match="got reduction='mean', need an int"):
        nll_loss_forward(X, T, None, "mean", -100)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"nll_loss2d_backward: got grad_output of shape=\[2\], need one element"):
        nll_loss2d_backward(torch.ones(2), GRID, GRID_TARGET, None, 1, -100, ONE)
    with pytest.raises(RuntimeError, match=r"got grad_output of shape=\[\], need the target's shape=\[3\]"):
        nll_loss_backward(ONE, X, T, None, 0, -100, ONE)
    with pytest.raises(RuntimeError, match=r"got total_weight of shape=\[2\], need one element"):
        nll_loss_backward(ONE, X, T, None, 1, -100, torch.ones(2))
    with pytest.raises(RuntimeError, match=r"got total_weight of dtype=torch\.float64"):
        nll_loss_backward(ONE, X, T, None, 1, -100, ONE.double())


def everywhere(target: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype, weighted: bool) -> list[Any]:
    """Every call that a target may take part in, as functions without arguments."""
    x = torch.zeros(shape, dtype=dtype)
    weight = torch.ones(shape[1], dtype=dtype) if weighted else None
    calls: list[Any] = []
    for number, reduction in enumerate(("none", "mean", "sum")):
        calls.append(lambda r=reduction: nll_loss(x, target, weight, -100, r))
        calls.append(lambda r=reduction: cross_entropy(x, target, weight, -100, r))
        calls.append(lambda r=reduction: cross_entropy(x, target, weight, -100, r, 0.5))
        calls.append(
            lambda r=reduction: torch.vmap(lambda a, t: nll_loss(a, t, weight, -100, r))(x[None], target[None])
        )
        calls.append(lambda r=reduction: torch.vmap(lambda t: cross_entropy(x, t, weight, -100, r))(target[None]))
        if len(shape) in (2, 4):
            backward = nll_loss_backward if len(shape) == 2 else nll_loss2d_backward
            g = torch.ones(target.shape if not number else (), dtype=dtype)
            calls.append(lambda b=backward, n=number, g=g: b(g, x, target, weight, n, -100, ONE.to(dtype)))
    return calls


@pytest.mark.parametrize("value", [-1, 4, 2**40, -(2**63)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), (2, 4, 3), (2, 4, 2, 2)])
def test_out_of_range(value: int, dtype: torch.dtype, weighted: bool, shape: tuple[int, ...]) -> None:
    """IndexError in every reduction, rank, dtype, direction and transform."""
    target = torch.zeros(shape[:1] + shape[2:], dtype=torch.int64)
    target.view(-1)[-1] = value
    for call in everywhere(target, shape, dtype, weighted):
        with pytest.raises(IndexError, match=f"got target={value} at 1 of"):
            call()


def test_out_of_range_in_a_compiled_function() -> None:
    """Tracing sees no data; the kernel does."""
    compiled = torch.compile(lambda x, t: nll_loss(x, t) + cross_entropy(x, t), fullgraph=True, backend="aot_eager")
    assert compiled(X, T).isfinite()
    with pytest.raises(IndexError, match="got target=4"):
        compiled(X, torch.tensor([0, 1, 4]))


def test_no_classes() -> None:
    """An error unless no position asks for one."""
    empty = torch.zeros(3, 0)
    for loss in (nll_loss, cross_entropy):
        with pytest.raises(IndexError, match="need 0 <= target < 0"):
            loss(empty, T)
        for dtype in (torch.float32, torch.bfloat16):
            assert float(loss(empty.to(dtype), T * 0 - 100, None, -100, "sum")) == 0.0
            assert loss(empty.to(dtype), T * 0 - 100).isnan()
            assert loss(empty.to(dtype)[:0], T[:0], None, -100, "none").shape == (0,)


class _AskedOnDevice(DeviceTensor):
    """A tensor of a device of which the host reads nothing back."""

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # as in `DeviceTensor`
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        assert function not in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.is_nonzero.default), function
        return super().__torch_dispatch__(function, types, args, kwargs)


def test_a_gpu_asserts_targets_and_the_host_waits_for_none() -> None:
    targets = Targets("nll_loss", torch.tensor([0, 3]), None, 3, -100, 1)
    targets.require_classes(_AskedOnDevice(torch.zeros(4, dtype=torch.int32)))
    targets.require_classes(_AskedOnDevice(torch.zeros(0, dtype=torch.int32)))
    with pytest.raises(RuntimeError, match="nll_loss: got a wrong target, need 0 <= target < 3"):
        targets.require_classes(_AskedOnDevice(torch.tensor([0, 1], dtype=torch.int32)))


def test_a_kernel_that_tells_of_a_wrong_target_where_there_is_none_gets_the_error_of_targets() -> None:
    with pytest.raises(IndexError, match="got target=none at 0 of 2 positions"):
        Targets("nll_loss", torch.tensor([0, 2]), None, 3, -100, 1).require_classes(torch.ones(1, dtype=torch.int32))
