"""Every derivative rule against central differences of the exact reading at 400 bits."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpmath import libmp

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.reference import activations, array, derivative, losses, softmax
from opassay.reference.algorithms import Algorithm
from opassay.reference.exact import Exact, exact, precision
from opassay.reference.norms import layer_norm as norms

BITS = 400
STEP = 2.0**-130  # central differences are then right to about 2^-250 of the scale, 75 digits
AGREE = -200  # bits


def _positive(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(0.5, 2.0, shape)


def _any(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.standard_normal(shape)


WAYS = (Algorithm(lambda a, b: np.exp(a) * b, ""), Algorithm(lambda a, b: b / np.exp(-a), "by a quotient"))


def _below_one(rng: Any, shape: tuple[int, ...]) -> Any:
    return rng.uniform(-0.9, 0.9, shape)


#: name -> (formula, shapes of its operands, how to draw them)
FORMULAS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], Any]] = {
    "rows in turn": (lambda a: np.stack([np.sin(a[i]) for i in (3, 0, 2)]), ((4, 3),), _any),
    "rows that overlap": (lambda a: np.stack([np.sin(a[i : i + 2]) for i in range(3)]), ((4, 3),), _any),
    "add": (lambda a, b: a + b, ((2, 3), (3,)), _any),
    "subtract": (lambda a, b: a - b, ((3,), (2, 3)), _any),
    "multiply": (lambda a, b: a * b, ((2, 1), (2, 3)), _any),
    "divide": (lambda a, b: a / b, ((2, 3), (3,)), _positive),
    "divide constant": (lambda a: 2.0 / a + a / 3.0, ((3,),), _positive),
    "negative": (lambda a: -a, ((3,),), _any),
    "absolute": (lambda a: np.absolute(a), ((5,),), _any),
    "square": (lambda a: np.square(a), ((3,),), _any),
    "sqrt": (lambda a: np.sqrt(a), ((3,),), _positive),
    "exp": (lambda a: np.exp(a), ((3,),), _any),
    "expm1": (lambda a: np.expm1(a), ((3,),), _any),
    "log": (lambda a: np.log(a), ((3,),), _positive),
    "log1p": (lambda a: np.log1p(a), ((3,),), _positive),
    "tanh": (lambda a: np.tanh(a), ((3,),), _any),
    "sigmoid": (lambda a: array.sigmoid(a), ((3,),), _any),
    "sin": (lambda a: np.sin(a), ((3,),), _any),
    "cos": (lambda a: np.cos(a), ((3,),), _any),
    "tan": (lambda a: np.tan(a), ((3,),), _any),
    "arcsin": (lambda a: np.arcsin(a), ((3,),), _below_one),
    "arccos": (lambda a: np.arccos(a), ((3,),), _below_one),
    "arctan": (lambda a: np.arctan(a), ((3,),), _any),
    "sinh": (lambda a: np.sinh(a), ((3,),), _any),
    "cosh": (lambda a: np.cosh(a), ((3,),), _any),
    "arcsinh": (lambda a: np.arcsinh(a), ((3,),), _any),
    "arccosh": (lambda a: np.arccosh(1.0 + a), ((3,),), _positive),
    "arctanh": (lambda a: np.arctanh(a), ((3,),), _below_one),
    "exp2": (lambda a: np.exp2(a), ((3,),), _any),
    "log2": (lambda a: np.log2(a), ((3,),), _positive),
    "log10": (lambda a: np.log10(a), ((3,),), _positive),
    "cbrt": (lambda a: np.cbrt(a), ((5,),), _any),
    "erf": (lambda a: array.erf(a), ((3,),), _any),
    "erfc": (lambda a: array.erfc(a), ((3,),), _any),
    "gammaln": (lambda a: array.gammaln(a), ((3,),), _any),
    "polygamma": (lambda a: array.polygamma(0, a) * array.polygamma(2, a), ((3,),), _any),
    "arctan2": (lambda a, b: np.arctan2(a, b), ((2, 3), (3,)), _any),
    "hypot": (lambda a, b: np.hypot(a, b), ((2, 3), (3,)), _any),
    "logaddexp": (lambda a, b: np.logaddexp(a, b), ((2, 3), (3,)), _any),
    "fmod": (lambda a, b: np.fmod(a * 5.0, b), ((2, 3), (3,)), _any),
    "float_power": (lambda a, b: np.float_power(a, b), ((2, 3), (3,)), _positive),
    "exponent": (lambda a: 2.0**a + 3.0**a, ((3,),), _any),
    "negative base": (lambda a: a ** np.array([2.0, 3.0, -1.0, 0.0, 1.0]), ((5,),), _any),
    "steps": (
        lambda a: a * (np.floor(3.0 * a) + np.ceil(a) + np.rint(5.0 * a) + np.trunc(2.0 * a) + np.sign(a)),
        ((5,),),
        _any,
    ),
    "power": (lambda a: np.power(a, -0.75), ((3,),), _positive),
    "cube": (lambda a: a**3, ((3,),), _any),
    "maximum": (lambda a, b: np.maximum(a, b), ((2, 3), (3,)), _any),
    "minimum": (lambda a, b: np.minimum(a, b), ((2, 3), (3,)), _any),
    "where": (lambda a, b: np.where(a > b, a * b, b), ((2, 3), (3,)), _any),
    "sum": (lambda a: np.sum(a * a, axis=(0, 2)), ((2, 3, 2),), _any),
    "mean": (lambda a: np.mean(a, axis=-1, keepdims=True) * a, ((2, 3),), _any),
    "var": (lambda a: np.var(a, axis=0), ((3, 2),), _any),
    "max": (lambda a: np.max(a, axis=-1), ((2, 5),), _any),
    "amax": (lambda a: array.amax(a, -1) * 2.0, ((2, 5),), _any),
    "max of two axes": (lambda a: np.max(a, axis=(0, 2), keepdims=True) * a, ((2, 3, 2),), _any),
    "reshape": (lambda a: np.reshape(a, (3, -1)) * 2.0, ((2, 3),), _any),
    "transpose": (lambda a: np.transpose(a, (2, 0, 1)) * 3.0, ((2, 3, 4),), _any),
    "moveaxis": (lambda a: np.moveaxis(a, 0, -1), ((2, 3, 4),), _any),
    "swapaxes": (lambda a: np.swapaxes(a, 0, 1), ((2, 3),), _any),
    "broadcast": (lambda a: np.broadcast_to(a, (4, 2, 3)) * 1.5, ((2, 1),), _any),
    "slicing": (lambda a: a[1:, ::2] * a[:-1, ::2], ((3, 5),), _any),
    "gather": (lambda a: np.take_along_axis(a, np.array([[0], [2]]), 1), ((2, 3),), _any),
    "take": (lambda a: np.take(a, [2, 0, 2], 1) * a, ((2, 3),), _any),
    "scatter": (lambda a: array.scatter(a, (np.array([0, 2, 0]),), (4,)), ((3,),), _any),
    "scatter to one element": (lambda a: array.scatter(a * a, (np.array(2),), (4,)), ((),), _any),
    "concatenate": (lambda a, b: np.concatenate([a, b, a], axis=-1), ((2, 3), (2, 1)), _any),
    "stack": (lambda a, b: np.stack([a, b], axis=1), ((2, 3), (2, 3)), _any),
    "expand and squeeze": (lambda a: np.squeeze(np.expand_dims(a, 0), 0) * a, ((3,),), _any),
    "matmul": (lambda a, b: a @ b, ((2, 3), (3, 4)), _any),
    "einsum": (lambda a, b: np.einsum("ij,kj->ki", a, b), ((2, 3), (4, 3)), _any),
    "batched matmul": (lambda a, b: np.matmul(a, b), ((2, 1, 2, 3), (2, 3, 2)), _any),
    "einsum of three": (lambda a, b, c: np.einsum("ij,jk,...k->...i", a, b, c), ((2, 3), (3, 2), (2, 2)), _any),
    "correlate": (
        lambda x, w: array.bind("correlate", (x, w), {"stride": (2, 1), "dilation": (1, 2)}),
        ((1, 2, 1, 4, 4), (2, 2, 1, 2, 2)),
        _any,
    ),
    "fourier": (
        lambda a: array.fourier(array.fourier(a, (0, 2), power=1) * a, (1,), inverse=True, power=2),
        ((2, 3, 3, 2),),
        _any,
    ),
    "windows": (lambda a: np.lib.stride_tricks.sliding_window_view(a, 3, 0) * 2.0, ((5, 2),), _any),
    "overlap": (
        lambda a: array.bind("overlap", (a,), {"shape": (5,), "sizes": (3,), "stride": (1,), "dilation": (1,)}),
        ((3, 3),),
        _any,
    ),
    "cumsum": (lambda a: np.cumsum(a * a, axis=0), ((4, 2),), _any),
    "cumprod": (lambda a: np.cumprod(a, axis=1), ((2, 4),), _any),
    "prod": (lambda a: np.prod(a, axis=(0, 2)), ((2, 3, 2),), _any),
    "sort": (lambda a: np.sort(a, axis=0) * a, ((4, 2),), _any),
    "trace": (lambda a: np.trace(a), ((3, 4),), _any),
    "attach": (lambda a, b: array.attach(a, a) * b, ((3,), (3,)), _any),
    "attach, kept": (lambda a, b: array.attach(a, a, always=True) * b, ((3,), (3,)), _any),
    "among": (lambda a, b: array.among(WAYS, a, a * b) * b, ((3,), (3,)), _any),
    "store": (lambda a: array.store(a) * a, ((3,),), _any),
    "cast": (lambda a: array.constant(array.cast(a, "float8_e5m2", False)) * a, ((3,),), _any),
    "layer_norm": (lambda x, w, b: norms.layer_norm(x, (4,), w, b), ((3, 4), (4,), (4,)), _any),
    "softmax": (lambda x: softmax.softmax(x, 0), ((4, 2),), _any),
    "log_softmax": (lambda x: softmax.log_softmax(x, -1), ((2, 4),), _any),
    "log_sigmoid": (activations.log_sigmoid, ((5,),), _any),
    "nll_loss": (lambda x, w: losses.nll_loss(x, np.array([0, 2, -100]), w), ((3, 3), (3,)), _any),
    "cross_entropy": (
        lambda x, w: losses.cross_entropy(x, np.array([0, 2, -100]), w, -100, "mean", 0.25),
        ((3, 3), (3,)),
        _positive,
    ),
    "native_layer_norm": (lambda x: norms.native_layer_norm(x, (3,), None, None, 1e-3), ((2, 3),), _any),
}


def _flat(outputs: tuple[Any, ...]) -> list[Any]:
    return [raw for y in outputs for raw in y.values.ravel().tolist()]


def _close(a: Any, b: Any) -> bool:
    """Equal to 200 bits of max(1, |b|)."""
    difference = libmp.mpf_sub(a, b, 60)
    if not difference[1]:
        return True
    return bool(difference[2] + difference[3] <= AGREE + max(0, b[2] + b[3]))


def _outputs(f: Callable[..., Any], *args: Any) -> tuple[Any, ...]:
    y = f(*args)
    return y if isinstance(y, tuple) else (y,)


def _difference(f: Callable[..., Any], xs: list[Exact], ts: list[Exact]) -> list[Any]:
    plus = _outputs(f, *(x + t * STEP for x, t in zip(xs, ts, strict=True)))
    minus = _outputs(f, *(x - t * STEP for x, t in zip(xs, ts, strict=True)))
    return _flat(tuple((p - m) / (2.0 * STEP) for p, m in zip(plus, minus, strict=True)))


def _draw(name: str, seed: int) -> tuple[Callable[..., Any], list[Exact], list[Exact]]:
    formula, shapes, draw = FORMULAS[name]
    rng = np.random.default_rng(seed)
    xs = [exact(draw(rng, s)) for s in shapes]
    return formula, xs, [exact(rng.standard_normal(s)) for s in shapes]


@pytest.mark.parametrize("name", FORMULAS)
def test_jvp_is_the_central_difference(name: str) -> None:
    with precision(BITS):
        f, xs, ts = _draw(name, 1)
        tangents = derivative.jvp(f, xs, ts)[1]
        assert all(map(_close, _flat(tangents), _difference(f, xs, ts)))


@pytest.mark.parametrize("name", FORMULAS)
def test_vjp_is_the_adjoint_of_jvp(name: str) -> None:
    with precision(BITS):
        f, xs, ts = _draw(name, 2)
        outputs, tangents = derivative.jvp(f, xs, ts)
        rng = np.random.default_rng(3)
        cotangents = [exact(rng.standard_normal(y.shape)) for y in outputs]
        pulled = derivative.vjp(f, xs)[1](*cotangents)
        left = sum(np.sum(g * t) for g, t in zip(cotangents, tangents, strict=True))
        right = sum(np.sum(g * t) for g, t in zip(pulled, ts, strict=True))
        assert _close(left.values[()], right.values[()])


@pytest.mark.parametrize("name", FORMULAS)
def test_second_order_is_the_difference_of_the_first(name: str) -> None:
    def pulled(f: Callable[..., Any], count: int) -> Callable[..., Any]:
        return lambda *a: derivative.vjp(f, a[:count])[1](*a[count:])

    with precision(BITS):
        f, xs, ts = _draw(name, 4)
        rng = np.random.default_rng(5)
        cotangents = [exact(rng.standard_normal(y.shape)) for y in _outputs(f, *xs)]
        g = pulled(f, len(xs))
        args, directions = xs + cotangents, ts + [exact(rng.standard_normal(c.shape)) for c in cotangents]
        assert all(map(_close, _flat(derivative.jvp(g, args, directions)[1]), _difference(g, args, directions)))


def test_every_primitive_is_among_the_formulas() -> None:
    names: set[str] = set()
    original = Exact.apply

    def spy(self: Exact, primitive: str, operands: Any, params: Any) -> Exact:
        names.add(primitive)
        return original(self, primitive, operands, params)

    Exact.apply = spy  # type: ignore[method-assign]
    try:
        for name in FORMULAS:
            f, xs, _ = _draw(name, 6)
            f(*xs)
    finally:
        Exact.apply = original  # type: ignore[method-assign]
    assert names == array.PRIMITIVES


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("sqrt", lambda g, y, xs, _: g / (2.0 * y) * (1.0 + 2.0**-50)),
        ("log2", lambda g, y, xs, _: g / (xs[0] * float(array.LOG_2))),  # of the float, not of the number
        ("erf", lambda g, y, xs, _: g * (float(array.TWO_OVER_ROOT_PI) * np.exp(-np.square(xs[0])))),
    ],
)
def test_a_planted_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, wrong: Any) -> None:
    monkeypatch.setitem(derivative.DIAGONAL, name, (wrong,))
    with precision(BITS):
        f, xs, ts = _draw(name, 7)
        tangents = derivative.jvp(f, xs, ts)[1]
        assert not all(map(_close, _flat(tangents), _difference(f, xs, ts)))


def test_constant_stops_every_level() -> None:
    with precision(BITS):
        x = exact(np.array([2.0]))

        def f(a: Any) -> Any:
            return a * array.constant(a)

        def g(a: Any) -> Any:
            return derivative.jvp(f, [a], [x])[1][0]

        assert derivative.jvp(g, [x], [x])[1][0].values[0] == libmp.fzero


def test_an_unknown_function_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="partition"):
        np.partition(exact(np.ones(3)), 1)  # type: ignore[call-overload]


def test_many_uses_of_a_value_are_one_sum_at_every_level() -> None:
    # f = x³ + 2 x, pulled = v f'(x): its gradient in x is v f''(x) = 6 v x, and in v it is f'(x) = 3 x² + 2.
    def f(x: Any) -> Any:
        return x * x * x + x + x

    def pulled(x: Any, v: Any) -> Any:
        return derivative.vjp(f, [x])[1](v)[0]

    with precision(BITS):
        x, v, w = (exact(np.array([n])) for n in (3.0, 5.0, 7.0))
        by_x, by_v = derivative.vjp(pulled, [x, v])[1](w)
        assert (by_x.values[0], by_v.values[0]) == (libmp.from_int(7 * 5 * 18), libmp.from_int(7 * 29))


def test_a_sum_of_many_gradients_is_bounded_in_every_order() -> None:
    # Added from left to right the first two cancel; in another order they do not, and the sum rounds.
    def copies(x: Any) -> Any:
        return x, x, x

    u = 2.0**-24
    operands = [np.array([value]) for value in (1.0, 1.0, -1.0, u)]
    (ball,) = balls(lambda x, *g: derivative.vjp(copies, [x])[1](*g), operands, contract("float32"))
    assert ball.centre[0] == u
    assert 2 * u <= ball.radii()[0] < 6 * u


def test_nothing_is_added_to_the_cotangent_of_a_row_that_is_used_once() -> None:
    """A sum with the zeros of all other rows would round as often as there are rows."""

    def scaled(a: Any, g: Any) -> Any:
        return derivative.vjp(lambda a: np.stack([a[i] * 3.0 for i in range(9)]), (a,))[1](g)

    (ball,) = balls(scaled, [np.ones((9, 2)), np.full((9, 2), 1.0 + 2.0**-20)], contract("float32", order=1))
    assert np.all(ball.radii() <= contract("float32", order=1).roundoff * 4.0)


class Square:
    """A formula whose product can be watched."""

    def __call__(self, a: Any) -> Any:
        y = a * a
        self.product = weakref.ref(y.primal)
        return np.sin(y)


def test_results_of_a_level_are_let_go_without_a_search_for_cycles() -> None:
    formula, x = Square(), exact(np.arange(3.0))
    gc.disable()
    try:
        _, pull = derivative.vjp(formula, [x])
        assert formula.product() is not None
        pull(x)
        assert formula.product() is None
    finally:
        gc.enable()


def test_a_map_of_cotangents_is_called_once() -> None:
    x = exact(np.arange(3.0))
    _, pull = derivative.vjp(lambda a: a * a, [x])
    pull(x)
    with pytest.raises(RuntimeError, match="second call"):
        pull(x)
