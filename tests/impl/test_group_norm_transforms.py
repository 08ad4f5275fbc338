"""Group norm under vmap in one kernel call, compiled for every size, exported, and as opcheck wants it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.func import vmap
from torch.utils._python_dispatch import TorchDispatchMode

from opassay.impl import group_norm, native_group_norm, native_group_norm_backward

from .exact_norms import EPS, halves, rows, whole_numbers
from .test_layer_norm_vmap import CountKernels, assert_equals_loop, make

BATCH, N, CHANNELS, POSITIONS, GROUPS = 3, 2, 6, 4, 3
SIZES = (N, CHANNELS, POSITIONS, GROUPS)
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def compare_with_loop(f: Callable[..., Any], in_dims: Any, args: tuple[Tensor | None, ...], op: str) -> None:
    with CountKernels() as counter:
        results = vmap(f, in_dims)(*args)
    assert counter.calls == {f"{op}.default": 1}
    for i in range(BATCH):
        one = [t if t is None or dim is None else t.select(dim, i) for t, dim in zip(args, in_dims, strict=True)]
        for got, expected in zip(results, f(*one), strict=True):
            assert_equals_loop(got[i], expected)


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mixed", [False, True], ids=["one dtype", "float32 affine"])
def test_forward_every_in_dims(dtype: torch.dtype, mixed: bool) -> None:
    affine = torch.float32 if mixed and dtype.itemsize == 2 else dtype
    dims: tuple[tuple[int | None, ...], ...] = ((None, 0, 1, -1), (None, 0, -1), (None, 0, 1))
    for in_dims in itertools.product(*dims):
        if all(dim is None for dim in in_dims):
            continue
        args = (
            make((N, CHANNELS, POSITIONS), in_dims[0], dtype, 0, rows),
            make((CHANNELS,), in_dims[1], affine, 1),
            make((CHANNELS,), in_dims[2], affine, 2),
        )
        compare_with_loop(lambda x, w, b: native_group_norm(x, w, b, *SIZES, EPS), in_dims, args, "native_group_norm")


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", [(True, True, True), (True, False, False), (False, True, False), (False, False, True)])
def test_backward_every_in_dims(dtype: torch.dtype, mask: tuple[bool, bool, bool]) -> None:
    """All 31 combinations of batched and unbatched operands; masked outputs are None as without vmap."""
    statistics = torch.float32 if dtype.itemsize == 2 else dtype

    def f(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        grads = native_group_norm_backward(dy, x, mean, rstd, w, *SIZES, mask)
        assert tuple(t is not None for t in grads) == mask
        return tuple(t for t in grads if t is not None)

    for which in itertools.product((None, 0), (None, 1), (None, 0), (None, 0), (None, -1)):
        if all(dim is None for dim in which):
            continue
        args = (
            make((N, CHANNELS, POSITIONS), which[0], dtype, 0),
            make((N, CHANNELS, POSITIONS), which[1], dtype, 1),
            make((N, GROUPS), which[2], statistics, 2),
            make((N, GROUPS), which[3], statistics, 3, halves),
            make((CHANNELS,), which[4], dtype, 4),
        )
        compare_with_loop(f, which, args, "group_norm_backward")


def test_nested_with_mixed_batches() -> None:
    """Input batched at the inner level, weight at the outer, bias at both."""
    x, w = make((N, CHANNELS), 0, torch.float32, 0, rows), make((CHANNELS,), 0, torch.float32, 1)
    b = torch.stack([w, 2 * w, 3 * w])

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return group_norm(x, GROUPS, w, b, EPS)

    with CountKernels() as counter:
        results = vmap(vmap(f, (0, None, 0)), (None, 0, 0))(x, w, b)
    assert counter.calls == {"group_norm.default": 1}
    for i, j in itertools.product(range(BATCH), repeat=2):
        assert_equals_loop(results[i, j], f(x[j], w[i], b[i, j]))


def test_shared_parameters_are_not_copied() -> None:
    """A batched input with shared parameters is one call on a view: nothing of the input's size but the output."""
    x, w = torch.randn(BATCH, N, CHANNELS, POSITIONS), torch.randn(CHANNELS)

    class CountCopies(TorchDispatchMode):
        copies = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            CountCopies.copies += func.__name__.split(".")[0] in ("clone", "copy_", "_to_copy", "contiguous")
            return func(*args, **(kwargs or {}))

    with CountCopies():  # type: ignore[no-untyped-call]
        vmap(lambda x: group_norm(x, GROUPS, w, w))(x)
    assert CountCopies.copies == 0


def test_batch_of_no_slices() -> None:
    """Shapes of a slice behind a batch of size 0, whichever way it is folded; gradients and tangents too."""
    x, w = torch.randn(0, N, CHANNELS, POSITIONS), torch.randn(0, CHANNELS)

    def f(x: Tensor, w: Tensor | None = None) -> Tensor:
        return group_norm(x, GROUPS, w)

    assert vmap(f)(x).shape == vmap(f)(x, w).shape == x.shape
    d_input, d_weight = vmap(torch.func.grad(lambda x, w: f(x, w).sum(), (0, 1)))(x, w)
    assert (d_input.shape, d_weight.shape) == (x.shape, w.shape)
    assert vmap(lambda x, w: torch.func.jvp(f, (x, w), (x, w))[1])(x, w).shape == x.shape


def test_half_contributions_of_a_batch_are_summed_in_float32() -> None:
    """The gradient of an unbatched half operand is rounded once, after the sum over the batch."""
    size = 64
    x, w = rows((N, CHANNELS, POSITIONS), 0, torch.bfloat16), whole_numbers((CHANNELS,), 1, torch.bfloat16)
    b = whole_numbers((size, CHANNELS), 2, torch.bfloat16)
    dy = 37 * whole_numbers((size, N, CHANNELS, POSITIONS), 3, torch.bfloat16)

    def f(x: Tensor, w: Tensor) -> Tensor:
        return vmap(lambda b: group_norm(x, GROUPS, w, b, EPS))(b)

    gradients = torch.func.vjp(f, x, w)[1](dy)
    wide = [t.double().requires_grad_() for t in (x, w)]
    out = torch.stack([group_norm(wide[0], GROUPS, wide[1], one.double(), EPS) for one in b])
    for gradient, exact in zip(gradients, torch.autograd.grad(out, wide, dy.double()), strict=True):
        assert not torch.equal(exact.bfloat16().double(), exact), "no rounding shows"
        assert torch.equal(gradient, exact.bfloat16())


def _operands(n: int = N, positions: int = POSITIONS) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    x, w, b = (torch.randn(s, dtype=torch.float64) for s in ((n, CHANNELS, positions), CHANNELS, CHANNELS))
    return x, w, b


def _gradients(f: Callable[..., Tensor], args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    leaves = [t.clone().requires_grad_() for t in args]
    return torch.autograd.grad(f(*leaves).cos().sum(), leaves)


def test_compiled_for_every_size() -> None:
    """One graph for every N and number of positions, backward included."""
    torch._dynamo.reset()

    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return group_norm(x, GROUPS, w, b)

    compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    for n, positions in ((2, 4), (3, 4), (5, 7)):
        args = _operands(n, positions)
        for one, other in zip(_gradients(compiled, args), _gradients(f, args), strict=True):
            assert torch.equal(one, other)
    torch._dynamo.reset()


def test_export() -> None:
    class Wrapper(torch.nn.Module):
        def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
            return group_norm(x, GROUPS, w, b)

    exported = torch.export.export(Wrapper(), _operands()).module()
    assert torch.equal(exported(*_operands()), Wrapper()(*_operands()))


def _opcheck_arguments() -> dict[str, tuple[Any, ...]]:
    x, w, b = (t.requires_grad_() for t in _operands())
    dy, dm, ds = x.detach().cos().requires_grad_(), *(torch.randn(N, GROUPS).double().requires_grad_() for _ in "ms")
    mean, rstd = (t.detach() for t in native_group_norm(x, None, None, *SIZES, 1e-2)[1:])
    masked = (dy, None, None, x, mean, rstd, w, None, GROUPS, None, [True, False, False])
    return {
        "group_norm": (x, w, b, GROUPS, 1e-2),
        "group_norm without affine": (x, None, None, GROUPS, 1e-2),
        "native_group_norm": (x, w, b, GROUPS, 1e-2),
        "group_norm_backward": (dy, dm, ds, x, mean, rstd, w, torch.float64, GROUPS, 1e-2, [True] * 3),
        "group_norm_backward masked": masked,
    }


@pytest.mark.fast_cases("group_norm")
@pytest.mark.parametrize("name", _opcheck_arguments())
def test_opcheck(name: str) -> None:
    """torch.library.opcheck: schema, autograd registration, fake tensors, AOT dispatch."""
    op = getattr(torch.ops.opassay, name.split()[0]).default
    assert set(torch.library.opcheck(op, _opcheck_arguments()[name]).values()) == {"SUCCESS"}
