"""Batch norm under vmap in one kernel call, its writes under every transform, compiled, and as opcheck wants it."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jvp, vmap

from opassay.impl import batch_norm, native_batch_norm, native_batch_norm_backward

from .exact_norms import EPS, rows, whole_numbers
from .test_layer_norm_vmap import CountKernels, assert_equals_loop, make

BATCH, N, CHANNELS, POSITIONS = 3, 2, 4, 4
SHAPE = (N, CHANNELS, POSITIONS)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def channels(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """An input whose channels are `rows`: the order of sums shows in no bit, whatever the order in memory."""
    n, number, *positions = shape
    return rows((number, n * math.prod(positions)), seed, dtype).reshape(number, n, *positions).transpose(0, 1)


def compare_with_loop(f: Any, in_dims: Any, args: Any, kernels: dict[str, int]) -> None:
    with CountKernels() as counter:
        batched = vmap(f, in_dims)(*args)
    assert counter.calls == {f"{name}.default": count for name, count in kernels.items()}
    for i in range(BATCH):
        one = [t if dim is None else t.select(dim, i) for t, dim in zip(args, in_dims, strict=True)]
        for got, expected in zip(batched, f(*one), strict=True):
            assert_equals_loop(got[i], expected)


def _parameters(dims: Any, dtype: torch.dtype) -> list[Tensor]:
    return [make((CHANNELS,), dim, dtype, seed + 1) for seed, dim in enumerate(dims)]


@pytest.mark.one_fast_in(8)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_forward_every_in_dims(dtype: torch.dtype, training: bool) -> None:
    """One kernel call, and one update, for every batch that can be written."""

    def f(x: Tensor, w: Tensor, b: Tensor, m: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        m, v = m.clone(), v.abs() + 0.5
        return *(t for t in native_batch_norm(x, w, b, m, v, training, 0.1, EPS) if t.numel()), m, v

    kernels = {"batch_norm_training": 1, "update_running_statistics": 1} if training else {"batch_norm_evaluation": 1}
    for dims in itertools.product((None, 0, 1, -1), (None, 0), (None, 1), (None, 0), (None, 1)):
        if all(dim is None for dim in dims) or (training and dims[0] is not None and None in dims[3:]):
            continue
        compare_with_loop(f, dims, [make(SHAPE, dims[0], dtype, 0, channels), *_parameters(dims[1:], dtype)], kernels)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 4), (2, 3, 4, 4), (1, 3, 8)])
def test_forward_mode_in_any_memory_order(training: bool, shape: tuple[int, ...]) -> None:
    """A tangent lies as its input does, which need not be as the output does."""
    x, t = channels(shape, 0).contiguous(), whole_numbers(shape, 1)

    def f(x: Tensor) -> Tensor:
        mean, var = x.new_zeros(3), x.new_ones(3)
        return native_batch_norm(x, None, None, mean, var, training, 0.1, EPS)[0]

    laid = [y.transpose(0, 1).contiguous().transpose(0, 1) for y in (x, t)]
    for got, expected in zip(jvp(f, (laid[0],), (laid[1],)), jvp(f, (x,), (t,)), strict=True):
        assert_equals_loop(got, expected)
    with forward_ad.dual_level():
        moved = forward_ad.unpack_dual(f(forward_ad.make_dual(*laid))).tangent
        assert moved is not None
        assert_equals_loop(moved, expected)


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_backward_every_in_dims(dtype: torch.dtype, training: bool) -> None:
    statistics_dtype = torch.float32 if dtype.itemsize == 2 else dtype

    def f(dy: Tensor, x: Tensor, w: Tensor, m: Tensor, r: Tensor) -> tuple[Tensor, ...]:
        r = r.abs() + 0.5
        grads = native_batch_norm_backward(dy, x, w, m, r, m, r, training, 1e-3, [True, True, True])
        return tuple(t for t in grads if t is not None)

    name = "batch_norm_backward" if training else "batch_norm_evaluation_backward"
    for dims in itertools.product((None, 0), (None, 1), (None, -1), (None, 0), (None, 0)):
        if all(dim is None for dim in dims):
            continue
        inputs = [make(SHAPE, dim, dtype, seed) for seed, dim in zip((7, 8), dims[:2], strict=True)]
        args = [*inputs, *_parameters(dims[2:3], dtype), *_parameters(dims[3:], statistics_dtype)]
        compare_with_loop(f, dims, args, {name: 1})


def test_statistics_with_batches_of_different_levels() -> None:
    """Input batched outside, running_mean at both levels, in either order; running_var outside alone is refused."""
    x, rows = make(SHAPE, 0, torch.float64, 0), torch.zeros(BATCH, BATCH, CHANNELS, dtype=torch.float64)

    def f(x: Tensor, m: Tensor, v: Tensor) -> Tensor:
        return batch_norm(x, m, v, training=True)

    for order in ((0, None), (None, 0)):
        mean, var = rows.clone(), rows.clone() + 1
        vmap(vmap(f, (order[1], 0, 0)), (order[0], 0, 0))(x, mean, var)
        for i, j in itertools.product(range(BATCH), repeat=2):
            expected = rows[0, 0].clone(), rows[0, 0].clone() + 1
            f(x[i if order[0] == 0 else j], *expected)
            assert_equals_loop(mean[i, j], expected[0])
            assert_equals_loop(var[i, j], expected[1])
    with pytest.raises(RuntimeError, match="running_mean or running_var"):
        vmap(vmap(f, (0, 0, None)), (None, 0, 0))(x, rows.clone(), rows[0].clone())


TRANSFORMS: dict[str, Any] = {
    "grad": lambda f, x: grad(f)(x),
    "jvp": lambda f, x: jvp(f, (x,), (x.cos(),)),
    "hessian": lambda f, x: hessian(f)(x),
    "jacfwd of jacfwd": lambda f, x: jacfwd(jacfwd(f))(x),
    "compiled": lambda f, x: torch.compile(f, fullgraph=True, backend="aot_eager")(x),
    "compiled grad": lambda f, x: torch.compile(grad(f), fullgraph=True, backend="aot_eager")(x),
    "inference": lambda f, x: torch.inference_mode()(f)(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_captured_running_statistics_are_updated_once(name: str) -> None:
    """A transformed call writes what the call writes."""
    torch._dynamo.reset()
    x = make((N, CHANNELS), None, torch.float64, 0)
    pairs = [[torch.zeros(CHANNELS, dtype=torch.float64), torch.ones(CHANNELS, dtype=torch.float64)] for _ in range(2)]
    batch_norm(x, pairs[0][0], pairs[0][1], training=True)
    TRANSFORMS[name](lambda x: batch_norm(x, pairs[1][0], pairs[1][1], training=True).pow(3).sum(), x)
    assert torch.equal(pairs[0][0], pairs[1][0])
    assert torch.equal(pairs[0][1], pairs[1][1])


@pytest.mark.fast_cases("False")
@pytest.mark.parametrize("training", [True, False])
def test_compiled_for_every_size(training: bool) -> None:
    torch._dynamo.reset()
    w, m = (make((CHANNELS,), None, torch.float64, i) for i in (1, 2))
    f = torch.compile(
        lambda x, m, v: batch_norm(x, m, v, w, None, training), fullgraph=True, backend="aot_eager", dynamic=True
    )
    for n in (2, 3, 5):
        x, y = (make((n, CHANNELS, 2), None, torch.float64, n).requires_grad_() for _ in range(2))
        (ours, theirs) = ((m.clone(), m.square() + 1) for _ in range(2))
        f(x, *ours).square().sum().backward()
        batch_norm(y, *theirs, w, None, training).square().sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        for got, expected in zip((*ours, x.grad), (*theirs, y.grad), strict=True):
            assert_equals_loop(got, expected)


def _opcheck_arguments() -> dict[str, tuple[Any, ...]]:
    x, dy = (make(SHAPE, None, torch.float64, i).requires_grad_() for i in (0, 1))
    w, b, dm = (make((CHANNELS,), None, torch.float64, i).requires_grad_() for i in (2, 3, 4))
    m, v = make((CHANNELS,), None, torch.float64, 5), make((CHANNELS,), None, torch.float64, 6).square() + 0.5
    kind = torch.float64
    return {
        "batch_norm_training": (x, w, b, 1e-3),
        "batch_norm_training without affine": (x, None, None, 1e-3),
        "batch_norm_training channels_last": (
            make((2, 4, 3, 5), None, kind, 0).contiguous(memory_format=torch.channels_last), w, b, 1e-3
        ),
        "batch_norm_backward": (dy, dm, dm, x, m, v, w, kind, kind, 1e-3, [True, True, True]),
        "batch_norm_backward masked": (dy, None, None, x, m, v, None, kind, kind, None, [True, False, False]),
        "batch_norm_evaluation": (x, w, b, m, v, 1e-3),
        "batch_norm_evaluation_backward": (dy, x, m, v, w, kind, kind, 1e-3, [True, True, True]),
        "update_running_statistics": (m.clone(), v.clone(), m + 1, v + 1, 0.1),
        "count_batch": (torch.tensor(3),),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", _opcheck_arguments())
def test_opcheck(name: str) -> None:
    """torch.library.opcheck: schema, autograd registration, fake tensors, AOT dispatch."""
    op = getattr(torch.ops.opassay, name.split()[0]).default
    assert set(torch.library.opcheck(op, _opcheck_arguments()[name]).values()) == {"SUCCESS"}
