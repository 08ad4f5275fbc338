"""Softmax, log-softmax and their backward ops: what the cells do not ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, jvp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

from opassay.impl import log_softmax, log_softmax_backward_data, softmax, softmax_backward_data

X = torch.arange(6.0).reshape(2, 3)
FORWARD = {"softmax": softmax, "log_softmax": log_softmax}
BACKWARD = {"softmax_backward_data": softmax_backward_data, "log_softmax_backward_data": log_softmax_backward_data}


class CountKernels(TorchDispatchMode):
    """Counts the calls of this package's ops that reach the kernels."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace == "opassay":
            self.calls[func.__name__] += 1
        return func(*args, **(kwargs or {}))


FORWARD_MISTAKES: dict[str, tuple[type[Exception], str, tuple[Any, ...]]] = {
    "input not a tensor": (TypeError, "got input=[1.0], need a Tensor.", ([1.0], 0)),
    "dim too large": (IndexError, "got dim=2, need -2 to 1.", (X, 2)),
    "dim too small": (IndexError, "got dim=-3, need -2 to 1.", (X, -3)),
    "dim of no dims": (IndexError, "got dim=1, need -1 to 0.", (X[0, 0], 1)),
    "dim a float": (TypeError, "got dim=0.5, need an int.", (X, 0.5)),
    "dim None": (TypeError, "got dim=None, need an int.", (X, None)),
    "integer input": (NotImplementedError, "got input of dtype=torch.int64, need float64", (X.long(), 0)),
    "integer result": (NotImplementedError, "got dtype=torch.int32, need float64", (X, 0, torch.int32)),
    "dtype a string": (TypeError, "got dtype='float32', need a torch.dtype.", (X, 0, "float32")),
}


@pytest.mark.parametrize("mistake", FORWARD_MISTAKES)
@pytest.mark.parametrize("name", FORWARD)
def test_forward_mistake(name: str, mistake: str) -> None:
    kind, text, args = FORWARD_MISTAKES[mistake]
    with pytest.raises(kind) as error:
        FORWARD[name](*args)
    assert str(error.value).startswith(f"{name}: {text}")
    assert type(error.value) is kind


BACKWARD_MISTAKES: dict[str, tuple[type[Exception], str, tuple[Any, ...]]] = {
    "grad_output not a tensor": (TypeError, "got grad_output=None, need a Tensor.", (None, X, 0, torch.float32)),
    "output shape": (RuntimeError, "got grad_output of shape=[2, 3], need the output's shape", (X, X[0], 0, X.dtype)),
    "output dtype": (RuntimeError, "got grad_output of dtype=torch.float32", (X, X.half(), 0, X.dtype)),
    "device": (RuntimeError, "got grad_output on device=cpu and output on device=meta", (X, X.to("meta"), 0, X.dtype)),
    "dim": (IndexError, "got dim=5, need -2 to 1.", (X, X, 5, torch.float32)),
    "input_dtype": (NotImplementedError, "got input_dtype=torch.int8, need float64", (X, X, 0, torch.int8)),
    "input_dtype None": (TypeError, "got input_dtype=None, need a torch.dtype.", (X, X, 0, None)),
}


@pytest.mark.parametrize("mistake", BACKWARD_MISTAKES)
@pytest.mark.parametrize("name", BACKWARD)
def test_backward_mistake(name: str, mistake: str) -> None:
    kind, text, args = BACKWARD_MISTAKES[mistake]
    with pytest.raises(kind) as error:
        BACKWARD[name](*args)
    assert str(error.value).startswith(f"{name}: {text}")
    assert type(error.value) is kind


@pytest.mark.parametrize("name", FORWARD)
def test_integers_are_taken_where_dtype_says_what_they_become(name: str) -> None:
    op = FORWARD[name]
    assert torch.equal(op(X.long(), 1, torch.float32), op(X, 1))


@pytest.mark.parametrize("name", FORWARD)
def test_a_narrower_dtype_rounds_the_result_and_not_the_input(name: str) -> None:
    """65520 is beyond float16, whose neighbouring numbers are 32 apart there: only differences count."""
    x = torch.tensor([65_520.0, 65_519.0, 65_518.5])
    narrow = FORWARD[name](x, 0, torch.float16)
    assert narrow.dtype == torch.float16
    assert torch.equal(narrow, FORWARD[name](x, 0).half())
    assert bool(narrow.isfinite().all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", FORWARD)
def test_vmap_is_one_kernel_call(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(4, 3, 5, dtype=dtype)
    op = FORWARD[name]
    for in_dim, dim in ((0, 0), (1, -1), (-1, 0)):
        with CountKernels() as counter:
            batched = vmap(lambda t, dim=dim: op(t, dim), in_dim)(x)
        assert counter.calls == {f"{name}.default": 1}
        assert batched.dtype == dtype
        assert batched.is_contiguous()
    scalars = vmap(lambda t: op(t, -1))(x[:, 0, 0])
    assert torch.equal(scalars, torch.full((4,), 1.0 if name == "softmax" else 0.0, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", BACKWARD)
def test_backward_vmap_is_one_kernel_call(name: str, dtype: torch.dtype) -> None:
    g, y = torch.randn(4, 3, 5, dtype=dtype), torch.rand(3, 5, dtype=dtype)
    with CountKernels() as counter:
        batched = vmap(lambda g, y: BACKWARD[name](g, y, 1, dtype), (0, None))(g, y)
    assert counter.calls == {f"{name.removesuffix('_data')}.default": 1}
    assert batched.dtype == dtype
    assert torch.equal(batched[2], BACKWARD[name](g[2], y, 1, dtype))


def _saved_bytes(call: Callable[[], Tensor]) -> int:
    sizes: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        sizes[t.untyped_storage().data_ptr()] = t.untyped_storage().nbytes()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        out = call()
    del out
    return sum(sizes.values())


@pytest.mark.parametrize("name", FORWARD)
def test_only_the_output_is_kept_for_backward(name: str) -> None:
    """In its own dtype, and for a half one four bytes more, whatever the size."""
    x = torch.randn(64, 32, requires_grad=True)
    half = x.detach().bfloat16().requires_grad_()
    assert _saved_bytes(lambda: FORWARD[name](x, 1)) == 4 * 64 * 32
    assert _saved_bytes(lambda: FORWARD[name](half, 1)) == 2 * 64 * 32 + 4
    assert _saved_bytes(lambda: FORWARD[name](half, 1, torch.float32)) == 4 * 64 * 32


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_tangents_are_the_same_under_a_dispatch_mode(name: str, dtype: torch.dtype) -> None:
    """Under a mode no output is known as a view, and the shift of a half type is in the memory of one element."""
    x = torch.tensor([[1.0, 2.0, 4.0], [0.5, 0.0, -1.0]], dtype=dtype)
    plain = jvp(lambda t: FORWARD[name](t, 1), (x,), (x,))[1]
    with CountKernels():
        assert torch.equal(jvp(lambda t: FORWARD[name](t, 1), (x,), (x,))[1], plain)
        with forward_ad.dual_level():
            moved = forward_ad.unpack_dual(FORWARD[name](forward_ad.make_dual(x, x.clone()), 1)).tangent
    assert moved is not None
    assert torch.equal(moved, plain)


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_second_order_in_half_types_is_the_same_eagerly_and_under_transforms(name: str, dtype: torch.dtype) -> None:
    """The eager path keeps its shift in the memory of one element, the transforms keep all of it."""
    g = torch.Generator().manual_seed(0)
    x, v, w = (torch.randn(4, 6, generator=g).to(dtype) for _ in range(3))

    def loss(t: Tensor) -> Tensor:
        return (FORWARD[name](t, 1).float() * v.float()).sum()

    leaf = x.clone().requires_grad_()
    (first,) = torch.autograd.grad(loss(leaf), leaf, create_graph=True)
    (eager,) = torch.autograd.grad((first.float() * w.float()).sum(), leaf)
    reverse = grad(lambda t: (grad(loss)(t).float() * w.float()).sum())(x)
    forward = jvp(grad(loss), (x,), (w,))[1]
    assert torch.equal(eager, reverse)
    step = torch.finfo(dtype).eps * forward.float().abs().max()  # symmetric, evaluated in another order
    assert (forward.float() - eager.float()).abs().max() <= step


@pytest.mark.parametrize("name", FORWARD)
def test_strides_of_the_input_leave_no_trace(name: str) -> None:
    """Bits and contiguity of the output for transposed, stepped and expanded inputs."""
    base = torch.randn(6, 8)
    for view in (base.T, base[:, ::2], base[:1].expand(4, 8), base.as_strided((3, 5), (2, 3))):
        for dim in (0, 1):
            out = FORWARD[name](view, dim)
            assert out.is_contiguous()
            assert torch.equal(out, FORWARD[name](view.contiguous(), dim))


@pytest.mark.parametrize("dim", [0, 1])
def test_large_half_inputs_are_worked_on_in_parts(dim: int) -> None:
    """More elements than are taken to float32 at a time, in numbers that split unevenly."""
    x = torch.randn(517, 531, generator=torch.Generator().manual_seed(0)).bfloat16()
    for op in FORWARD.values():
        assert torch.equal(op(x, dim)[:, :7] if dim == 0 else op(x, dim)[:7], _part(op, x, dim))


def _part(op: Callable[..., Tensor], x: Tensor, dim: int) -> Tensor:
    """Seven rows along `dim`, in float32, rounded once."""
    return op((x[:, :7] if dim == 0 else x[:7]).float(), dim).bfloat16()
