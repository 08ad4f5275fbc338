"""Values of layer norm that need a look of their own: half precision, infinities, empty, strides, determinism."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode

from opassay.impl import layer_norm, native_layer_norm, native_layer_norm_backward

HALF = [torch.bfloat16, torch.float16]
ACCUMULATION = 2.0**8
"""Error of float32 sums and formulas before the rounding to half, in units of 2^-24 of the largest element: a few
roundings per element and, for sums of 70 terms in any order, at most 70 more."""


def composite(x: Tensor, w: Tensor, b: Tensor, eps: float = 1e-5) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    rstd = ((x - mean).square().mean(-1, keepdim=True) + eps).rsqrt()
    return (x - mean) * rstd * w + b


def assert_rounded_once(computed: Tensor, exact: Tensor) -> None:
    """|computed - exact| is one rounding of the computed dtype plus the float32 error of what was rounded."""
    info = torch.finfo(computed.dtype)
    rounding = exact.abs() * (info.eps / 2) + info.smallest_normal * info.eps / 2
    bound = rounding + ACCUMULATION * 2.0**-24 * exact.abs().max()
    assert ((computed.double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("dtype", HALF, ids=str)
@pytest.mark.parametrize("affine", ["own dtype", "float32"])
def test_half_is_rounded_once(dtype: torch.dtype, affine: str) -> None:
    """Output, gradients, second-order gradients and tangent: no sum of already rounded numbers anywhere."""
    torch.manual_seed(0)
    rows, length = 70, 48
    kind = dtype if affine == "own dtype" else torch.float32
    x, dy = (torch.randn(rows, length).to(dtype).requires_grad_() for _ in range(2))
    w, b = (torch.randn(length).to(kind).requires_grad_() for _ in range(2))
    out = layer_norm(x, (length,), w, b)
    grads = torch.autograd.grad(out, (x, w, b), dy, create_graph=True)
    cotangents = [t.detach().cos() for t in grads]
    second = torch.autograd.grad(grads, (x, w, dy), cotangents)
    tangents = tuple(t.detach().cos() for t in (x, w, b))
    detached = tuple(t.detach() for t in (x, w, b))
    tangent = torch.func.jvp(lambda *a: layer_norm(a[0], (length,), *a[1:]), detached, tangents)[1]

    exact_x, exact_w, exact_b, exact_dy = (t.detach().double().requires_grad_() for t in (x, w, b, dy))
    leaves = (exact_x, exact_w, exact_b)
    exact_out = composite(*leaves)
    exact_grads = torch.autograd.grad(exact_out, leaves, exact_dy, create_graph=True)
    exact_second = torch.autograd.grad(exact_grads, (exact_x, exact_w, exact_dy), [t.double() for t in cotangents])
    _, exact_tangent = torch.func.jvp(  # type: ignore[misc]
        composite,
        tuple(t.detach() for t in leaves),
        tuple(t.double() for t in tangents),
    )
    computed = (out, *grads, *second, tangent)
    exact = (exact_out, *exact_grads, *exact_second, exact_tangent)
    for one, other in zip(computed, exact, strict=True):
        assert_rounded_once(one.detach(), other.detach())


@pytest.mark.parametrize("lead", [(700,), (70, 10), (7, 10, 10)], ids=str)
@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_gradient_of_many_rows_is_that_of_each_row(dtype: torch.dtype, lead: tuple[int, ...]) -> None:
    """The rows are more than the kernel takes to float32 at a time, and lie along several dims."""
    torch.manual_seed(0)
    length = 512
    x, dy = (torch.randn(*lead, length).to(dtype) for _ in range(2))
    (together,) = torch.autograd.grad(layer_norm(x.requires_grad_(), (length,)), x, dy)
    rows = x.detach().view(-1, length)
    for index in (0, 350, 511, 512, 699):
        row = rows[index].clone().requires_grad_()
        (alone,) = torch.autograd.grad(layer_norm(row, (length,)), row, dy.view(-1, length)[index])
        assert torch.equal(together.view(-1, length)[index], alone)
    assert together.shape == x.shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF], ids=str)
def test_mean_of_an_infinite_row(dtype: torch.dtype) -> None:
    """The mean is what mathematics says; the rest of the row, and no other row, is NaN."""
    inf, nan = math.inf, math.nan
    rows = torch.tensor([[1, inf, 2], [-inf, 1, 2], [inf, -inf, 0], [nan, 1, 2], [1, 2, 6]])
    out, mean, rstd = native_layer_norm(rows.to(dtype), (3,), None, None, 1e-5)
    expected = torch.tensor([inf, -inf, nan, nan, 3.0], dtype=mean.dtype)
    assert torch.equal(mean[:, 0].nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0))
    assert out[:4].isnan().all()
    assert rstd[:4].isnan().all()
    assert out[4].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_no_rows(dtype: torch.dtype) -> None:
    x = torch.ones(0, 3, dtype=dtype, requires_grad=True)
    w, b = (torch.ones(3, dtype=dtype, requires_grad=True) for _ in range(2))
    dx, dw, db = torch.autograd.grad(layer_norm(x, (3,), w, b).sum(), (x, w, b))
    assert dx.shape == (0, 3)
    assert torch.equal(dw, torch.zeros(3, dtype=dtype))
    assert torch.equal(db, torch.zeros(3, dtype=dtype))


def test_rows_of_length_zero() -> None:
    x = torch.ones(2, 0, requires_grad=True)
    out, mean, rstd = native_layer_norm(x, (0,), None, None, 1e-5)
    assert out.shape == (2, 0)
    assert mean.isnan().all()
    assert rstd.isnan().all()
    assert torch.autograd.grad(out.sum(), x)[0].shape == (2, 0)


def _views() -> dict[str, Tensor]:
    base = torch.arange(6 * 5 * 8, dtype=torch.float64).reshape(6, 5, 8).sin()
    return {
        "transposed": base.transpose(0, 1),
        "stepped": base[::2, :, ::2],
        "expanded": base[:1, :1].expand(6, 5, 8),
        "offset": base[1:, 1:, 1:],
        "row transposed": base.transpose(1, 2),
    }


@pytest.mark.parametrize("view", _views())
def test_strides(view: str) -> None:
    """Any strides in, for every operand; the same bits as from contiguous copies, contiguous out; inputs unchanged."""
    x = _views()[view]
    dy = x.cos().transpose(0, 1).contiguous().transpose(0, 1)
    w = torch.arange(2.0 * x.shape[-1], dtype=torch.float64)[::2]
    _, mean, rstd = native_layer_norm(x, x.shape[-1:], None, None, 1e-5)
    mean, rstd = (torch.stack([t, t], -1)[..., 0] for t in (mean, rstd))
    operands = (dy, x, mean, rstd, w)
    before = [t.clone() for t in operands]

    def run(dy: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, w: Tensor) -> Any:
        shape = tuple(x.shape[-1:])
        grads = native_layer_norm_backward(dy, x, shape, mean, rstd, w, w, [True] * 3)
        return (*native_layer_norm(x, shape, w, w, 1e-5), *grads)

    strided, dense = run(*operands), run(*(t.contiguous() for t in operands))
    for one, other in zip(strided, dense, strict=True):
        assert one.is_contiguous()
        assert torch.equal(one, other)
    assert all(torch.equal(t, old) for t, old in zip(operands, before, strict=True))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, *HALF], ids=str)
@pytest.mark.parametrize("length", [1, 3])
def test_gradients_of_a_transposed_input_have_the_strides_of_the_shape_rule(dtype: torch.dtype, length: int) -> None:
    x, g = (torch.randn(length, 4, 3).to(dtype).transpose(0, 2) for _ in range(2))
    w, b = torch.randn(2, length).to(dtype)
    _, mean, rstd = native_layer_norm(x, (length,), w, b, 1e-5)
    operands: list[Any] = [g, x, (length,), mean, rstd, w, b, [True, True, True]]
    with FakeTensorMode() as mode:
        fake: list[Any] = [mode.from_tensor(t) if isinstance(t, Tensor) else t for t in operands]
        need: Any = native_layer_norm_backward(*fake)
    got: Any = native_layer_norm_backward(*operands)
    assert [t.stride() for t in got] == [t.stride() for t in need]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_bits_do_not_depend_on_threads(dtype: torch.dtype) -> None:
    """Under use_deterministic_algorithms: parameter gradients for 1 thread and for more."""
    torch.manual_seed(0)
    x, dy = (torch.randn(700, 513).to(dtype) for _ in range(2))
    w = torch.randn(513).to(dtype)
    _, mean, rstd = native_layer_norm(x, (513,), None, None, 1e-5)
    threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    results = []
    try:
        for count in (1, 2, 3, 4, 1):
            torch.set_num_threads(count)
            results.append(native_layer_norm_backward(dy, x, (513,), mean, rstd, w, w, [True] * 3))
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            assert one is not None
            assert two is not None
            assert torch.equal(one, two)


def test_no_gradient_to_the_given_statistics() -> None:
    """mean and rstd count as functions of the input, so the arguments themselves get none."""
    x, w = torch.randn(3, 5, requires_grad=True), torch.randn(5)
    mean, rstd = (torch.rand(3, 1, requires_grad=True) for _ in range(2))
    dx = native_layer_norm_backward(x, x, (5,), mean, rstd, w, w, [True, False, False])[0]
    assert dx is not None
    got: tuple[Tensor | None, ...] = torch.autograd.grad(dx.sum(), (x, mean, rstd), allow_unused=True)
    assert got[0] is not None
    assert got[1:] == (None, None)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("autocast", HALF, ids=str)
def test_autocast_dtype_is_torchs(dtype: torch.dtype, autocast: torch.dtype) -> None:
    x = torch.randn(2, 4, dtype=dtype)
    with torch.autocast("cpu", dtype=autocast):
        assert layer_norm(x, (4,)).dtype is torch.nn.functional.layer_norm(x, (4,)).dtype


def test_fake_cuda_tensors() -> None:
    """Shapes, dtypes and devices without a GPU; under autocast float32, as torch."""
    with FakeTensorMode():
        x = torch.empty(4, 2, 8, device="cuda", dtype=torch.bfloat16).transpose(0, 1)
        out, mean, rstd = native_layer_norm(x, (8,), None, None, 1e-5)
        assert (out.shape, out.dtype, out.device.type) == (x.shape, x.dtype, "cuda")
        assert out.is_contiguous()
        assert mean.shape == rstd.shape == (2, 4, 1)
        assert mean.dtype is rstd.dtype is torch.float32
        torch.set_autocast_enabled("cuda", True)  # torch.autocast refuses without a GPU
        try:
            assert layer_norm(x, (8,)).dtype is torch.float32
        finally:
            torch.set_autocast_enabled("cuda", False)


def test_import_brings_only_what_it_needs() -> None:
    """The ops need torch and NumPy; the verification tools stay out."""
    probe = (
        "import sys, torch; before = set(sys.modules); import opassay.impl;"
        "new = set(sys.modules) - before;"
        "print(sorted(new & {'mpmath', 'sympy', 'pytest', 'hypothesis', 'opassay.reference.array',"
        " 'opassay.oracles', 'opassay.properties'}))"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
