"""Every transform of every layer norm function equals the same transform of a plain torch
composite, in float64.

This is also the version test of opassay.impl.operator.torch_private: the private names may exist in another
torch and mean something else, and then these checks fail. `opaque` is a NumPy kernel behind the
same mechanism: it fails on anything but plain tensors.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize, vjp, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves

from opassay.impl import layer_norm, native_layer_norm, native_layer_norm_backward
from opassay.impl.operator.batching import in_front
from opassay.impl.operator.operator import Kernels, Operator
from opassay.impl.operator.records import Grads, Record
from opassay.impl.operator.rules import Rules

Subject = Callable[[Tensor, Tensor, Tensor], Tensor]
EPS = 1e-2
ROWS, LENGTH = 3, 5

COMPOSITE_ERROR = 2.0**12
"""Error constant of the comparison, in units of u = 2^-53 and relative to the largest element of
the expected result.

Both sides evaluate the same real function with at most some hundred operations per element on
well-conditioned rows (the variance of a row of 5 standard normal numbers plus eps = 2^-7 is not
small), so both errors are a few hundred u at first order and grow by a factor of about 4 per
order. A wrong derivative is off by order 1, that is 2^40 times this bound.
"""


def assert_same(computed: Any, expected: Any) -> None:
    """Same tree, shapes and dtypes; values within the bound above."""
    left, right = tree_leaves(computed), tree_leaves(expected)
    assert len(left) == len(right)
    for one, other in zip(left, right, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        bound = COMPOSITE_ERROR * 2.0**-53 * other.abs().max().item()
        assert (one - other).abs().max().item() <= bound


def row_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    mean = x.mean(-1, keepdim=True)
    return mean, ((x - mean).square().mean(-1, keepdim=True) + EPS).rsqrt()


def composite_layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    mean, rstd = row_statistics(x)
    return (x - mean) * rstd * w + b


def composite_native(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    mean, rstd = row_statistics(x)
    return ((x - mean) * rstd * w + b) * rstd.sin() + mean.square()


def composite_backward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    mean, rstd = row_statistics(x)
    xh, dy = (x - mean) * rstd, x.cos() * b
    g = dy * w
    dx = rstd * (g - g.mean(-1, keepdim=True) - xh * (g * xh).mean(-1, keepdim=True))
    return dx * (dy * xh).sum(0) + dy.sum(0)


def our_layer_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return layer_norm(x, x.shape[-1:], w, b, EPS)


def our_native(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out, mean, rstd = native_layer_norm(x, x.shape[-1:], w, b, EPS)
    return out * rstd.sin() + mean.square()


def our_backward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    _, mean, rstd = native_layer_norm(x, x.shape[-1:], None, None, EPS)
    dx, dw, db = native_layer_norm_backward(x.cos() * b, x, x.shape[-1:], mean, rstd, w, b, [True, True, True])
    assert dx is not None
    assert dw is not None
    assert db is not None
    return dx * dw + db


def _scaled_log_sigmoid(x: Tensor, w: Tensor | None, scale: float) -> Tensor:
    values = -scale * np.logaddexp(0, -x.detach().numpy())
    return torch.from_numpy(values if w is None else values * w.detach().numpy())


def _log_sigmoid_vmap(op: Any, size: int, dims: Record, args: Record) -> Any:
    return op(in_front(args.x, dims.x, size), in_front(args.w, dims.w, size), args.scale), 0


class _Saved(NamedTuple):
    x: Tensor
    w: Tensor | None
    scale: float


def _log_sigmoid_save(args: Record, outputs: Record, needs: Record) -> _Saved:
    return _Saved(args.x, args.w, args.scale)


def _log_sigmoid_backward(saved: _Saved, needs: Record, cotangents: Record) -> Grads:
    x, w, scale = saved
    g = cotangents.out
    slope = scale * torch.sigmoid(-x)
    d_w = g * scale * torch.nn.functional.logsigmoid(x) if w is not None and needs.w else None
    return {"x": g * slope if w is None else g * slope * w, "w": d_w}


def _log_sigmoid_jvp(args: Record, tangents: Record) -> Tensor:
    x, w, scale = args
    out = torch.zeros_like(x)
    if tangents.x is not None:
        out = out + scale * torch.sigmoid(-x) * tangents.x * (1 if w is None else w)
    if tangents.w is not None:
        out = out + scale * torch.nn.functional.logsigmoid(x) * tangents.w
    return out


opaque_op = Operator(
    "scaled_log_sigmoid(Tensor x, Tensor? w, float scale) -> Tensor",
    Kernels(_scaled_log_sigmoid, _scaled_log_sigmoid, lambda args: args.x.new_empty(args.x.shape)),
    _log_sigmoid_vmap,
    Rules(_Saved, _log_sigmoid_save, _log_sigmoid_backward, _log_sigmoid_jvp),
    library=torch.library.Library("opassay_test_transforms", "DEF"),
)


def our_opaque(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out: Tensor = opaque_op(x, w.expand(x.shape), 2.0) * opaque_op(x, None, 0.5) + b
    return out


def composite_opaque(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    log_sigmoid = torch.nn.functional.logsigmoid
    return 2.0 * log_sigmoid(x) * w * 0.5 * log_sigmoid(x) + b


SUBJECTS: dict[str, tuple[Subject, Subject]] = {
    "layer_norm": (our_layer_norm, composite_layer_norm),
    "native_layer_norm": (our_native, composite_native),
    "native_layer_norm_backward": (our_backward, composite_backward),
    "opaque": (our_opaque, composite_opaque),
}


def operands(*batch: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    """x (*batch, ROWS, LENGTH), w (*batch, LENGTH), b (LENGTH), float64."""
    g = torch.Generator().manual_seed(seed)
    shapes = ((*batch, ROWS, LENGTH), (*batch, LENGTH), (LENGTH,))
    x, w, b = (torch.randn(shape, generator=g, dtype=torch.float64) for shape in shapes)
    return x, w, b


def _jvp_path(f: Callable[..., Tensor], order: int) -> Callable[..., Tensor]:
    """d f(args) in a direction that depends on args, so that the direction is differentiated too."""

    def path(*args: Tensor) -> Tensor:
        tangents = tuple((t * (0.3 + order)).cos() for t in args)
        tangent: Tensor = jvp(f, args, tangents)[1]
        return tangent

    return path


def _vjp_path(f: Callable[..., Tensor], order: int) -> Callable[..., Tensor]:
    """The three cotangents for a cotangent that depends on the output, as one tensor."""

    def path(*args: Tensor) -> Tensor:
        result: Any = vjp(f, *args)
        out, pullback = result
        cotangents: Any = pullback((out * (0.2 + order)).sin())
        dx, dw, db = cotangents
        total: Tensor = dx + dw.sum() + db
        return total

    return path


def _vmap_path(f: Callable[..., Tensor], order: int) -> Callable[..., Tensor]:
    """vmap over x and w, or over x alone at every second level."""

    def path(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        if order % 2:
            return vmap(f, (0, None, None))(x, w[0], b)
        return vmap(f, (0, 0, None), 1)(x, w, b).movedim(1, 0)

    return path


PATHS = {"jvp": _jvp_path, "vjp": _vjp_path, "vmap": _vmap_path}
WORDS = [word for n in (1, 2, 3) for word in itertools.product(PATHS, repeat=n)]


def transformed(f: Subject, word: tuple[str, ...]) -> Callable[..., Tensor]:
    """`word[0]` of `word[1]` of ... f."""
    out: Callable[..., Tensor] = f
    for order, name in enumerate(reversed(word)):
        out = PATHS[name](out, order)
    return out


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("word", WORDS, ids=" of ".join)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_word(subject: str, word: tuple[str, ...]) -> None:
    """Every word of up to three transforms."""
    ours, composite = SUBJECTS[subject]
    args = operands(*(2 + i for i in range(word.count("vmap"))))
    assert_same(transformed(ours, word)(*args), transformed(composite, word)(*args))


def _loss(f: Subject) -> Callable[..., Tensor]:
    return lambda *args: f(*args).pow(3).sum()


def _leaves(*tensors: Tensor) -> list[Tensor]:
    return [t.clone().requires_grad_() for t in tensors]


def _backward(f: Subject) -> Any:
    args = _leaves(*operands())
    f(*args).square().sum().backward()
    return [t.grad for t in args]


def _double_backward(f: Subject) -> Any:
    args = _leaves(*operands())
    first = torch.autograd.grad(_loss(f)(*args), args, create_graph=True)
    return torch.autograd.grad([t.square().sum() for t in first], args)


def _batched_cotangents(f: Subject) -> Any:
    args = _leaves(*operands())
    out = f(*args)
    cotangents = torch.stack([out.detach().cos(), out.detach().sin()])
    return torch.autograd.grad(out, args, cotangents, is_grads_batched=True)


def _dual_level(f: Subject, back: bool, which: int = 0) -> Any:
    args = _leaves(*operands()) if back else list(operands())
    with forward_ad.dual_level():
        dual = list(args)
        dual[which] = forward_ad.make_dual(args[which], args[which].detach().cos())
        primal, tangent = forward_ad.unpack_dual(f(*dual))
        assert tangent is not None
        if back:
            return torch.autograd.grad((primal * tangent).sum(), args)
        return primal, tangent


def _one_leaf(f: Subject, which: int) -> Any:
    args = list(operands())
    args[which].requires_grad_()
    return torch.autograd.grad(_loss(f)(*args), args[which])


EAGER: dict[str, Callable[[Subject], Any]] = {
    "backward": _backward,
    "double backward": _double_backward,
    "batched cotangents": _batched_cotangents,
    "dual x": lambda f: _dual_level(f, False),
    "dual w": lambda f: _dual_level(f, False, 1),
    "dual b": lambda f: _dual_level(f, False, 2),
    "dual then backward": lambda f: _dual_level(f, True),
    "only x": lambda f: _one_leaf(f, 0),
    "only w": lambda f: _one_leaf(f, 1),
    "only b": lambda f: _one_leaf(f, 2),
    "no_grad": lambda f: torch.no_grad()(f)(*_leaves(*operands())),
    "linearize": lambda f: linearize(f, *operands())[1](*operands(seed=1)),
    "jacrev": lambda f: jacrev(f, (0, 1, 2))(*operands()),
    "jacfwd": lambda f: jacfwd(f, (0, 1, 2))(*operands()),
    "jacfwd of jacfwd": lambda f: jacfwd(jacfwd(f))(*operands()),
    "jacrev of jacfwd": lambda f: jacrev(jacfwd(f))(*operands()),
    "jacfwd of jacrev": lambda f: jacfwd(jacrev(f))(*operands()),
    "jacrev of jacrev": lambda f: jacrev(jacrev(f))(*operands()),
    "hessian": lambda f: hessian(_loss(f), (0, 1, 2))(*operands()),
    "autograd.functional.hessian": lambda f: torch.autograd.functional.hessian(_loss(f), operands()),
    "per-sample gradients": lambda f: vmap(grad(_loss(f), (0, 1, 2)), (0, None, None))(
        operands(4)[0], operands()[1], operands()[2]
    ),
    "make_fx": lambda f: make_fx(f, tracing_mode="fake")(*operands())(*operands()),
}


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("check", EAGER)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_eager(subject: str, check: str) -> None:
    """torch.autograd, forward_ad and the composed transforms of torch.func."""
    ours, composite = SUBJECTS[subject]
    assert_same(EAGER[check](ours), EAGER[check](composite))


COMPILED_WORDS = [("jvp",), ("vjp",), ("vmap",), ("jvp", "vjp"), ("vmap", "vjp"), ("jvp", "jvp")]


@pytest.fixture
def _fresh_dynamo() -> Any:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("word", COMPILED_WORDS, ids=" of ".join)
@pytest.mark.parametrize("subject", ["layer_norm", "native_layer_norm_backward"])
def test_compiled_word(subject: str, word: tuple[str, ...]) -> None:
    """torch.compile of a transform, in one graph."""
    ours, composite = SUBJECTS[subject]
    args = operands(*(2 for _ in range(word.count("vmap"))))
    compiled = torch.compile(transformed(ours, word), fullgraph=True, backend="aot_eager")
    assert_same(compiled(*args), transformed(composite, word)(*args))


@pytest.mark.slow
@pytest.mark.usefixtures("_fresh_dynamo")
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_compiled_backward(backend: str) -> None:
    """Backward through one compiled graph."""
    ours, composite = SUBJECTS["native_layer_norm"]
    compiled = torch.compile(ours, fullgraph=True, backend=backend)
    assert_same(_backward(compiled), _backward(composite))


@pytest.mark.usefixtures("_fresh_dynamo")
def test_compiled_dynamic_backward() -> None:
    """One graph for every number of rows."""
    ours, composite = SUBJECTS["layer_norm"]
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=True)
    x, w, b = operands(4)
    for rows in (3, 4, 7):
        some = x.reshape(-1, LENGTH)[:rows], w[0], b
        computed, expected = (_leaves(*some) for _ in range(2))
        compiled(*computed).square().sum().backward()
        composite(*expected).square().sum().backward()
        assert_same([t.grad for t in computed], [t.grad for t in expected])


@pytest.mark.parametrize("subject", SUBJECTS)
def test_export(subject: str) -> None:
    """torch.export gives a module with the same values."""
    ours, composite = SUBJECTS[subject]

    class Wrapper(torch.nn.Module):
        def forward(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
            return ours(x, w, b)

    exported = torch.export.export(Wrapper(), operands()).module()
    assert_same(exported(*operands()), composite(*operands()))


def _opcheck_arguments() -> dict[str, tuple[Any, ...]]:
    x, w, b = _leaves(*operands())
    dy = operands(seed=1)[0].requires_grad_()
    mean, rstd = (t.detach() for t in row_statistics(x))
    dm, ds = (t.clone().requires_grad_() for t in (mean, rstd))
    head = (dy, dm, ds, x, mean, rstd)
    return {
        "layer_norm": (x, w, b, 1, EPS),
        "layer_norm without affine": (x, None, None, 2, EPS),
        "native_layer_norm": (x, w, b, 1, EPS),
        "layer_norm_backward": (*head, w, torch.float64, 1, EPS, 0, [True, True, True]),
        "layer_norm_backward of a batch": (*head, w, torch.float64, 1, EPS, 1, [True, True, True]),
        "layer_norm_backward masked": (
            dy, None, None, x, mean, rstd, w, None, 1, None, 0, [True, False, False]
        ),
    }  # fmt: skip


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("name", _opcheck_arguments())
def test_opcheck(name: str) -> None:
    """torch.library.opcheck: schema, autograd registration, fake tensors, AOT dispatch."""
    op = getattr(torch.ops.opassay, name.split()[0]).default
    results = torch.library.opcheck(op, _opcheck_arguments()[name])
    assert set(results.values()) == {"SUCCESS"}
